"""Bags on a cluster of this machine: Spark with two executors, and Dask; rows per second, memory, disk, and equal bits.

``python -m benchmarks scaling`` runs each measurement in a process of its own, and appends it to `scaling.csv`.
Measurements in this file are not repeated.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

import histnetq as hq
from benchmarks.memory import peak
from benchmarks.streaming import _COLUMNS as N_COLUMNS
from benchmarks.streaming import _NAMES as NAMES
from benchmarks.streaming import _fitted as fitted
from histnetq.sketches.tables import sketch_table

__all__ = ["scaling"]

RESULTS = Path(__file__).with_name("scaling.csv")
_ROWS = 250_000  # of a file
_COMPARED = 20_000  # bags whose estimates are compared with those of one process
_FIELDS = (
    "engine", "load", "workers", "killed", "seconds", "rows_per_second", "predict_rows_per_second", "driver_mb",
    "driver_heap_mb", "disk_mb", "bags_that_differ", "bags_compared",
)  # fmt: skip
_KEYS = _FIELDS[:4]


def _plan(millions: list[float], bags: list[float]) -> list[dict[str, Any]]:
    """List the measurements: engine, load, workers, and whether a worker is killed halfway."""
    found = []
    for load in [f"{n:g}M rows, 1000 bags" for n in millions] + [f"{n:g}M bags of 5 rows" for n in bags]:
        found += [{"engine": "Spark", "load": load, "workers": 2, "killed": killed} for killed in (0, 1)]
        found += [{"engine": "Dask", "load": load, "workers": n, "killed": 0} for n in (1, 2, 4)]
        found += [{"engine": "Dask", "load": load, "workers": 2, "killed": 1}]
    found += [
        {"engine": "EMNetQ stream", "load": f"{n:g}M rows, 1000 bags", "workers": 1, "killed": 0} for n in millions
    ]
    return found


@click.command()
@click.option("--rows", "millions", multiple=True, type=float, default=[10], help="Millions of rows in 1,000 bags.")
@click.option("--bags", multiple=True, type=float, default=[10], help="Millions of bags of 5 rows.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Directory of the tables.")
@click.option("--only", help="Engine.")
@click.option("--one", hidden=True, help="A single measurement as JSON.")
def scaling(millions: list[float], bags: list[float], work: Path, only: str | None, one: str | None) -> None:
    """Measure Spark and Dask on tables of many rows and of many bags, and EMNetQ on many rows."""
    if one is not None:
        print(json.dumps(_measure(json.loads(one), work)))
        return
    done = set()
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[key] for key in _KEYS) for row in csv.DictReader(file)}
    for task in _plan(millions, bags):
        if tuple(str(task[key]) for key in _KEYS) in done or only not in (None, task["engine"]):
            continue
        _write_table(task["load"], work)
        command = [sys.executable, "-m", "benchmarks", "scaling", "--work", str(work), "--one", json.dumps(task)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode:
            click.echo(f"failed: {task}")
            continue
        row = task | json.loads(ran.stdout.splitlines()[-1])
        is_new = not RESULTS.exists()
        with RESULTS.open("a", newline="") as file:
            writer = csv.DictWriter(file, _FIELDS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        click.echo(str(row))


def _write_table(load: str, work: Path) -> None:
    """Write the Parquet files of a load; rows of a bag are scattered over all files."""
    import pyarrow as pa
    from pyarrow import parquet

    folder = _folder(load, work)
    if (folder / "whole").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng, n = np.random.default_rng(0), float(load.partition("M")[0]) * 1e6
    bag = rng.integers(1000, size=int(n)) if "rows," in load else rng.permutation(np.repeat(np.arange(int(n)), 5))
    for i, some in enumerate(np.array_split(bag, max(1, len(bag) // _ROWS))):
        rows = rng.normal(size=(N_COLUMNS, len(some))).astype(np.float32)
        table = pa.table({"bag": some, **dict(zip(NAMES, rows, strict=True))})
        parquet.write_table(table, folder / f"part{i:03d}.parquet")
    model = fitted(N_COLUMNS, (64, 32), 16)
    model.feature_names_ = NAMES
    model.save(folder / "model")
    (folder / "whole").touch()


def _folder(load: str, work: Path) -> Path:
    return work / load.replace(" ", "-").replace(",", "")


def _measure(task: dict[str, Any], work: Path) -> dict[str, Any]:
    folder = _folder(task["load"], work)
    files = sorted(map(str, folder.glob("*.parquet")))
    model = hq.load(folder / "model")
    n_rows = _count(files)
    if task["engine"] == "EMNetQ stream":
        return _stream_emnetq(files, n_rows)
    run = {"Spark": _run_spark, "Dask": _run_dask}[task["engine"]]
    with TemporaryDirectory(dir=work) as scratch:
        found = run(model, files, task, Path(scratch))
    found["rows_per_second"] = round(n_rows / found["seconds"])
    few = files if "rows," in task["load"] else files[:1]
    began = time.perf_counter()
    model.predict(sketch_table(model, few, bag=["bag"]))
    found["predict_rows_per_second"] = round(_count(few) / (time.perf_counter() - began))
    found |= _compare(model, files, *found.pop("answer"))
    return found


def _count(files: list[str]) -> int:
    from pyarrow import parquet

    return sum(parquet.read_metadata(file).num_rows for file in files)


def _compare(model: Any, files: list[str], ids: np.ndarray, p: np.ndarray) -> dict[str, int]:
    """Count the bags whose estimates differ in any bit from those of `q.sketch` in this process."""
    from pyarrow import dataset

    few = dataset.dataset(files).to_table(filter=dataset.field("bag") < _COMPARED)
    rows = np.stack([few.column(name).to_numpy() for name in NAMES], axis=1)
    names, index = np.unique(few.column("bag").to_numpy(), return_inverse=True)
    bags = hq.Bags(rows, np.argsort(index, kind="stable"), np.append(0, np.cumsum(np.bincount(index))), ids=names)
    order = np.argsort(ids)
    mine = p[order][np.searchsorted(ids[order], names)]
    differ = (model.predict(model.sketch(bags)) != mine).any(1)
    return {"bags_that_differ": int(differ.sum()), "bags_compared": len(names)}


def _run_spark(model: Any, files: list[str], task: dict[str, Any], scratch: Path) -> dict[str, Any]:
    from pyarrow import dataset
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_DIRS=str(scratch / "shuffle"), OMP_NUM_THREADS="1")
    settings = {
        "spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000", "spark.sql.shuffle.partitions": "32",
        "spark.executor.memory": "1g",
    }  # fmt: skip
    builder = SparkSession.builder.master(f"local-cluster[{task['workers']},1,1536]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    executors = _descendants("CoarseGrainedExecutorBackend")
    with _watched(scratch / "shuffle") as disk, _killing(task["killed"] and executors[0], disk):
        began = time.perf_counter()
        hq.predict_spark(model, spark.read.parquet(*files), bag="bag").write.parquet(str(scratch / "estimates"))
        seconds = time.perf_counter() - began
    java: Any = spark._jvm
    pools = java.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    heap = sum(pool.getPeakUsage().getUsed() for pool in pools if str(pool.getType()) == "Heap memory")
    driver = _peak()
    spark.stop()
    table = dataset.dataset(scratch / "estimates").to_table()
    p = np.stack([table.column(str(name)).to_numpy() for name in model.classes_.tolist()], axis=1)
    about = {"driver_mb": driver, "driver_heap_mb": round(heap / 2**20), "disk_mb": round(disk["peak"] / 2**20)}
    return {"seconds": round(seconds, 1), **about, "answer": (table.column("bag").to_numpy(), p)}


def _run_dask(model: Any, files: list[str], task: dict[str, Any], scratch: Path) -> dict[str, Any]:
    from dask import config
    from distributed import Client, LocalCluster

    config.set(temporary_directory=str(scratch / "shuffle"))
    options = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": "1GiB"}
    with LocalCluster(n_workers=task["workers"], **options) as cluster, Client(cluster) as client:
        pid = next(iter(client.run(os.getpid).values()))
        with _watched(scratch / "shuffle") as disk, _killing(task["killed"] and pid, disk):
            began = time.perf_counter()
            answer = hq.predict_dask(model, files, bag="bag", client=client)
            seconds = time.perf_counter() - began
    about = {"driver_mb": _peak(), "driver_heap_mb": "", "disk_mb": round(disk["peak"] / 2**20)}
    return {"seconds": round(seconds, 1), **about, "answer": answer}


def _stream_emnetq(files: list[str], n_rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = np.arange(4000) % 5
    rows = rng.normal(size=(5, N_COLUMNS))[labels] + rng.normal(size=(4000, N_COLUMNS))
    q = hq.EMNetQ(training=hq.Training(epochs=1, progress=False), random_state=0).fit(rows.astype(np.float32), labels)
    q.feature_names_ = NAMES
    began = time.perf_counter()
    q.predict(sketch_table(q, files, bag=["bag"]))
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 1), "rows_per_second": round(n_rows / seconds), "driver_mb": _peak()}


def _peak() -> int:
    """Return the peak memory of this process in megabytes, without the peak of the process that started it."""
    return peak() >> 20


def _descendants(words: str) -> list[int]:
    """Return the ids of processes that this process or its children started, and whose command has these words."""
    parents, found = {}, []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if words in (place / "cmdline").read_text():
                found.append(int(place.name))
        except OSError:
            continue

    def is_mine(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in found if is_mine(pid)]


@contextmanager
def _watched(directory: Path) -> Iterator[dict[str, Any]]:
    """Measure the bytes of a directory every half second; `peak` is the largest number."""
    directory.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"peak": 0}
    with _repeating(lambda: about.update(peak=max(about["peak"], _bytes_of(directory))), 0.5):
        yield about


@contextmanager
def _killing(pid: int, disk: dict[str, Any]) -> Iterator[None]:
    """Kill a process as soon as the shuffle has begun to write, or after 20 seconds."""
    began, left = time.perf_counter(), [pid] if pid else []

    def look() -> None:
        if left and (disk["peak"] > 1 << 20 or time.perf_counter() - began > 20):
            os.kill(left.pop(), signal.SIGKILL)

    with _repeating(look, 0.2):
        yield
    if left:
        raise RuntimeError("the run ended before a process was killed")


@contextmanager
def _repeating(act: Callable[[], None], seconds: float) -> Iterator[None]:
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bytes_of(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total
