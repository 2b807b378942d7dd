"""Rows that are on disk stay there: no copy of them all is made to train, predict or join."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import histnetq as hq
from histnetq.bags import memmap as pools
from histnetq.training import supervision
from tests.conftest import QUICK, exactly, known_bags

N_ROWS, N_FEATURES = 20_000, 200
SIZE = N_ROWS * N_FEATURES * 4  # 16 MB, beside which indices and labels are small


@pytest.fixture
def small_chunks(monkeypatch):
    """Of 65,536 numbers, so that what is handled at a time is small beside the pool."""
    for module, name in ((supervision, "_CHUNK"), (pools, "_CHUNK")):
        monkeypatch.setattr(module, name, 1 << 16)
    monkeypatch.setattr("histnetq.bags.fingerprint._HASH_CHUNK", 1 << 16)
    monkeypatch.setattr("histnetq.training.batches._ENCODED_AT_ONCE", 1 << 16)


@pytest.fixture
def rows(tmp_path) -> np.memmap:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(N_ROWS, N_FEATURES)).astype(np.float32))
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def bags_on(rows, n_bags: int = 400) -> hq.Bags:
    """Bags that hold every row once."""
    offsets = np.arange(n_bags + 1) * (N_ROWS // n_bags)
    return hq.Bags(rows, offsets=offsets, prevalences=np.random.default_rng(1).dirichlet([1, 1], n_bags))


def peak_of(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def network(**options) -> hq.DeepSets:
    return hq.DeepSets("mean", encoder=(2,), head=(2,), training=QUICK, random_state=0, **options)


@pytest.mark.hard
def test_rows_on_disk_are_never_copied_as_a_whole(rows, small_chunks):
    def work():
        bags = bags_on(rows)
        bags.fingerprint()
        network().fit(bags).predict(bags)

    network().fit(known_bags())  # imports
    assert peak_of(work) < SIZE // 2


def test_selected_bags_share_the_rows(rows):
    bags = bags_on(rows)
    for part in (bags, bags[:3], bags.split(0.5, 0)[0], hq.Mixer().draw(bags, 5, 0), hq.Bags.concat([bags, bags])):
        assert part.rows is rows


def test_labelled_rows_on_disk(rows, small_chunks):
    y = np.arange(N_ROWS) % 2
    q = network(sampler=hq.APP(50))
    q.fit(np.array(rows[:200]), y[:200])  # imports and compiles what the measured fit needs
    assert peak_of(lambda: q.fit(rows, y)) < SIZE // 2
    assert q.predict(rows[:100]).shape == (2,)


def test_pools_on_disk_are_joined_on_disk(rows, small_chunks):
    bags = bags_on(rows)
    other = hq.Bags(np.ones((5, N_FEATURES)), prevalences=[[0.5, 0.5]])

    def work():
        joined = hq.Bags.concat([bags, other])
        assert isinstance(joined.rows, np.memmap)
        assert joined.rows.dtype == np.float64
        np.testing.assert_array_equal(joined[-1].gather(), other.rows)
        np.testing.assert_array_equal(joined[7].gather(), bags[7].gather())

    assert peak_of(work) < SIZE // 2


def test_the_same_result_as_from_memory(rows):
    bags, in_memory = bags_on(rows), bags_on(np.array(rows))
    found = [network().fit(b).predict(b) for b in (bags, in_memory)]
    np.testing.assert_array_equal(*found)
    assert bags.fingerprint() == in_memory.fingerprint()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_larger_than_memory(tmp_path, kind):
    known = known_bags()
    table = pd.DataFrame(known.gather(), columns=list("wxyz")).assign(tow=known.bag_of_entry)
    path = tmp_path / f"rows.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    in_memory, on_disk = hq.read_bags(path, bag="tow"), hq.read_bags(path, bag="tow", scratch=tmp_path)
    assert isinstance(on_disk.rows, np.memmap)
    np.testing.assert_array_equal(on_disk.rows, in_memory.rows)
    assert on_disk.fingerprint() == in_memory.fingerprint()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_scratch_that_is_none(tmp_path):
    table = pd.DataFrame({"tow": [1, 1], "x": [0.0, 1.0]})
    missing = tmp_path / "missing"
    message = (
        f"scratch: {missing} cannot be written to (No such file or directory); name a directory with room for the rows."
    )
    with pytest.raises(OSError, match=exactly(message)):
        hq.read_bags(table, bag="tow", scratch=missing)
