"""Time to load LeQua's text files: first by parsing them, later from the memory-mapped cache."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import in_turns
from histnetq.datasets import lequa2022

__all__ = ["run"]

_BAGS, _SIZE, _LABELLED, _FEATURES = 1000, 250, 5000, 300
_ROUNDS = 3


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, seconds or ratio, comparison, target)."""
    with tempfile.TemporaryDirectory() as directory:
        _write_t1a(Path(directory) / "0/T1A/public")
        for i in range(1, _ROUNDS):
            shutil.copytree(f"{directory}/0", f"{directory}/{i}")
        copies = iter([f"{directory}/{i}" for i in range(_ROUNDS) for _ in ("first", "later")])
        seen: set[str] = set()
        seconds = in_turns(dict.fromkeys(("first", "later"), lambda: _load(next(copies), seen)), _ROUNDS)
        if len(seen) > 1:
            raise AssertionError("the bags read and the bags kept differ")
    what = f"T1A, {_BAGS:,} bags of {_SIZE} × {_FEATURES} and {_LABELLED:,} labelled rows"
    yield f"{what}: seconds of the first load", seconds["first"], "≤", 60.0
    yield f"{what}: seconds of later loads", seconds["later"], "≤", 1.0
    yield f"{what}: later loads, times faster than the first", seconds["first"] / seconds["later"], "≥", 10.0


def _load(directory: str, seen: set[str]) -> float:
    began = time.perf_counter()
    data = lequa2022("T1A", directory)
    seconds = time.perf_counter() - began
    seen.add(data.bags.fingerprint())
    return seconds


def _write_t1a(folder: Path) -> None:
    """Random rows in the format and size of LeQua's T1A, without test bags."""
    rng = np.random.default_rng(0)
    (folder / "dev_samples").mkdir(parents=True)
    header = ",".join(map(str, range(_FEATURES)))
    labels = rng.integers(2, size=_LABELLED)
    rows = [f"{c},{row}" for c, row in zip(labels, _lines(rng, _LABELLED), strict=True)]
    (folder / "training_data.txt").write_text("\n".join([f"label,{header}", *rows, ""]))
    (folder / "label_map.txt").write_text("negative 0\npositive 1\n")
    for i in range(_BAGS):
        (folder / f"dev_samples/{i}.txt").write_text("\n".join([header, *_lines(rng, _SIZE), ""]))
    p = rng.random(_BAGS).round(4)
    prevalences = [f"{i},{1 - q:.4f},{q:.4f}" for i, q in enumerate(p)]
    (folder / "dev_prevalences.txt").write_text("\n".join(["id,0,1", *prevalences, ""]))


def _lines(rng: np.random.Generator, n_rows: int) -> list[str]:
    pattern = ",".join(["%.8g"] * _FEATURES)
    return [pattern % tuple(row) for row in rng.normal(size=(n_rows, _FEATURES)).tolist()]
