"""Generated queries on the engines that tests start: PostgreSQL and Spark."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq.sketches.tables import sketch_table
from tests.engines import running_postgres, running_spark
from tests.sketches.sql.test_query import (
    HOSTILE_BAG,
    HOSTILE_TABLE,
    OF_MORE,
    OF_TWO,
    fitted,
    hostile,
    hostile_predictions,
    measured,
    moved_rows,
    same,
    scored,
)

pytestmark = pytest.mark.engines
MODELS = [(name, 2) for name in OF_TWO] + [(name, 3) for name in OF_MORE]

ON_SPARK = [("ACC", 2), ("PACC", 3), ("HDy", 3), ("EMQ", 2), ("Pretrained", 2), ("Pretrained", 3)]  # one of each kind


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def spark():
    with running_spark() as session:
        yield session


def test_postgres_answers(postgres):
    assert postgres.query("SELECT 1 AS a, 0.1::float8 + 0.2::float8 AS b") == "a,b\n1,0.30000000000000004\n"


def test_spark_answers(spark):
    assert spark.sql("SELECT 1D / 3D AS a").collect()[0].a == 1 / 3


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def put(server, name, frame):
    """Create a table in PostgreSQL from a data frame; NaN stays NaN, and None is NULL."""
    kinds = {"f": "float8", "i": "bigint"}
    columns = ", ".join(f"{quoted(c)} {kinds.get(frame[c].dtype.kind, 'text')}" for c in frame.columns)
    place = server.folder / "rows.csv"
    text = frame.to_csv(index=False, header=False, na_rep="NaN", float_format="%.17g")
    place.write_text(text, encoding="utf-8")
    place.chmod(0o644)
    server.query(f"DROP TABLE IF EXISTS {quoted(name)}; CREATE TABLE {quoted(name)} ({columns});")
    server.query(f"COPY {quoted(name)} FROM '{place}' (FORMAT csv);")


@pytest.fixture(scope="module", params=["postgres", "spark"])
def database(request):
    """A function that runs the query for a model on a table of some rows, and returns the result as a data frame."""
    engine = request.getfixturevalue(request.param)

    def on_postgres(q, name, frame, bag):
        put(engine, name, frame)
        return pd.read_csv(io.StringIO(engine.query(q.to_sql([name], bag=bag, dialect="postgres"))))

    def on_spark(q, name, frame, bag):
        rows = engine.createDataFrame(frame)
        rows.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
        return engine.sql(q.to_sql([name], bag=bag, dialect="spark")).toPandas()

    return on_postgres if request.param == "postgres" else on_spark


@pytest.mark.parametrize(("name", "n_classes"), MODELS)
def test_counts_of_score_columns_are_those_of_rows(database, name, n_classes, request):
    if "spark" in request.node.name and (name, n_classes) not in ON_SPARK:
        pytest.skip("Spark plans each query for seconds; the cells of these models are the same")
    q, new = fitted(name, n_classes), scored(5000, n_classes, seed=1).drop(columns="species")
    same(hq.BagSketch.from_sql(database(q, "new", new, "site")), sketch_table(q, new, bag=["site"]))


@pytest.mark.parametrize(("name", "n_classes"), [("EMQ", 2), ("Pretrained", 3)])
def test_a_logistic_regression_moves_at_most_one_row(database, name, n_classes):
    learned = hq.read_bags(measured(3000, n_classes), bag="site", label="species")
    q = getattr(hq, name)(random_state=0).fit(learned).calibrate(learned)
    new = measured(50_000, n_classes, seed=1).drop(columns="species")
    assert moved_rows(hq.BagSketch.from_sql(database(q, "new", new, "site")), sketch_table(q, new, bag=["site"])) <= 1


def test_scores_that_nearly_are_0(database):
    """Some scores are 0 in single precision, which PostgreSQL calls an underflow, and some are subnormal."""
    small = np.array([0.0, 5e-324, 1e-320, 1e-300, 2.0**-151, 2.0**-150, 2.0**-149, 1e-45, 1e-40, 1e-38, 1e-20, 1e-9])
    new = pd.DataFrame({"p_cod": 1 - small, "p_eel": small, "site": 0})
    new = pd.concat([new, new.rename(columns={"p_cod": "p_eel", "p_eel": "p_cod"})], ignore_index=True)
    for name in ("EMQ", "HDy", "Pretrained", "PACC"):
        q = fitted(name, 2)
        same(hq.BagSketch.from_sql(database(q, "new", new, "site")), sketch_table(q, new, bag=["site"]))


def test_far_rows_of_a_logistic_regression(database):
    learned = hq.read_bags(measured(3000, 3), bag="site", label="species")
    new = measured(50, 3, seed=1).drop(columns="species")
    new.loc[:3, "weight"] = [1e30, -1e30, 1e38, -1e38]
    for q in (hq.CC(random_state=0).fit(learned), hq.PACC(random_state=0).fit(learned)):
        same(hq.BagSketch.from_sql(database(q, "new", new, "site")), sketch_table(q, new, bag=["site"]))


def test_missing_and_impossible_scores_are_counted(database):
    q, new = fitted("HDy"), scored(500, seed=1).drop(columns="species")
    new.loc[2:3, "p_eel"] = np.nan
    with pytest.warns(UserWarning, match=r"dropped 2 rows with missing values"):
        got = hq.BagSketch.from_sql(database(q, "new", new, "site"), missing="drop")
    with pytest.warns(UserWarning, match="dropped"):
        same(got, sketch_table(q, new, bag=["site"], missing="drop"))
    new.loc[2:3, "p_eel"] = [np.inf, 1e300]
    with pytest.raises(ValueError, match=r"^table: counts 2 rows with numbers that the model cannot read"):
        hq.BagSketch.from_sql(database(q, "new", new, "site"))


def test_hostile_names_are_names(database):
    q, new = hostile()
    same(hq.BagSketch.from_sql(database(q, "hostile", new, HOSTILE_BAG)), sketch_table(q, new, bag=[HOSTILE_BAG]))
    q, new = hostile_predictions()
    same(hq.BagSketch.from_sql(database(q, "new", new, "site")), sketch_table(q, new, bag=["site"]))


def test_hostile_tables_are_names(postgres):
    q, new = hostile()
    put(postgres, HOSTILE_TABLE, new)
    result = postgres.query(q.to_sql([HOSTILE_TABLE], bag=HOSTILE_BAG, dialect="postgres"))
    same(hq.BagSketch.from_sql(pd.read_csv(io.StringIO(result))), sketch_table(q, new, bag=[HOSTILE_BAG]))
