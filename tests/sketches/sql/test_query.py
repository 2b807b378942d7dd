"""Queries that count as `q.sketch` does: run in DuckDB here, and in PostgreSQL and Spark by `test_engines.py`."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.registry import SQL_DIALECTS
from histnetq.sketches.tables import sketch_table
from tests.conftest import QUICK, exactly

duckdb = pytest.importorskip("duckdb")
sqlglot = pytest.importorskip("sqlglot")

OF_TWO = ("CC", "ACC", "PCC", "PACC", "HDy", "DyS", "EMQ", "KDEy", "Pretrained")
OF_MORE = ("CC", "ACC", "PCC", "PACC", "HDy", "DyS", "Pretrained")
HOSTILE = ["a\\` ' \" ; DROP TABLE rows; --", "select", "é\n\\'☃"]
HOSTILE_BAG, HOSTILE_TABLE = "s\"'`\\;--", "ta\"b'l`e\\;--"


def scored(n_rows=4000, n_classes=3, seed=0, digits=4, names=("cod", "eel", "hake")):
    """Rows with scores: most are rounded and lie on edges of bins, and some are 0 or 1."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n_rows)
    logits = 4 * (np.eye(n_classes)[codes] + rng.normal(size=(n_rows, n_classes)) * 0.6)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p[: n_rows // 2] = p[: n_rows // 2].round(2)
    p[:n_classes] = np.eye(n_classes)
    p[n_classes : 2 * n_classes] = 1 / n_classes
    frame = pd.DataFrame(p.round(digits), columns=[f"p_{name}" for name in names[:n_classes]])
    return frame.assign(site=rng.integers(20, size=n_rows), species=np.array(names)[codes])


def fitted(name, n_classes=3, calibrated=True, **reading):
    bags = hq.read_bags(scored(n_classes=n_classes), bag="site", label="species", **(reading or {"proba": "p_*"}))
    q = getattr(hq, name)(random_state=0).fit(bags)
    return q.calibrate(bags) if calibrated else q


def run(query, **tables):
    with duckdb.connect() as connection:
        for name, frame in tables.items():
            connection.register(name, frame)
        return connection.sql(query).to_arrow_table()


def same(got, want):
    """Compare sketches by the names of their bags: counts to the last bit, and sums of posteriors to 1e-9."""
    a, b = np.argsort(got.ids), np.argsort(want.ids)
    np.testing.assert_array_equal(got.ids[a], want.ids[b])
    np.testing.assert_array_equal(got.n_rows[a], want.n_rows[b])
    np.testing.assert_array_equal(got.moments[a], want.moments[b])
    assert got.values.shape == want.values.shape
    if got.values.dtype.kind in "iu":
        np.testing.assert_array_equal(got.values[a], want.values[b])
    else:
        np.testing.assert_allclose(got.values[a], want.values[b], rtol=1e-9)
    assert got.maker == want.maker


@pytest.mark.parametrize(("name", "n_classes"), [(name, 2) for name in OF_TWO] + [(name, 3) for name in OF_MORE])
def test_counts_of_score_columns_are_those_of_rows(name, n_classes):
    q, new = fitted(name, n_classes), scored(5000, n_classes, seed=1)
    got = hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new))
    want = sketch_table(q, new, bag=["site"])
    same(got, want)
    order = np.argsort(got.ids)
    np.testing.assert_allclose(q.predict(got)[order], q.predict(want)[np.argsort(want.ids)], atol=1e-9)
    pd.testing.assert_frame_equal(q.trust(got).sort_index(), q.trust(want).sort_index())


@pytest.mark.parametrize("columns", [{"proba": "eel=p_eel"}, {"proba": "cod=p_cod"}, {"prediction": "told"}])
@pytest.mark.parametrize("name", ["HDy", "ACC"])
def test_one_score_or_a_predicted_class(name, columns):
    def told(frame):
        return frame.assign(told=np.where(frame["p_eel"] > 0.5, "eel", "cod"))

    bags = hq.read_bags(told(scored(n_classes=2)), bag="site", label="species", **columns)
    q, new = getattr(hq, name)().fit(bags), told(scored(3000, 2, seed=1))
    same(hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new)), sketch_table(q, new, bag=["site"]))


def test_double_precision_and_sums_that_are_not_1():
    q = fitted("HDy")
    q.double_ = True
    new = scored(3000, seed=3, digits=2)
    assert (new.filter(like="p_").sum(axis=1) != 1).mean() > 0.1
    same(hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new)), sketch_table(q, new, bag=["site"]))


def test_several_bag_columns_and_none():
    q, new = fitted("ACC"), scored(2000, seed=1).assign(day=lambda f: np.where(f["p_cod"] > 0.3, "mon", "tue"))
    keys = ["site", "day"]
    same(hq.BagSketch.from_sql(run(q.to_sql("new", bag=keys), new=new)), sketch_table(q, new, bag=keys))
    whole = hq.BagSketch.from_sql(run(q.to_sql("new"), new=new))
    assert whole.ids.tolist() == ["all"]
    assert whole.n_rows.tolist() == [2000]


@pytest.mark.parametrize("name", ["CC", "PCC", "HDy", "Pretrained"])
def test_missing_and_impossible_scores_are_counted(name):
    q, frame = fitted(name), scored(600, seed=1)
    frame.loc[2:3, "p_eel"] = np.nan
    new = pa.Table.from_pydict({column: pa.array(frame[column].to_numpy()) for column in frame.columns})
    nothing = pa.array(frame["p_cod"].to_numpy(), mask=np.arange(600) < 2)  # nulls, while the others are NaN
    new = new.set_column(0, "p_cod", nothing)
    query = q.to_sql("new", bag="site")
    result = run(query, new=new)
    with pytest.raises(ValueError, match=r"^table: counts 4 rows with missing values, such as in bag "):
        hq.BagSketch.from_sql(result)
    with pytest.warns(UserWarning, match=exactly("table: dropped 4 rows with missing values.")):
        got = hq.BagSketch.from_sql(result, missing="drop")
    with pytest.warns(UserWarning, match="dropped"):
        same(got, sketch_table(q, new, bag=["site"], missing="drop"))
    for wrong in (-0.5, 1.5, np.inf, -np.inf, 1e300, 0.7):
        new = scored(600, seed=1)
        new.loc[5, ["p_cod", "p_eel"]] = wrong
        with pytest.raises(ValueError, match=r"^table: counts 1 row with numbers that the model cannot read"):
            hq.BagSketch.from_sql(run(query, new=new), missing="drop")


def test_unknown_predicted_classes_are_counted():
    told = scored(n_classes=2).assign(told=lambda f: f["species"])
    q = hq.CC().fit(hq.read_bags(told, bag="site", label="species", prediction="told"))
    told.loc[0, "told"] = "cod' OR 1=1 --"
    with pytest.raises(ValueError, match="counts 1 row with numbers that the model cannot read"):
        hq.BagSketch.from_sql(run(q.to_sql("told", bag="site"), told=told))


def hostile():
    """A model and rows whose columns, bags and table have hostile names."""
    renamed = {**dict(zip(["p_cod", "p_eel", "p_hake"], HOSTILE, strict=True)), "site": HOSTILE_BAG}
    train, new = (scored(2000, seed=seed).rename(columns=renamed) for seed in (0, 1))
    proba = dict(zip(["cod", "eel", "hake"], HOSTILE, strict=True))
    q = hq.HDy().fit(hq.read_bags(train, bag=HOSTILE_BAG, label="species", proba=proba))
    return q, new.drop(columns="species")


def hostile_predictions():
    """A model of predicted classes whose names are hostile."""

    def named(frame):
        names = dict(zip(["cod", "eel", "hake"], HOSTILE, strict=True))
        return frame.assign(told=frame["species"].map(names), truth=frame["species"].map(names))

    q = hq.CC().fit(hq.read_bags(named(scored(2000)), bag="site", label="truth", prediction="told"))
    return q, named(scored(2000, seed=1))[["site", "told"]]


def test_hostile_names_are_names():
    q, new = hostile()
    query = q.to_sql([HOSTILE_TABLE], bag=HOSTILE_BAG)
    same(hq.BagSketch.from_sql(run(query, **{HOSTILE_TABLE: new})), sketch_table(q, new, bag=[HOSTILE_BAG]))
    q, new = hostile_predictions()
    same(hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new)), sketch_table(q, new, bag=["site"]))


@pytest.mark.parametrize("name", ["Pretrained", "PACC"])
def test_columns_with_the_names_of_steps(name):
    """Columns of the table win over the columns of the query with the same names."""
    renamed = {"p_cod": "x1", "p_eel": "total", "p_hake": "x0", "site": "known"}
    train, new = (scored(2000, seed=seed).rename(columns=renamed) for seed in (0, 1))
    learned = hq.read_bags(train, bag="known", label="species", proba={"cod": "x1", "eel": "total", "hake": "x0"})
    q = getattr(hq, name)(random_state=0).fit(learned).calibrate(learned)
    new["p0"], new["k1"] = new["x0"].to_numpy()[::-1], np.where(new["x1"] > 0.5, "k0", "c0")
    for bag in (["known"], ["known", "k1"], ["k1"]):
        same(hq.BagSketch.from_sql(run(q.to_sql("new", bag=bag), new=new)), sketch_table(q, new, bag=bag))


@pytest.mark.parametrize("dialect", SQL_DIALECTS)
def test_every_dialect_is_one_query_with_these_names_only(dialect):
    for (q, _), bag in ((hostile(), HOSTILE_BAG), (hostile_predictions(), "site")):
        query = q.to_sql(["schema", HOSTILE_TABLE], bag=bag, dialect=dialect)
        (parsed,) = sqlglot.parse(query, dialect=dialect)
        names = {column.name for column in parsed.find_all(sqlglot.exp.Column)}
        texts = {text.name for text in parsed.find_all(sqlglot.exp.Literal) if text.is_string}
        tables = {table.name for table in parsed.find_all(sqlglot.exp.Table)}
        assert bag in names
        assert set(HOSTILE) <= names | texts
        assert {name for name in tables if not name.startswith("histnetq_")} == {HOSTILE_TABLE}
        assert isinstance(parsed, sqlglot.exp.Select)


@pytest.mark.parametrize("dialect", SQL_DIALECTS)
@pytest.mark.parametrize("name", ["EMQ", "Pretrained", "PACC"])
def test_every_dialect_is_parsed(dialect, name):
    (parsed,) = sqlglot.parse(fitted(name, 2).to_sql("a.b.events", bag=["x", "y"], dialect=dialect), dialect=dialect)
    assert [column.alias_or_name for column in parsed.selects][:5] == ["x", "y", *RESULT[:3]]


RESULT = ["histnetq_model", "histnetq_state", "histnetq_cell"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"dialect": "mysql"},
            "dialect: expected one of 'duckdb', 'postgres', 'spark', 'bigquery', 'snowflake', got 'mysql'",
        ),
        ({"table": ""}, "table: expected a name, after the names of its schema and catalog if necessary, got ''"),
        ({"table": "a.b.c.d"}, "table: expected a name, after the names of its schema and catalog if necessary, got "),
        ({"bag": ["site", "site"]}, "bag: expected different columns, got 'site' twice; name each once."),
        (
            {"bag": "Histnetq_cell"},
            "table, bag: expected names that do not start with 'histnetq_', got 'Histnetq_cell'",
        ),
        ({"bag": "a\0b"}, "bag: expected the names of columns, got 'a\\x00b'; correct it."),
    ],
)
def test_wrong_names(wrong, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        fitted("CC", calibrated=False).to_sql(**{"table": "new", "bag": "site", **wrong})


def test_models_that_sql_cannot_compute():
    expected = (
        "to_sql: expected a method that SQL can compute: CC, ACC, PCC, PACC, HDy, DyS, Pretrained, or EMQ of two "
        "classes"
    )
    for name in ("EMQ", "ED"):
        with pytest.raises(
            TypeError, match=exactly(f"{expected}, got {name}; use Pretrained on scores, or sketch the rows.")
        ):
            fitted(name, calibrated=False).to_sql("new")
    network = hq.EMNetQ(training=QUICK).fit(hq.read_bags(scored(400), bag="site", label="species", proba="p_*"))
    with pytest.raises(
        TypeError, match=exactly(f"{expected}, got EMNetQ; use Pretrained on scores, or sketch the rows.")
    ):
        network.to_sql("new")
    frame = scored()
    q = hq.CC("forest", random_state=0).fit(hq.read_bags(frame, label="species", features=["p_cod", "p_eel"]))
    message = (
        "to_sql: expected score columns, or a multinomial logistic regression, got RandomForestClassifier; fit to "
        "score columns of the classifier."
    )
    with pytest.raises(TypeError, match=exactly(message)):
        q.to_sql("new")


def test_a_model_with_weights_warns():
    q = fitted("CC", calibrated=False)
    q.provenance_ = {"weight": "w", "weight_kind": "survey"}
    with pytest.warns(
        UserWarning, match=r"^to_sql: the query has no weights, but the model was fitted with the weights"
    ):
        q.to_sql("new")


def test_intervals_and_trust_come_from_the_result():
    q, new = fitted("Pretrained"), scored(3000, seed=1)
    result = run(q.to_sql("new", bag="site"), new=new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hq.estimate(q, result, sql_result=True).to_frame()
    want = hq.estimate(q, new, bag="site").to_frame()
    pd.testing.assert_frame_equal(found, want)


def measured(n_rows, n_classes=2, seed=0):
    """Rows of three features in single precision, of which the scores of a logistic regression are overlapping."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n_rows)
    features = rng.normal(size=(n_rows, 3)) * [1, 3, 100] + np.stack([2.0 * codes, 50 + codes, 7 - 60 * codes], axis=1)
    frame = pd.DataFrame(features, columns=["length", "a depth", "weight"])
    return frame.assign(site=rng.integers(20, size=n_rows), species=codes)


def moved_rows(got, want):
    """Return the number of rows that two sketches count in different cells."""
    a, b = np.argsort(got.ids), np.argsort(want.ids)
    np.testing.assert_array_equal(got.n_rows[a], want.n_rows[b])
    np.testing.assert_array_equal(got.moments[a], want.moments[b])
    return np.abs(got.values[a].astype(int) - want.values[b].astype(int)).sum() / 2


@pytest.mark.parametrize(("name", "n_classes"), [("EMQ", 2), ("Pretrained", 2), ("HDy", 3), ("Pretrained", 3)])
@pytest.mark.parametrize("n_rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.hard)])
def test_a_logistic_regression_moves_at_most_one_row_per_million(name, n_classes, n_rows):
    learned = hq.read_bags(measured(3000, n_classes), bag="site", label="species")
    q = getattr(hq, name)(random_state=0).fit(learned).calibrate(learned)
    new = measured(n_rows, n_classes, seed=1).drop(columns="species")
    got = hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new))
    assert moved_rows(got, sketch_table(q, new, bag=["site"])) <= 1


@pytest.mark.parametrize("n_classes", [2, 4])
def test_sums_of_a_logistic_regression(n_classes):
    frame = measured(3000, n_classes)
    learned = hq.read_bags(frame, bag="site", label="species")
    q = hq.PACC(LogisticRegression(), random_state=0).fit(learned)
    new = measured(9000, n_classes, seed=1)
    same(hq.BagSketch.from_sql(run(q.to_sql("new", bag="site"), new=new)), sketch_table(q, new, bag=["site"]))


def test_features_that_are_missing_or_too_large():
    q, new = hq.CC(random_state=0).fit(hq.read_bags(measured(900), bag="site", label="species")), measured(600, seed=1)
    new.loc[3:4, "length"] = np.nan
    query = q.to_sql("new", bag="site")
    with pytest.warns(UserWarning, match="dropped 2 rows with missing values"):
        got = hq.BagSketch.from_sql(run(query, new=new), missing="drop")
    with pytest.warns(UserWarning, match="dropped"):
        same(got, sketch_table(q, new, bag=["site"], missing="drop"))
    for wrong in (np.inf, -np.inf, 1e300, 3.5e38):
        new = measured(600, seed=1)
        new.loc[5, "weight"] = wrong
        with pytest.raises(ValueError, match=r"^table: counts 1 row with numbers that the model cannot read"):
            hq.BagSketch.from_sql(run(query, new=new))
    new["weight"] = -1e38
    same(hq.BagSketch.from_sql(run(query, new=new)), sketch_table(q, new, bag=["site"]))


def test_categories_and_classifiers_of_one_class_each_are_refused():
    frame = measured(900).assign(colour=np.where(np.arange(900) % 3, "red", "blue"))
    q = hq.CC(random_state=0).fit(hq.read_bags(frame, bag="site", label="species", features=["length", "colour"]))
    message = (
        "to_sql: expected features that are columns of numbers, got the category 'colour=blue'; encode it as a column "
        "of numbers."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        q.to_sql("new")
