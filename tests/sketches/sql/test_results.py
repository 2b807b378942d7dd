"""Results of queries, which any program may have written: every wrong number is an error of one sentence."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import histnetq as hq
from histnetq.sketches.sql.results import Origin
from tests.conftest import exactly
from tests.sketches.sql.test_query import fitted, run, same, scored

pytest.importorskip("duckdb")
AGAIN = "; run the query of to_sql again."


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in ("CC", "PCC", "HDy")}


@pytest.fixture(scope="module")
def results(models):
    new = scored(2000, seed=1)
    return {name: run(q.to_sql("new", bag="site"), new=new).to_pandas() for name, q in models.items()}


def changed(frame, column, value, row=0):
    frame = frame.copy()
    frame[column] = frame[column].astype(object)
    frame.loc[frame.index[row], column] = value
    return frame.infer_objects()


NO_QUERY = "table: has a number in column 'histnetq_{}' that no query can have given" + AGAIN


@pytest.mark.parametrize("name", ["CC", "HDy"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("state", 7), ("state", -2), ("state", 0.5), ("state", np.nan), ("cell", 10**6), ("cell", -3), ("cell", 1.5),
        ("cell", np.inf), ("rows", -5), ("rows", 0), ("rows", 2.5), ("rows", np.nan), ("rows", 1e300), ("total", 0.5),
        ("total", np.nan),
    ],
)  # fmt: skip
def test_numbers_that_no_query_gives(results, name, column, value):
    frame = results[name]
    row = int(np.argmax(frame["histnetq_state"] == 0))
    with pytest.raises(ValueError, match=exactly(NO_QUERY.format(column))):
        hq.BagSketch.from_sql(changed(frame, f"histnetq_{column}", value, row))


@pytest.mark.parametrize(("name", "column"), [("PCC", "sum0"), ("PCC", "sum5"), ("CC", "sum0")])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, None])
def test_sums_that_are_not_finite(results, name, column, value):
    frame = results[name]
    row = int(np.argmax(frame["histnetq_state"] == -1))
    with pytest.raises(ValueError, match=exactly(NO_QUERY.format(column))):
        hq.BagSketch.from_sql(changed(frame, f"histnetq_{column}", value, row))


def test_sums_of_posteriors_are_as_large_as_the_bag(results):
    for value in (-1.0, 1e6):
        with pytest.raises(ValueError, match=exactly(NO_QUERY.format("sum0"))):
            hq.BagSketch.from_sql(changed(results["PCC"], "histnetq_sum0", value))
    last = [name for name in results["PCC"].columns if "sum" in name][-1]
    with pytest.raises(ValueError, match=exactly(NO_QUERY.format(last.removeprefix("histnetq_")))):
        hq.BagSketch.from_sql(changed(results["PCC"], "histnetq_sum5", 1e300))


def test_rows_that_are_missing_changed_or_there_twice(results):
    frame = results["HDy"]
    total, lost = int(frame["histnetq_rows"].sum()), int(frame["histnetq_rows"].iloc[3])
    message = (
        "table: counts {} rows in all, and {} by column 'histnetq_total', so that some of its rows are missing or "
        "changed"
    )
    with pytest.raises(ValueError, match=exactly(message.format(f"{total - lost:,}", f"{total:,}") + AGAIN)):
        hq.BagSketch.from_sql(frame.drop(index=3))
    with pytest.raises(ValueError, match=exactly(message.format(f"{total:,}", "several numbers") + AGAIN)):
        hq.BagSketch.from_sql(changed(frame, "histnetq_total", total + 1))
    twice = pd.concat([frame, frame.iloc[[3]]]).assign(histnetq_total=total + lost)
    with pytest.raises(
        ValueError, match=r"^table: has the cell -?\d+ of bag \d+ twice; run the query of to_sql again\.$"
    ):
        hq.BagSketch.from_sql(twice)
    # Rows that moved from one bag to another one leave the total as it is.
    counted = frame[frame["histnetq_state"] == 0]
    one, two = (counted.index[counted["site"] == site][0] for site in (1, 2))
    moved = frame.copy()
    moved.loc[one, "histnetq_rows"] += 1
    moved.loc[two, "histnetq_rows"] = max(moved.loc[two, "histnetq_rows"] - 1, 0)
    if moved.loc[two, "histnetq_rows"] == 0:
        moved = moved.drop(index=two)
    with pytest.raises(
        ValueError, match=r"^table: counts different numbers of rows of bag \d+; run the query of to_sql"
    ):
        hq.BagSketch.from_sql(moved)


def test_columns_that_are_missing_or_hold_texts(results):
    for name in ("histnetq_model", "histnetq_cell", "histnetq_total"):
        with pytest.raises(
            ValueError, match=exactly(f"table: has no column {name!r}, which the result of every query has{AGAIN}")
        ):
            hq.BagSketch.from_sql(results["CC"].drop(columns=name))
    with pytest.raises(
        ValueError, match=exactly(f"table: has no column 'histnetq_sum2', which the result for this model has{AGAIN}")
    ):
        hq.BagSketch.from_sql(results["PCC"].drop(columns="histnetq_sum2"))
    with pytest.raises(
        ValueError, match=r"^table: has .*string in column 'histnetq_cell', expected numbers; run the query"
    ):
        hq.BagSketch.from_sql(results["CC"].assign(histnetq_cell="1"))
    with pytest.raises(ValueError, match=r"^table: has no rows"):
        hq.BagSketch.from_sql(results["CC"].iloc[:0])
    bare = changed(results["CC"].assign(site=results["CC"]["site"].astype(str)), "site", None)
    with pytest.raises(
        ValueError, match=exactly("table: row 1 has nothing in column 'site'; fill it in or drop the row.")
    ):
        hq.BagSketch.from_sql(bare)


@pytest.mark.parametrize(
    "text",
    ["", "CC", "histnetq 2 CC", "histnetq 1 CC " + "0" * 64 + " none counts 99999999999 0",
     "histnetq 1 CC " + "0" * 64 + " none counts 0 0", "histnetq 1 CC " + "0" * 64 + " none counts 2x2x2 0",
     "histnetq 1 CC " + "0" * 64 + " none counts 2 5", "histnetq 1 CC " + "0" * 64 + " none counts 2000000x2000 0",
     "histnetq 1 CC " + "0" * 64 + " none lies 2 0"],
)  # fmt: skip
def test_models_that_are_none(results, text):
    message = f"table: does not say in column 'histnetq_model' which model it is for{AGAIN}"
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.from_sql(results["CC"].assign(histnetq_model=text))


def test_the_result_of_another_model(models, results):
    sketch = hq.BagSketch.from_sql(results["CC"])
    with pytest.raises(ValueError, match=r"^sketch: expected one made by this model, PCC"):
        models["PCC"].predict(sketch)
    made = Origin.read(results["CC"]["histnetq_model"].iloc[0])
    assert made.shape == (3,)
    claimed = results["CC"].assign(histnetq_model=results["CC"]["histnetq_model"].str.replace("counts 3", "counts 9"))
    with pytest.raises(ValueError, match=r"^sketch: expected states of shape"):
        models["CC"].predict(hq.BagSketch.from_sql(claimed))
    several = changed(results["CC"], "histnetq_model", results["PCC"]["histnetq_model"].iloc[0])
    with pytest.raises(
        ValueError, match=exactly(f"table: has results of several models in column 'histnetq_model'{AGAIN}")
    ):
        hq.BagSketch.from_sql(several)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_and_their_parts(models, results, tmp_path, ending):
    frame, want = results["HDy"], hq.BagSketch.from_sql(results["HDy"])
    parts = frame.iloc[: len(frame) // 2], frame.iloc[len(frame) // 2 :]
    for i, part in enumerate(parts):
        place = tmp_path / f"part{i}.{ending}"
        part.to_csv(place, index=False) if ending == "csv" else part.to_parquet(place)
    same(hq.BagSketch.from_sql(str(tmp_path / f"part*.{ending}")), want)
    with pytest.raises(ValueError, match="so that some of its rows are missing or changed"):
        hq.BagSketch.from_sql(tmp_path / f"part0.{ending}")
    days = want + want
    assert days.n_rows.sum() == 2 * want.n_rows.sum()
    np.testing.assert_allclose(models["HDy"].predict(days), models["HDy"].predict(want), atol=1e-12)


def test_options():
    with pytest.raises(ValueError, match=r"^missing: expected one of 'refuse', 'drop', got 'mean'"):
        hq.BagSketch.from_sql(pd.DataFrame({"x": [1]}), missing="mean")


def test_results_that_ask_for_memory(results):
    """A few bytes that name many cells or sums do not take memory."""
    frame = results["CC"]
    text = frame["histnetq_model"].iloc[0]
    many = frame.assign(histnetq_model=re.sub(r"counts 3 \d+", "counts 3 2000000000", text))
    with pytest.raises(
        ValueError, match=r"^table: has no column 'histnetq_sum12', which the result for this model has"
    ):
        hq.BagSketch.from_sql(many)
    n_bags = 2000
    group = {"site": range(n_bags), "histnetq_state": 0, "histnetq_cell": 0, "histnetq_rows": 1}
    large = pd.DataFrame({**group, "histnetq_total": n_bags})
    large = large.assign(histnetq_model="histnetq 1 CC " + "0" * 64 + " none counts 4000000 0")
    message = "table: has 2,000 bags of 4,000,000 numbers each, too many for the memory; query fewer bags at a time."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.from_sql(large)


def test_results_that_claim_many_states(results):
    """The text claims four million states of a bag that has one group, which takes neither time nor memory."""
    group = {"histnetq_state": [0], "histnetq_cell": 0, "histnetq_rows": 4, "histnetq_total": 4, "site": "n"}
    for shape in ("4194304x1", "2x3"):
        text = f"histnetq 1 CC {'0' * 64} none counts {shape} 0"
        message = "table: has too few rows for bag 'n'" + AGAIN
        with pytest.raises(ValueError, match=exactly(message)):
            hq.BagSketch.from_sql(pd.DataFrame({**group, "histnetq_model": text}))


def test_results_that_claim_cells_of_eight_bytes(results):
    """A few groups with a large count of rows do not take eight bytes for each of a billion cells."""
    n_bags = 256
    group = {"site": range(n_bags), "histnetq_state": 0, "histnetq_cell": 0, "histnetq_rows": 2**40}
    large = pd.DataFrame({**group, "histnetq_total": n_bags * 2**40})
    large = large.assign(histnetq_model="histnetq 1 CC " + "0" * 64 + " none counts 4000000 0")
    message = "table: has 256 bags of 4,000,000 numbers each, too many for the memory; query fewer bags at a time."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.from_sql(large)


def test_sums_of_two_dimensions(results):
    sums = {f"histnetq_sum{i}": 2.0 for i in range(6)}
    group = {"histnetq_state": -1, "histnetq_cell": 0, "histnetq_rows": 4, "histnetq_total": 8, "site": ["n", "s"]}
    frame = pd.DataFrame({**group, **sums, "histnetq_model": f"histnetq 1 PCC {'0' * 64} none sums 2x3 0"})
    message = "table: does not say in column 'histnetq_model' which model it is for" + AGAIN
    with pytest.raises(ValueError, match=exactly(message)):
        hq.BagSketch.from_sql(frame)


def test_other_types_of_numbers(results):
    frame = results["CC"]
    table = pa.Table.from_pandas(frame)
    for name, kind in (("histnetq_total", pa.decimal128(38, 0)), ("histnetq_rows", pa.float64())):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(kind))
    same(hq.BagSketch.from_sql(table), hq.BagSketch.from_sql(frame))
    with pytest.raises(ValueError, match=r"^table: "):
        hq.BagSketch.from_sql(frame.assign(histnetq_rows=True))
