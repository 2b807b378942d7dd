"""Packed sketches and rows that a shuffle brings together: whole bags, a few at a time, with the sums of memory."""

from __future__ import annotations

import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import histnetq as hq
from histnetq.sketches.shuffled import PACKED, Blocks, Shuffle
from histnetq.tables.table_files import Table
from tests.conftest import QUANTIFIERS, exactly, labelled

_FEATURES = ["a", "b", "c", "d"]


def table(n: int = 3000) -> pa.Table:
    X, _ = labelled(n)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(X.astype(np.float32), columns=_FEATURES)
    rows = rows.assign(site=rng.choice(["n", "s"], n), day=rng.integers(0, 40, n), w=rng.integers(1, 3, n))
    return pa.Table.from_pandas(rows, preserve_index=False)


def fitted(name: str) -> hq.Quantifier:
    X, y = labelled(600, seed=1)
    return QUANTIFIERS[name]().fit(pd.DataFrame(X, columns=_FEATURES), y)


def merged(way: Shuffle, rows: pa.Table, pack: bool, at_once: int) -> dict[tuple, np.ndarray]:
    """Prevalences by bag, from blocks of 700 rows that are sorted by bag after a shuffle."""
    blocks = [rows.slice(i, 700) for i in range(0, len(rows), 700)]
    records = pa.concat_tables([way.pack(block) if pack else block for block in blocks])
    records = records.sort_by([(key, "ascending") for key in way.keys])
    found = {}
    for names, sketch in way.merge(records.slice(i, at_once) for i in range(0, len(records), at_once)):
        keys = zip(*(names.column(key).to_pylist() for key in way.keys), strict=True)
        found |= dict(zip(keys, way.model.predict(sketch), strict=True))
    return found


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("weight", [None, "w"])
@pytest.mark.parametrize("name", ["HistNetQ-hard", "EMQ", "PCC", "DeepSets-max"])
def test_bags_are_those_in_memory(monkeypatch, name, weight, pack):
    monkeypatch.setattr("histnetq.sketches.shuffled._FEWEST_RECORDS", 50)  # a bag goes on in the next block
    monkeypatch.setattr("histnetq.sketches.shuffled._NUMBERS", 1)
    model, rows = fitted(name), table()
    found = merged(Shuffle(model, ("site", "day"), weight), rows, pack, 33)
    bags = hq.read_bags(rows, bag=["site", "day"], features=_FEATURES, weight=weight)
    expected = dict(zip(bags.ids.tolist(), model.predict(model.sketch(bags)), strict=True))
    assert {f"{site}/{day}" for site, day in found} == expected.keys()
    for (site, day), p in found.items():
        np.testing.assert_allclose(p, expected[f"{site}/{day}"], atol=0 if name != "PCC" and weight is None else 1e-9)


def test_the_smaller_of_rows_and_sketches_is_chosen():
    """A sketch of one row has as many counts as features, and a sketch of many rows is smaller than them."""
    way = Shuffle(fitted("HistNetQ-hard"), ("site",))
    assert [way.prefers_rows(table(), n) for n in (1, 1000)] == [True, False]


@pytest.mark.parametrize("pack", [True, False])
def test_bags_without_weight_are_refused_and_dropped_rows_left_out(pack):
    model, rows = fitted("CC"), table(200).to_pandas()
    rows.loc[rows["site"] == "s", "a"] = np.nan
    dropping = Shuffle(model, ("site",), missing="drop", name="rows")
    with pytest.warns(UserWarning, match="dropped"):
        found = merged(dropping, pa.Table.from_pandas(rows), pack, 50)
    assert [*found] == [("n",)]
    rows.loc[rows["site"] == "n", "w"] = 0
    message = "rows: the rows of bag 'n' all have weight 0, expected at least one that has more; leave out the bag."
    with pytest.warns(UserWarning, match="dropped"), pytest.raises(ValueError, match=exactly(message)):
        merged(Shuffle(model, ("site",), "w", missing="drop", name="rows"), pa.Table.from_pandas(rows), pack, 50)


def test_rows_without_a_bag_are_refused():
    rows = pa.table({**{name: [1.0, 2.0] for name in _FEATURES}, "site": [1.0, np.nan]})
    message = "rows: row 2 has nothing in column 'site'; fill it in or drop the row."
    with pytest.raises(ValueError, match=exactly(message)):
        Shuffle(fitted("CC"), ("site",), name="rows").pack(rows)


def test_packed_sketches_are_small():
    """Zeros take no space: a bag of few rows has few counts above 0 among the cells."""
    way, rows = Shuffle(fitted("EMQ"), ("day",)), table(400)
    packed = way.pack(rows)
    n_cells = way.model.sketch([[0.0] * 4]).values.size
    assert packed.column_names == ["day", PACKED]
    assert np.mean([len(data) for data in packed.column(PACKED).to_pylist()]) < n_cells


def test_blocks_have_the_same_number_of_records():
    blocks = Blocks([table(n) for n in (5, 1, 40)], 20)
    assert [len(block) for block in blocks] == [20, 20, 6]


def tampered(record: bytes) -> dict[str, bytes]:
    """Packed sketches with a head or a body that no model writes; the first field of a head is the body's size."""
    size, rest = struct.unpack("<I", record[:4])[0], record[4:]
    bomb = pa.compress(bytes(1 << 20), codec="zstd", asbytes=True)
    start = 11 + 4 * record[6]
    return {
        "short head": record[:3],
        "short body": record[:-4],
        "damaged body": record[:-6] + b"\0\0" + record[-4:],
        "bomb": record[:start] + bomb,
        "claimed size": struct.pack("<I", 2**32 - 1) + rest,
        "small size": struct.pack("<I", size - 8) + rest,
        "objects": record[:5] + b"O" + record[6:],
        "texts": record[:4] + b"U" + record[5:],
        "dimensions": record[:6] + b"\xff" + record[7:],
        "huge shape": record[:11] + b"\xff" * 4 + record[15:],
        "huge shape and size": struct.pack("<I", 8 * 10**8 + 32) + record[4:11] + struct.pack("<I", 10**8) + bomb,
        "moments": record[:7] + b"\xff" * 4 + record[11:],
    }


def test_tampered_records_are_refused():
    """Nothing larger than the sketch of the model is unpacked, and every error is one sentence."""
    way = Shuffle(fitted("PCC"), ("site",))
    for data in tampered(way.pack(table(50)).column(PACKED)[0].as_py()).values():
        block = pa.table({"site": ["n"], PACKED: pa.array([data], pa.binary())})
        with pytest.raises(ValueError, match=r"^source: has a packed sketch that is damaged or of another model \("):
            list(way.merge([block]))


@pytest.mark.parametrize("name", [PACKED, "histnetq_bag"])
def test_columns_with_the_names_of_records(name):
    rows = table(50)
    message = exactly(f"source: column '{name}' has a name that is in use; rename it.")
    key = rows.append_column(name, rows.column("site"))
    model = hq.PCC().fit(pd.DataFrame({name: [0.0, 1.0] * 10}), ["a", "b"] * 10)
    feature = pa.table({"site": ["n", "s"], name: [0.0, 1.0]})
    for way, source in (Shuffle(fitted("PCC"), (name,)), key), (Shuffle(model, ("site",)), feature):
        with pytest.raises(ValueError, match=message):
            way.columns(Table("source", source.schema, iter))
