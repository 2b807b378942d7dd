"""A table of ten million rows in 2,000 bags, in no order: `histnetq predict` against reading the file and encoding."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import histnetq as hq
from benchmarks.timing import in_turns

__all__ = ["run"]

_ROWS, _COLUMNS, _BAGS = 10_000_000, 9, 2000
_READ = """
import time
from pyarrow import dataset
began = time.perf_counter()
n = sum(batch.num_rows for batch in dataset.dataset({table!r}, format="parquet").to_batches())
print(time.perf_counter() - began)
"""
_ENCODE = """
import time
import numpy as np
import histnetq as hq
from histnetq.training.batches import encode_rows
network = hq.load({model!r}).network_
rows = np.random.default_rng(0).normal(size=(1_000_000, {columns})).astype(np.float32)
bags = hq.Bags(rows)
encode_rows(network, bags, np.arange(256))
began = time.perf_counter()
encode_rows(network, bags, np.arange(len(rows)))
print((time.perf_counter() - began) * {rows} / len(rows))
"""
_PREDICT = """
import json, resource, time
from histnetq.workflows.estimating import estimate
began = time.perf_counter()
table = estimate({model!r}, {table!r}, bag=["bag"])
seconds = time.perf_counter() - began
assert len(table) == {bags}
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio or megabytes, comparison, target)."""
    with tempfile.TemporaryDirectory() as directory:
        places = {"table": f"{directory}/rows.parquet", "model": f"{directory}/model"}
        _write_table(Path(places["table"]))
        _write_model(places["model"])
        values = {**places, "columns": _COLUMNS, "rows": _ROWS, "bags": _BAGS}
        peaks: list[float] = []
        seconds = in_turns(
            {
                "read": lambda: float(_python(_READ, values)),
                "encode": lambda: float(_python(_ENCODE, values)),
                "predict": lambda: _predict(values, peaks),
            },
            rounds=3,
        )
    what = f"predict of {_ROWS:,} rows × {_COLUMNS} columns in {_BAGS:,} bags, in no order"
    print("     " + ", ".join(f"{taken:.1f} s to {act}" for act, taken in seconds.items()))
    ratio = seconds["predict"] / (seconds["read"] + seconds["encode"])
    yield f"{what}: time over reading plus encoding", ratio, "≤", 2.0
    yield f"{what}: megabytes at most", max(peaks), "≤", 1500.0


def _predict(values: dict[str, object], peaks: list[float]) -> float:
    seconds, megabytes = json.loads(_python(_PREDICT, values))
    peaks.append(megabytes)
    return float(seconds)


def _python(script: str, values: dict[str, object]) -> str:
    done = subprocess.run([sys.executable, "-c", script.format(**values)], capture_output=True, text=True, check=True)
    return done.stdout


def _write_table(path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rng, schema = np.random.default_rng(0), None
    names = [f"x{j}" for j in range(_COLUMNS)]
    writer = None
    for _ in range(10):
        n = _ROWS // 10
        columns = {name: rng.normal(size=n).astype(np.float32) for name in names}
        part = pa.table({"bag": rng.integers(_BAGS, size=n), **columns})
        if writer is None:
            schema = part.schema
            writer = parquet.ParquetWriter(path, schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()


def _write_model(path: str) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(600, _COLUMNS)).astype(np.float32), rng.integers(3, size=600)
    bags = hq.Bags.from_labels(rows, labels, groups=np.arange(600) // 10, feature_names=None)
    q = hq.HistNetQ(training=hq.Training(epochs=1, progress=False), random_state=0).fit(bags).calibrate(bags)
    q.feature_names_ = [f"x{j}" for j in range(_COLUMNS)]
    q.save(path)
