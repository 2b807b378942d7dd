"""Files of sketches that were altered: each is refused in one sentence."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import histnetq as hq
from tests.conftest import QUANTIFIERS, exactly, known_bags, labelled, learn


def sketched():
    q = hq.CC(random_state=0).fit(*labelled())
    return q.sketch(hq.Bags(labelled()[0][:6], offsets=[0, 2, 6], ids=["x", "y"]))


def rewritten(path, change):
    """Save a sketch, change the table and the metadata of its file, and write it again."""
    sketched().save(path)
    table = parquet.read_table(path)
    about = json.loads(table.schema.metadata[b"histnetq.sketch"])
    table, about = change(table, about)
    parquet.write_table(table.replace_schema_metadata({b"histnetq.sketch": json.dumps(about)}), path)


def told(**entries):
    return lambda table, about: (table, {**about, **entries})


def made(**entries):
    return lambda table, about: (table, {**about, "maker": {**about["maker"], **entries}})


def column(name, numbers):
    def change(table, about):
        return table.set_column(table.column_names.index(name), name, numbers), about

    return change


TAMPERED = {
    "metadata that are a list": lambda table, about: (table, []),
    "no format": lambda table, about: (table, {k: v for k, v in about.items() if k != "format"}),
    "no maker": lambda table, about: (table, {k: v for k, v in about.items() if k != "maker"}),
    "no shape": lambda table, about: (table, {k: v for k, v in about.items() if k != "shape"}),
    "a maker that is a text": told(maker="CC"),
    "a maker without a fingerprint": told(maker={"quantifier": "CC"}),
    "a maker of other fields": made(command="touch ran"),
    "a fingerprint that is a number": made(fingerprint=7),
    "an unknown way to merge": made(merge="eval"),
    "an origin with NaN": made(origin=[float("nan")] * 4),
    "an origin of texts": made(origin=["a"] * 4),
    "keys that are a text": made(keys="day"),
    "a shape that is negative": told(shape=[-3]),
    "a shape that is huge": told(shape=[2**40, 2**40]),
    "a shape of fractions": told(shape=[1.5]),
    "a shape of another size": told(shape=[7]),
    "negative rows": column("n_rows", pa.array([2, -4])),
    "rows that are fractions": column("n_rows", pa.array([2.0, 4.0])),
    "totals with NaN": column("totals", pa.array([2.0, float("nan")])),
    "negative totals": column("totals", pa.array([2, -4])),
    "infinite squares": column("squares", pa.array([2.0, float("inf")])),
    "more unseen rows than rows": column("unseen", pa.array([0, 99])),
    "negative counts": column("values", pa.FixedSizeListArray.from_arrays(pa.array([1, -1, 0, 2, 1, 1]), 3)),
    "values with NaN": column(
        "values", pa.FixedSizeListArray.from_arrays(pa.array([1.0, float("nan"), 0.0, 2.0, 1.0, 1.0]), 3)
    ),
    "values with infinity": column(
        "values", pa.FixedSizeListArray.from_arrays(pa.array([1.0, float("inf"), 0.0, 2.0, 1.0, 1.0]), 3)
    ),
    "a bag twice": column("id", pa.array(["x", "x"])),
    "a bag without a name": column("id", pa.array(["x", None])),
    "bags named by lists": column("id", pa.array([["x"], ["y"]])),
    "several bags without names": lambda table, about: (table.drop_columns(["id"]), about),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampered_sketches_are_refused_by_a_sentence(tmp_path, kind):
    rewritten(tmp_path / "x.parquet", TAMPERED[kind])
    with pytest.raises(ValueError, match=r"^path: .*x\.parquet [^\n]*\.$"):
        hq.BagSketch.load(tmp_path / "x.parquet")


def test_metadata_that_are_no_json_are_refused(tmp_path):
    for text in ("{", "[" * 10000, ""):
        parquet.write_table(pa.table({"a": [1]}).replace_schema_metadata({b"histnetq.sketch": text}), tmp_path / "x")
        with pytest.raises(ValueError, match="holds no sketches"):
            hq.BagSketch.load(tmp_path / "x")


def test_a_sketch_of_no_bags_is_kept():
    file, q = io.BytesIO(), hq.CC(random_state=0).fit(*labelled())
    names = ("ids", "n_rows", "totals", "squares", "unseen", "values", "moments")
    none = dataclasses.replace(sketched(), **{name: getattr(sketched(), name)[:0] for name in names})
    none.save(file)
    back = hq.BagSketch.load(file)
    assert len(back) == 0
    assert back.values.shape == none.values.shape
    assert q.predict(sketched() + back).shape == (2, 3)


SHAPES = {
    "more numbers": lambda values: np.repeat(values, 9, axis=-1),
    "fewer numbers": lambda values: values[..., :1],
    "a further axis": lambda values: values[..., None],
    "no numbers": lambda values: values[..., :0],
}


@pytest.mark.parametrize("change", SHAPES)
@pytest.mark.parametrize("name", ["CC", "PACC", "EMQ", "DyS-topsoe", "MS-max", "HDx", "HistNetQ-hard", "Ensemble"])
def test_states_of_another_shape_reach_no_compiled_code(name, change):
    q, file = learn(QUANTIFIERS[name]()), io.BytesIO()
    sketch = q.sketch(known_bags(3))
    values = np.ascontiguousarray(SHAPES[change](sketch.values))
    dataclasses.replace(sketch, values=values).save(file)
    altered = hq.BagSketch.load(file)
    wanted, got = sketch.values.shape[1:], values.shape[1:]
    message = f"sketch: expected states of shape {wanted} per bag, got {got}; sketch the rows again with this model."
    with pytest.raises(ValueError, match=exactly(message)):
        q.predict(altered)
    message = f"sketches: expected states of one shape, got {wanted} and {got}; sketch the rows again."
    with pytest.raises(ValueError, match=exactly(message)):
        _ = sketch + altered


def test_moments_of_another_number_are_refused():
    q = learn(QUANTIFIERS["CC"]()).calibrate(known_bags(30))
    sketch = q.sketch(known_bags(3))
    n = sketch.moments.shape[1]
    altered = dataclasses.replace(sketch, moments=sketch.moments[:, :-1])
    message = f"sketch: expected {n} moments per bag, got {n - 1}; sketch the rows again with this model."
    with pytest.raises(ValueError, match=exactly(message)):
        q.trust(altered)
