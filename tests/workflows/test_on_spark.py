"""Bags of a Spark data frame: the same estimates as in memory, whatever is shuffled, and errors in one sentence."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from tests.conftest import QUANTIFIERS, exactly, labelled
from tests.engines import running_spark

pytestmark = pytest.mark.engines
_KEY = "a `site`.x"  # a name that Spark would parse
_FEATURES = ["a", "b.c", "`d`", "e"]


@pytest.fixture(scope="module")
def spark():
    with running_spark(**{"spark.sql.execution.arrow.maxRecordsPerBatch": "70"}) as session:
        yield session


def table(n: int = 900) -> pd.DataFrame:
    X, _ = labelled(n)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(X.astype(np.float32), columns=_FEATURES)
    return rows.assign(**{_KEY: rng.choice(["n", "s/1", "s"], n)}, day=rng.integers(0, 9, n), w=rng.integers(1, 4, n))


def fitted(name: str) -> hq.Quantifier:
    X, y = labelled(600, seed=1)
    return QUANTIFIERS[name]().fit(pd.DataFrame(X, columns=_FEATURES), y)


def read(found, model) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, numbers of rows and prevalences, sorted by name."""
    frame = found.toPandas()
    ids = frame[_KEY] + "/" + frame["day"].astype(str) if "day" in frame else frame[_KEY]
    order = np.argsort(ids)
    return ids[order].tolist(), frame["n"].to_numpy()[order], frame[[str(c) for c in model.classes_]].to_numpy()[order]


@pytest.mark.parametrize("shuffle", ["rows", "sketches", "auto"])
@pytest.mark.parametrize("name", ["HistNetQ-hard", "PACC"])
def test_estimates_are_those_of_sketches_in_memory(spark, name, shuffle):
    model, rows = fitted(name), table()
    frame = spark.createDataFrame(rows).repartition(3)
    names, sizes, found = read(hq.predict_spark(model, frame, bag=[_KEY, "day"], shuffle=shuffle), model)
    bags = hq.read_bags(rows, bag=[_KEY, "day"], features=_FEATURES)
    order = np.argsort(bags.ids)
    assert names == bags.ids[order].tolist()
    np.testing.assert_array_equal(sizes, bags.sizes[order])
    expected = model.predict(model.sketch(bags))[order]
    if name == "PACC":
        np.testing.assert_allclose(found, expected, atol=1e-9)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shuffle", ["rows", "sketches"])
def test_weights_and_missing_values(spark, tmp_path, shuffle):
    model, rows = fitted("CC"), table()
    model.save(tmp_path / "model")
    rows.loc[::10, "a"] = np.nan
    how = {"weight": "w", "weight_kind": "count", "missing": "drop"}
    found = hq.predict_spark(tmp_path / "model", spark.createDataFrame(rows), bag=_KEY, shuffle=shuffle, **how)
    bags = hq.read_bags(rows, bag=_KEY, features=_FEATURES, **how)
    np.testing.assert_array_equal(read(found, model)[2], model.predict(bags)[np.argsort(bags.ids)])
    with pytest.raises(Exception, match=r"frame: row \d+ and \d+ other rows have nothing in column 'a'"):
        hq.predict_spark(model, spark.createDataFrame(rows), bag=_KEY, shuffle=shuffle).collect()
    rows.loc[rows["day"] == 3, "w"] = 0
    with pytest.raises(Exception, match="frame: the rows of bag 3 all have weight 0, expected at least one that has"):
        hq.predict_spark(model, spark.createDataFrame(rows), bag="day", shuffle=shuffle, **how).collect()


def test_nothing_is_computed_from_no_rows(spark):
    frame = spark.createDataFrame(table()).limit(0)
    for shuffle in ("auto", "rows", "sketches"):
        assert hq.predict_spark(fitted("CC"), frame, bag="day", shuffle=shuffle).count() == 0


@pytest.mark.parametrize(
    ("change", "how", "message"),
    [
        ({}, {"bag": "dai"}, "frame: has no column 'dai', its columns are ['a', 'b.c', '`d`', 'e', 'a `site`.x', "
         "'day', 'w']; name one of them, perhaps 'day'."),
        ({"day": "n"}, {"bag": "n"},
         "bag: column 'n' has the name of a column of the result; rename it in the data frame."),
        ({}, {"bag": []}, "bag: expected a column that names the bags, got none; name one."),
        ({}, {"bag": "day", "shuffle": "all"},
         "shuffle: expected one of 'auto', 'sketches', 'rows', got 'all'."),
    ],
)  # fmt: skip
def test_wrong_arguments(spark, change, how, message):
    with pytest.raises(ValueError, match=exactly(message)):
        hq.predict_spark(fitted("CC"), spark.createDataFrame(table(20).rename(columns=change)), **how)


def test_models_without_sketches_are_refused_at_once(spark):
    with pytest.raises(TypeError, match=r"^sketch: "):
        hq.predict_spark(fitted("SetTransformer"), spark.createDataFrame(table(20)), bag="day")


def test_pyspark_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.types", None)
    with pytest.raises(ImportError, match=exactly("spark: needs the package pyspark; pip install 'histnetq[spark]'.")):
        hq.predict_spark(fitted("CC"), None, bag="day")
