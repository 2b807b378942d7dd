"""Ten million rows in 40 files, bags scattered over all of them: in memory, streamed, and by Dask; time and memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import histnetq as hq
from benchmarks.timing import side_by_side
from histnetq.sketches.on_dask import sketch_dask
from histnetq.sketches.tables import sketch_table
from histnetq.training import encoding

__all__ = ["run"]

_FILES, _ROWS, _COLUMNS, _BAGS = 40, 250_000, 9, 2000
_NAMES = [f"x{j}" for j in range(_COLUMNS)]
_BATCH = 4096  # rows that go through the encoder at once where a stream is compared with plain calls of torch
# Name, columns, encoder, bins, rows, and the least part of the speed of plain calls of the encoder alone: counting in
# bins comes on top of it, which is much beside a small encoder and little beside a large one.
_ENCODERS = (
    ("the paper's encoder for T1A", 300, (1024, 1024, 300), 32, 20_000, 0.75),
    ("9 columns and an encoder of 64 and 32 units", _COLUMNS, (64, 32), 16, 1_000_000, 0.4),
)
_ALONE, _BOTH = "the encoder alone", "the encoder and the histogram layer"
_ESTIMATE = """
from benchmarks.memory import peak
from histnetq.workflows.estimating import estimate
assert len(estimate({model!r}, {table!r}, bag=["bag"])) == 1
print(peak() / 2**20)
"""


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, count or megabytes, comparison, target)."""
    with tempfile.TemporaryDirectory() as directory:
        model = _write_model(f"{directory}/model")
        files = [_write_rows(Path(directory) / f"part{i:02d}.parquet", _ROWS, _BAGS, i) for i in range(_FILES)]
        yield from _same_answers(model, files)
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)  # for each, as threads that share the rows multiply all
        yield from _throughput()
        yield _default_network()
        yield _compiled_layers()
        torch.set_num_threads(n_threads)
        yield from _binned()
        yield from _dask(model, files)
        yield _memory(directory)


def _same_answers(model: Any, files: list[str]) -> Iterator[tuple[str, float, str, float]]:
    began = time.perf_counter()
    bags = hq.read_bags(files, bag="bag", features=_NAMES)
    expected = dict(zip(bags.ids.tolist(), model.predict(bags), strict=True))
    in_memory, began = time.perf_counter() - began, time.perf_counter()
    del bags
    streamed = model.sketch_stream(_thousands(files))
    small, began = time.perf_counter() - began, time.perf_counter()
    whole = sketch_table(model, files, bag=["bag"])
    large = time.perf_counter() - began
    print(f"     {in_memory:.1f} s in memory, {small:.1f} s in chunks of 1,000 rows, {large:.1f} s by histnetq predict")
    what = (
        f"{len(expected):,} bags of {_FILES * _ROWS:,} rows in {_FILES} files: bags that differ from memory by a bit, "
    )
    yield what + "streamed in chunks of 1,000 rows", _differing(model, streamed, expected), "≤", 0
    yield what + "streamed as histnetq predict does", _differing(model, whole, expected), "≤", 0
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        whole.save(file.name, overwrite=True)
        size = Path(file.name).stat().st_size / len(whole)
    yield f"bytes per sketch of 32 features × 16 bins, {_FILES * _ROWS // _BAGS:,} rows, on disk", size, "≤", 2048


def _throughput() -> Iterator[tuple[str, float, str, float]]:
    for name, columns, sizes, n_bins, n_rows, target in _ENCODERS:
        what, over_both, over_alone = _speeds(name, _fitted(columns, sizes, n_bins), columns, n_rows)
        yield what.format(_BOTH), over_both, "≥", 0.75
        yield what.format(_ALONE), over_alone, "≥", target


def _default_network() -> tuple[str, float, str, float]:
    """Scores, log-odds and their histograms: log-odds by torch take longer than the layers before them."""
    rng = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    rows = (rng.normal(size=(10, _COLUMNS))[labels] + rng.normal(size=(1000, _COLUMNS))).astype(np.float32)
    training = hq.Training(epochs=1, bags_per_epoch=2, batch_bags=2, validation_bags=2, progress=False)
    model = hq.HistNetQ(encoder=(64,), training=training, random_state=0).fit(rows, labels)
    name = f"{_COLUMNS} columns, the default network with 64 units and 10 classes"
    what, over_both, _ = _speeds(name, model, _COLUMNS, 1_000_000)
    return what.format(_BOTH), over_both, "≥", 1.5


def _speeds(name: str, model: Any, columns: int, n_rows: int) -> tuple[str, float, float]:
    """What is measured, and the speed of streaming over those of the encoder with and without the histogram layer."""
    ids, rows = _rows(n_rows, columns)
    # Plain calls get the rows in the order of their bags, and a stream has to find it.
    grouped = torch.from_numpy(rows[np.argsort(ids, kind="stable")])
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(ids))]))
    seconds = side_by_side(
        {
            _ALONE: partial(_encode, model.network_, grouped),
            _BOTH: partial(_pool, model.network_, grouped, offsets),
            "stream": partial(_stream, model, ids, rows),
        },
        rounds=7,
    )
    speed = {what: n_rows / taken / 1e6 for what, taken in seconds.items()}
    print(f"     {name}, million rows per second: " + ", ".join(f"{k} {v:.3f}" for k, v in speed.items()))
    what = f"streaming in chunks of 1,000 rows, one thread, {name}: rows per second over those of "
    what += f"{{}} in batches of {_BATCH:,}, in memory"
    return what, speed["stream"] / speed[_BOTH], speed["stream"] / speed[_ALONE]


def _compiled_layers() -> tuple[str, float, str, float]:
    """The same stream, with the rows in blocks of 256 through the layers of torch as those of large encoders are."""
    name, columns, sizes, n_bins, n_rows, _ = _ENCODERS[1]
    model, (ids, rows) = _fitted(columns, sizes, n_bins), _rows(n_rows, columns)

    def in_blocks() -> None:
        with patch.object(encoding, "_MOST_WEIGHTS", 0):
            _stream(model, ids, rows)

    seconds = side_by_side({"compiled": partial(_stream, model, ids, rows), "blocks": in_blocks}, rounds=5)
    what = (
        f"streaming in chunks of 1,000 rows, one thread, {name}: times as fast as in blocks of 256 rows through torch"
    )
    return what, seconds["blocks"] / seconds["compiled"], "≥", 3


def _rows(n_rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, columns)).astype(np.float32)
    return rng.integers(_BAGS // 10, size=n_rows), rows


@torch.no_grad()
def _encode(network: Any, rows: torch.Tensor) -> None:
    for some in rows.split(_BATCH):
        network.encode(some)


@torch.no_grad()
def _pool(network: Any, rows: torch.Tensor, offsets: torch.Tensor) -> None:
    network.pooling(torch.cat([network.encode(some) for some in rows.split(_BATCH)]), offsets)


def _stream(model: Any, ids: np.ndarray, rows: np.ndarray) -> None:
    model.sketch_stream(((ids[i : i + 1000], rows[i : i + 1000]) for i in range(0, len(ids), 1000)), n_threads=1)


def _binned() -> Iterator[tuple[str, float, str, float]]:
    rng = np.random.default_rng(0)
    for n_classes in (2, 5, 20):
        centers, y = rng.normal(size=(n_classes, 6)) * 1.5, np.arange(8000) % n_classes
        X = rng.normal(size=(len(y), 6)) + centers[y]
        q = hq.EMQ(random_state=0).fit(X[:4000], y[:4000])
        bags = hq.APP(bag_size=1000).draw(hq.Bags.from_labels(X[4000:], y[4000:]), 200, random_state=0)
        exact, binned = q.predict(bags), q.predict(q.sketch(bags))
        assert bags.prevalences is not None
        errors = [np.abs(p - bags.prevalences).mean() for p in (exact, binned)]
        print(f"     EMQ of {n_classes} classes: AE {errors[0]:.5f} from rows, {errors[1]:.5f} from sketches; "
              f"{np.abs(exact - binned).mean():.6f} apart")  # fmt: skip
        what = f"EMQ from sketches, {n_classes} classes, 200 bags of 1,000 rows: absolute error over that from rows"
        yield what, errors[1] / errors[0], "≤", 1.2


def _dask(model: Any, files: list[str]) -> Iterator[tuple[str, float, str, float]]:
    from distributed import Client, LocalCluster

    local = sketch_table(model, files, bag=["bag"])
    assert local.ids is not None
    expected = dict(zip(local.ids.tolist(), model.predict(local), strict=True))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
    ):
        found = sketch_dask(model, files, bag="bag", client=client)
        contestants = {
            "Dask": lambda: sketch_dask(model, files, bag="bag", client=client),
            "two plain processes": lambda: sum(pool.map(_sketch_file, [model] * len(files), files)),
        }
        seconds = side_by_side(contestants, rounds=3)
    print("     " + ", ".join(f"{taken:.1f} s by {name}" for name, taken in seconds.items()))
    what = f"{_FILES * _ROWS:,} rows in {_FILES} files by Dask with 2 workers: "
    yield what + "bags that differ from one process in any bit", _differing(model, found, expected), "≤", 0
    yield what + "time over that of two plain processes", seconds["Dask"] / seconds["two plain processes"], "≤", 1.25


def _sketch_file(model: Any, file: str) -> hq.BagSketch:
    return sketch_table(model, file, bag=["bag"], n_threads=1)


def _memory(directory: str) -> tuple[str, float, str, float]:
    peaks = []
    for n_rows in (200_000, 20_000_000):
        table = _write_rows(Path(directory) / "one.parquet", n_rows, 1, 0)
        script = _ESTIMATE.format(model=f"{directory}/model", table=table)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        peaks.append(float(done.stdout))
    print(f"     at most {peaks[0]:.0f} MB for one bag of 200,000 rows, {peaks[1]:.0f} MB for one of 20,000,000")
    return "histnetq predict of one bag of 20,000,000 rows: megabytes over 200,000 rows", peaks[1] - peaks[0], "≤", 300


def _thousands(files: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from pyarrow import parquet

    for path in files:
        for batch in parquet.ParquetFile(path).iter_batches(1000):
            yield batch.column("bag").to_numpy(), np.stack([batch.column(name).to_numpy() for name in _NAMES], axis=1)


def _differing(model: Any, found: hq.BagSketch, expected: dict[Any, np.ndarray]) -> int:
    assert found.ids is not None
    p = dict(zip(found.ids.tolist(), model.predict(found), strict=True))
    assert p.keys() == expected.keys()
    return sum(not np.array_equal(p[bag], expected[bag]) for bag in p)


def _write_rows(path: Path, n_rows: int, n_bags: int, seed: int) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    rng, writer = np.random.default_rng(seed), None
    for start in range(0, n_rows, _ROWS):
        n = min(_ROWS, n_rows - start)
        columns = {name: rng.normal(size=n).astype(np.float32) for name in _NAMES}
        part = pa.table({"bag": rng.integers(n_bags, size=n), **columns})
        writer = writer or parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    return str(path)


def _write_model(path: str) -> Any:
    q = _fitted(_COLUMNS, (64, 32), 16)
    q.feature_names_ = _NAMES
    q.save(path)
    return q


def _fitted(columns: int, encoder: tuple[int, ...], n_bins: int) -> Any:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(600, columns)).astype(np.float32), rng.integers(3, size=600)
    bags = hq.Bags.from_labels(rows, labels, groups=np.arange(600) // 10)
    training = hq.Training(epochs=3, progress=False)
    return (
        hq.HistNetQ(n_bins=n_bins, encoder=encoder, head=(64,), training=training, random_state=0)
        .fit(bags)
        .calibrate(bags)
    )
