"""Ten million rows in 50 weekly files: monitor beside predict, and a second run with one new week beside a first."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import histnetq as hq
from benchmarks.memory import peak
from benchmarks.timing import in_turns, seconds_of
from histnetq.quantifiers.loading import load
from histnetq.workflows.estimating import estimate
from histnetq.workflows.monitoring.chunk_reading import How
from histnetq.workflows.monitoring.monitor import judge_chunks
from histnetq.workflows.monitoring.state import MonitorState

__all__ = ["run"]

_WEEKS, _ROWS, _COLUMNS, _ROUNDS = 50, 200_000, 9, 3
_NAMES = [f"x{j}" for j in range(_COLUMNS)]
_FIRST, _REFERENCE = np.datetime64("2026-01-05", "us"), "2026-01..2026-06"


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    with tempfile.TemporaryDirectory() as directory:
        model = _model(f"{directory}/model")
        files = [_write_week(Path(directory) / f"week{i:02d}.parquet", i) for i in range(_WEEKS)]
        seconds, processor = _times({name: partial(read, directory) for name, read in _READERS.items()})
        memory = {name: _peak_of(name, directory) / 2**20 for name in _READERS}
        for name in _READERS:
            print(f"     {name}: {seconds[name]:.2f} s, {processor[name]:.2f} s of processor, {memory[name]:.0f} MB")
        what = f"{_WEEKS * _ROWS:,} rows in {_WEEKS} weekly chunks, PACC: "
        yield what + "time of monitor over that of predict", seconds["monitor"] / seconds["predict"], "≤", 1.2
        ratio = processor["monitor"] / processor["predict"]
        yield what + "processor time of monitor over that of predict", ratio, "≤", 1.2
        yield what + "peak memory of monitor over that of predict", memory["monitor"] / memory["predict"], "≤", 1.2
        state = Path(directory) / "state.parquet"
        first = seconds_of(partial(_continue, model, files[:-1], state))
        second = seconds_of(partial(_continue, model, files, state))
        print(f"     {first:.1f} s for {_WEEKS - 1} weeks with a state, {second:.1f} s for one more")
        yield what + "time of a second run with one new week over that of the first", second / first, "≤", 0.25


def _files(directory: str) -> list[str]:
    return sorted(map(str, Path(directory).glob("*.parquet")))


def _predict(directory: str) -> None:
    estimate(f"{directory}/model", _files(directory), bag=["week"])


def _monitor(directory: str) -> None:
    hq.monitor(load(f"{directory}/model"), _files(directory), time="ts", period="W", reference=_REFERENCE)


_READERS = {"predict": _predict, "monitor": _monitor}


def _times(contestants: Mapping[str, Callable[[], object]]) -> tuple[dict[str, float], dict[str, float]]:
    """Median seconds, and median seconds of the processor, of functions that are called in turns."""
    used: dict[str, list[float]] = {name: [] for name in contestants}

    def measure(name: str) -> float:
        began = time.process_time()
        seconds = seconds_of(contestants[name])
        used[name].append(time.process_time() - began)
        return seconds

    for name in contestants:  # compiles, starts threads
        contestants[name]()
    seconds = in_turns({name: partial(measure, name) for name in contestants}, _ROUNDS)
    return seconds, {name: float(np.median(values)) for name, values in used.items()}


def _peak_of(name: str, directory: str) -> int:
    """Maximum resident set of a fresh process, in bytes."""
    command = [sys.executable, "-m", "benchmarks.monitoring", name, directory]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _continue(model: Any, files: list[str], place: Path) -> None:
    state = MonitorState.load(place, How("ts", "W"), model)
    bags, chunks = state.add(model, files)
    judge_chunks(model, bags, chunks, (), _REFERENCE, false_alarms=0.05, coverage=0.9)
    state.save(place)


def _write_week(path: Path, week: int) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(week)
    y = rng.random(_ROWS) < 0.4
    columns = {name: (rng.normal(size=_ROWS) + y).astype(np.float32) for name in _NAMES}
    microseconds = np.sort(rng.integers(7 * 86_400_000_000, size=_ROWS)).astype("timedelta64[us]")
    times = _FIRST + np.timedelta64(7 * week, "D") + microseconds
    parquet.write_table(pa.table({"week": np.full(_ROWS, week), "ts": times, **columns}), path)
    return str(path)


def _model(path: str) -> Any:
    rng = np.random.default_rng(0)
    y = rng.random(5000) < 0.5
    rows = (rng.normal(size=(5000, _COLUMNS)) + y[:, None]).astype(np.float32)
    model = hq.PACC(random_state=0).fit(rows[:2500], y[:2500])
    model.calibrate(hq.APP(200).draw(hq.Bags.from_labels(rows[2500:], y[2500:]), 60, random_state=0))
    model.feature_names_ = _NAMES
    model.save(path)
    return model


if __name__ == "__main__":
    _READERS[sys.argv[1]](sys.argv[2])
    print(peak())
