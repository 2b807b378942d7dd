"""Verdicts of `monitor` on real rows, after a change of the mix alone and after changes within the classes."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import histnetq as hq

__all__ = ["CHANGES", "DATA", "MIXES", "Watched", "run_streams", "summary"]

DATA = {"digits": (4, 40), "reviews": (1, 15), "reviews of the test part": (0, 4)}  # streams of each change, of mixes
MIXES = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)  # of the second class; in the reference it is _MIX
_MIX, _REFERENCE, _CHUNKS = 0.3, 26, 52
_SIZES = {"reviews": 500, "reviews of the test part": 500, "digits": 200}  # rows of a chunk
_FIRST = np.datetime64("2026-01-05")
_COUNTED = ("rows look different", "moved", "unchanged")
Floats = NDArray[np.float32]
Change = Callable[["Watched", Floats, NDArray, np.random.Generator], Floats]


class Watched:
    """Labelled rows in three parts: one to learn from, one to calibrate with, and one from which chunks are drawn.

    Parameters
    ----------
    name : {"reviews", "reviews of the test part", "digits"}
        Film reviews of two classes, or handwritten digits by parity, divided at random. The test part of the reviews
        was not: it is not exchangeable with the rest.
    data : Path
        Directory of the data sets.
    """

    def __init__(self, name: str, data: Path) -> None:
        X, y, part = _digits() if name == "digits" else _reviews(data, name == "reviews")
        self.name, self.size = name, _SIZES[name]
        self.columns = [f"x{j}" for j in range(X.shape[1])]
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=1000))
        self.model = hq.EMQ(classifier, rescaling="bcts", random_state=0)
        self.model.fit(pd.DataFrame(X[part == 0], columns=self.columns), y[part == 0])
        self.known = hq.Bags.from_labels(X[part == 1], y[part == 1])
        self.rows, self.by_class = X[part == 2], [np.flatnonzero(y[part == 2] == c) for c in (0, 1)]
        self.center, self.scale = X[part == 0].mean(0), X[part == 0].std(0) + 1e-6
        self.apart = X[part == 0][y[part == 0] == 1].mean(0) - X[part == 0][y[part == 0] == 0].mean(0)

    def watch(self, mixes: NDArray[np.float64], change: Change | None, seed: int) -> pd.DataFrame:
        """One row per chunk after the reference: its mix, its verdict, and the error of its estimate."""
        rng = np.random.default_rng(seed)
        self.model.calibrate(hq.APP(self.size // 2).draw(self.known, 100, random_state=seed))
        shares = np.concatenate([np.full(_REFERENCE, _MIX), mixes])
        second = rng.binomial(self.size, shares)
        index, y = zip(*(self._draw(n, rng) for n in second.tolist()), strict=True)
        rows, held = self.rows[np.concatenate(index)], _REFERENCE * self.size
        if change is not None:
            rows[held:] = change(self, rows[held:], np.concatenate(y)[held:], rng)
        week = np.repeat(np.arange(len(shares)), self.size)
        frame = pd.DataFrame(rows, columns=self.columns).assign(ts=_FIRST + week.astype("timedelta64[W]"))
        last = _FIRST + np.timedelta64(_REFERENCE * 7 - 1, "D")
        with warnings.catch_warnings():  # a pixel that is always empty here, and moved by the change
            warnings.filterwarnings("ignore", "chunks: column .* has one value in each chunk")
            found = hq.monitor(self.model, frame, time="ts", period="W", reference=f"{_FIRST}..{last}")
        found = found[(found["class"] == 1) & (found["period"] == "analysis")]
        error = np.abs(found["estimate"].to_numpy() - second[_REFERENCE:] / self.size)
        return pd.DataFrame({"mix": mixes, "verdict": found["verdict"].to_numpy(), "AE": error})

    def _draw(self, n_second: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of a chunk, none of them twice, and their classes."""
        counts = (self.size - n_second, n_second)
        index = [rng.choice(own, n, replace=False) for own, n in zip(self.by_class, counts, strict=True)]
        return np.concatenate(index), np.repeat([0, 1], counts)


def _reviews(data: Path, at_random: bool) -> tuple[Floats, NDArray, NDArray]:
    with np.load(data / "binary_imdb_w2v300.npz") as file:
        part = file["split"].copy()
        if at_random:
            part[part > 0] = np.random.default_rng(0).permutation(part[part > 0])
        return file["X"].astype(np.float32), file["y"], part


def _digits() -> tuple[Floats, NDArray, NDArray]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order].astype(np.float32), y[order] % 2, np.repeat([0, 1, 2], [600, 600, len(y) - 1200])


def _along_random(by: float) -> Change:
    """Move all rows along one random direction, by so many standard deviations in each feature on average."""

    def change(at: Watched, X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
        return X + (by * at.scale * np.random.default_rng(5).normal(size=X.shape[1])).astype(np.float32)

    return change


def _all_features(by: float) -> Change:
    """Let all features read too much, by so many standard deviations."""
    return lambda at, X, y, rng: X + (by * at.scale).astype(np.float32)


def _one_feature(by: float) -> Change:
    """Let the feature that tells most about the classes read too much, by so many standard deviations."""

    def change(at: Watched, X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
        out, worst = X.copy(), int(np.abs(at.apart / at.scale).argmax())
        out[:, worst] += by * at.scale[worst]
        return out

    return change


def _shrunk(by: float) -> Change:
    """Bring all rows nearer to the mean, as another contrast would."""
    return lambda at, X, y, rng: (at.center + by * (X - at.center)).astype(np.float32)


def _noise(by: float) -> Change:
    """Add noise of so many standard deviations."""
    return lambda at, X, y, rng: X + (by * at.scale * rng.normal(size=X.shape)).astype(np.float32)


def _apart(by: float) -> Change:
    """Move all rows from the mean of one class towards the mean of the second class."""
    return lambda at, X, y, rng: X + (by * at.apart).astype(np.float32)


def _relabelled(at: Watched, X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    """Give rows of the first class to three in ten of the second."""
    out, swapped = X.copy(), np.flatnonzero((y == 1) & (rng.random(len(y)) < 0.3))
    out[swapped] = X[rng.choice(np.flatnonzero(y == 0), len(swapped))]
    return out


CHANGES: dict[str, Change | None] = {
    "none": None,
    "all rows moved by 0.1 sd along a random direction": _along_random(0.1),
    "all rows moved by 0.3 sd along a random direction": _along_random(0.3),
    "all features read 0.1 sd too much": _all_features(0.1),
    "all features read 0.3 sd too much": _all_features(0.3),
    "the most telling feature reads 0.5 sd too much": _one_feature(0.5),
    "the most telling feature reads 2 sd too much": _one_feature(2.0),
    "contrast falls to 0.8": _shrunk(0.8),
    "noise of 0.5 sd": _noise(0.5),
    "noise of 1 sd": _noise(1.0),
    "all rows moved towards the second class by 0.1 of the distance": _apart(0.1),
    "all rows moved towards the second class by 0.3 of the distance": _apart(0.3),
    "rows of one class with the label of the other": _relabelled,
}


def run_streams(watched: Watched, path: Path, n_streams: int | None = None) -> None:
    """Monitor streams and append the results to a CSV file; streams in the file are skipped."""
    kept: set[tuple[str, str, str]] = set()
    if path.exists():
        with path.open(newline="") as file:
            kept = {(row["data"], row["change"], row["stream"]) for row in csv.DictReader(file)}
    n_changed, n_moved = DATA[watched.name] if n_streams is None else (n_streams, n_streams)
    for stream, (name, change, mixes) in _worlds(n_changed, n_moved):
        if (watched.name, name, str(stream)) in kept:
            continue
        found = watched.watch(mixes, change, stream)
        parts = found.groupby("mix")
        table = pd.crosstab(found["mix"], found["verdict"], normalize="index").reindex(columns=_COUNTED, fill_value=0.0)
        table = table.assign(AE=parts["AE"].mean(), chunks=parts.size()).reset_index()
        table = table.assign(data=watched.name, change=name, stream=stream)
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, mode="a", header=not path.exists(), index=False, lineterminator="\n")


def _worlds(n_changed: int, n_moved: int) -> Iterator[tuple[int, tuple[str, Change | None, NDArray[np.float64]]]]:
    """Streams, with their number: the name of what changes, the change within the classes, and the mixes."""
    for stream in range(n_moved):
        yield stream, ("the mix alone", None, np.repeat(MIXES, 6))
    for stream in range(n_changed):
        for name, change in CHANGES.items():
            yield stream, (name, change, np.full(_CHUNKS, _MIX))


def summary(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rates by mix where the mix alone changes, and by change where the mix stays."""
    found = pd.read_csv(path)
    mean: dict[str, Any] = {**dict.fromkeys((*_COUNTED, "AE"), "mean"), "chunks": "sum"}
    moved, changed = found[found["change"] == "the mix alone"], found[found["change"] != "the mix alone"]
    mixes = moved.groupby(["data", "mix"]).agg(mean).reset_index()
    changes = changed.groupby(["data", "change"], sort=False).agg(mean).reset_index()
    before = changes[changes["change"] == "none"].set_index("data")["AE"]
    changes.insert(2, "AE before", changes["data"].map(before))
    return mixes, changes.rename(columns={"AE": "AE after"})
