"""Frequency of doubted bags, under changes of the proportions alone and under changes within the classes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from histnetq.sketches.moments import total_weights
from histnetq.uncertainty.trust import Trust

__all__ = ["MIXES", "SHIFTS", "run_mixes", "run_shifts"]

MIXES = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)
_SHARE, _SIZE = 0.3, 1000  # of the second class in shifted bags, and their rows
_CLASSES = {"10 features": 2, "50 features": 2, "10 features, heavy tails": 2, "5 classes": 5, "digits": 10}
_FEATURES = {"50 features": 50, "digits": 64}
Floats = NDArray[np.float64]
Shift = Callable[[Floats, NDArray, np.random.Generator], Floats]


class World:
    """Labelled rows: normal or heavy-tailed classes of different spread whose features depend on each other, or digits.

    Parameters
    ----------
    name : str
    seed : int
        Of the split of the digits into rows to learn from and rows to test.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.n_classes = name, _CLASSES[name]
        self.n_features = _FEATURES.get(name, 10)
        if name == "digits":
            from sklearn.datasets import load_digits

            X, y = load_digits(return_X_y=True)
            order = np.random.default_rng(seed).permutation(len(y))
            halves = [hq.Bags.from_labels(X[half], y[half]) for half in np.array_split(order, 2)]
            self.known, self.test = halves

    def rows(self, y: NDArray, rng: np.random.Generator) -> Floats:
        """New rows of these classes (n_rows, n_features)."""
        d = self.n_features
        noise = rng.normal(size=(len(y), d)) if "heavy" not in self.name else rng.standard_t(3, size=(len(y), d))
        common = rng.normal(size=(len(y), 1))
        center = np.random.default_rng(0).normal(size=(self.n_classes, d)) * (3 / d) ** 0.5
        return (noise + common) * np.linspace(0.8, 1.4, self.n_classes)[y][:, None] + center[y]

    def bags(
        self, mixes: Floats, sizes: NDArray, rng: np.random.Generator, shift: Shift | None = None, test: bool = True
    ) -> hq.Bags:
        """Bags whose classes are drawn by these mixes; a digit is at most once in a bag."""
        if self.name == "digits":
            return _taken(self.test if test else self.known, mixes, sizes, rng)
        ends = np.repeat(np.cumsum(mixes, 1), sizes, axis=0)[:, :-1]
        y = (rng.random(len(ends))[:, None] > ends).sum(1)
        X = self.rows(y, rng)
        X = X if shift is None else shift(X, y, rng)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        bags = hq.Bags(X, offsets=offsets, labels=y, classes=list(range(self.n_classes)))
        return bags.with_known_prevalences()

    def calibrated(self, n_bags: int, labels: bool, seed: int) -> hq.Bags:
        """Calibration bags of all mixes and of 50 to 500 rows; without labels, proportions are all that is known."""
        rng = np.random.default_rng(seed)
        mixes = rng.dirichlet(np.ones(self.n_classes), n_bags)
        most = 100 if self.name == "digits" else 500
        bags = self.bags(mixes, rng.integers(50, most, n_bags), rng, test=False)
        if labels:
            return bags
        known: dict[str, Any] = {"prevalences": bags.prevalences, "classes": bags.classes}
        return hq.Bags(bags.rows, index=bags.index, offsets=bags.offsets, **known)


def _taken(pool: hq.Bags, mixes: Floats, sizes: NDArray, rng: np.random.Generator) -> hq.Bags:
    """Rows of a pool, without replacement in a bag; fewer than asked for where a class has no more."""
    assert pool.labels is not None
    by_class = [np.flatnonzero(pool.labels == c) for c in range(mixes.shape[1])]
    parts = [
        np.concatenate([rng.permutation(own)[:k] for own, k in zip(by_class, rng.multinomial(n, p), strict=True)])
        for n, p in zip(sizes, mixes, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    bags = hq.Bags(pool.rows, index=np.concatenate(parts), offsets=offsets, labels=pool.labels, classes=pool.classes)
    return bags.with_known_prevalences()


def _moved(by: float) -> Shift:
    """Move all rows along one direction, which is partly one that the classifier uses."""
    return lambda X, y, rng: X + by * np.random.default_rng(5).normal(size=X.shape[1])


def _drifted(by: float) -> Shift:
    """Move all features alike, which is how they vary together within the classes."""
    return lambda X, y, rng: X + by


def _broken(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    """Deal out the values of each feature anew among the rows of a class."""
    out = X.copy()
    for c in np.unique(y):
        out[y == c] = rng.permuted(X[y == c], axis=0)
    return out


def _bad_feature(by: float) -> Shift:
    """Let the feature that tells most about the classes read too much."""

    def shift(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
        worst = np.abs(X[y == 1].mean(0) - X[y == 0].mean(0)).argmax()
        return X + by * (np.arange(X.shape[1]) == worst)

    return shift


def _noise(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    return X + rng.normal(size=X.shape)


def _new_class(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    new = rng.random(len(X)) < 0.1
    return np.where(new[:, None], rng.normal(size=X.shape) + np.where(np.arange(X.shape[1]) % 2, 1.5, -1.5), X)


def _selected(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    """Draw the rows of each class again, those with a large first feature more often."""
    out = X.copy()
    for c in np.unique(y):
        own = np.flatnonzero(y == c)
        odds = np.exp(0.6 * X[own, 0])
        out[own] = X[rng.choice(own, len(own), p=odds / odds.sum())]
    return out


def _as_if_mixed(X: Floats, y: NDArray, rng: np.random.Generator) -> Floats:
    """Give rows of the first class to a tenth of the second one: the labels change and the rows do not."""
    swapped = np.flatnonzero((y == 1) & (rng.random(len(y)) < 0.3))
    own = np.flatnonzero(y == 0)
    X[swapped] = X[rng.choice(own, len(swapped))]
    return X


SHIFTS: dict[str, tuple[str, Shift | None]] = {
    "none": ("10 features", None),
    "one nuisance direction: all features drift by 0.7": ("10 features", _drifted(0.7)),
    "one nuisance direction: all features drift by 0.3": ("10 features", _drifted(0.3)),
    "all rows moved by 0.2 times a random direction": ("10 features", _moved(0.2)),
    "all rows moved by 0.1 times a random direction": ("10 features", _moved(0.1)),
    "all rows moved by 0.05 times a random direction": ("10 features", _moved(0.05)),
    "broken dependence": ("10 features", _broken),
    "added noise": ("10 features", _noise),
    "a new class, 10 % of the rows": ("10 features", _new_class),
    "selection by a feature within the classes": ("10 features", _selected),
    "rows of one class with the label of the other": ("10 features", _as_if_mixed),
    "one bad feature of 50: it reads 2 too much": ("50 features", _bad_feature(2.0)),
    "one bad feature of 50: it reads 0.5 too much": ("50 features", _bad_feature(0.5)),
}


def run_shifts(n_draws: int, n_bags: int) -> pd.DataFrame:
    """Mean AE before and after each shift, and how often trust doubts the bags after it, one row per method."""
    found = []
    for world_name in ("10 features", "50 features"):
        for method, labels, seed, q, world in _models(world_name, n_draws):
            for name in (name for name, (own, _) in SHIFTS.items() if own == world_name):
                mixes, sizes = np.tile([1 - _SHARE, _SHARE], (n_bags, 1)), np.full(n_bags, _SIZE)
                before, after = (
                    world.bags(mixes, sizes, np.random.default_rng(1000 + seed), change)
                    for change in (None, SHIFTS[name][1])
                )
                errors = [hq.evaluate(q, bags)["ae"].mean() for bags in (before, after)]
                row = {"shift": name, "method": method, "labels": labels, "AE before": errors[0]}
                found.append({**row, "AE after": errors[1], "doubted": _unusual(q.trust(after))})
    return pd.DataFrame(found).groupby(["shift", "method", "labels"], sort=False).mean().reset_index()


def run_mixes(n_draws: int, n_bags: int, sizes: tuple[int, ...] = (50, 200, 2000)) -> pd.DataFrame:
    """How often trust doubts bags of known classes, by mix, size and calibration.

    The digits are split five times as often, as bags of one split share what its halves differ by.
    """
    found = []
    for name, n_classes in _CLASSES.items():
        digits = name == "digits"
        for labels, seed in itertools.product((True, False), range(5 * n_draws if digits else n_draws)):
            world, rng = World(name, seed), np.random.default_rng(2000 + seed)
            trust = Trust.of(world.calibrated(100, labels, 500 + seed))
            moments = trust.moments
            assert moments is not None
            for size in (50,) if digits else sizes:
                for mix, p in _mixes(n_classes, n_bags, rng).items():
                    bags = world.bags(p, np.full(n_bags, size), rng)
                    doubted = _unusual(trust.judge(moments.sums(bags), total_weights(bags), bags.sizes))
                    found.append({"data": name, "labels": labels, "n": size, "mix": mix, "doubted": doubted})
    return pd.DataFrame(found).groupby(["data", "labels", "n", "mix"], sort=False).mean().reset_index()


def _mixes(n_classes: int, n_bags: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Mixes of as many bags, by name: of two classes those of `MIXES`; of more classes pure, lopsided and even ones."""
    if n_classes == 2:
        return {f"{p:g}": np.tile([1 - p, p], (n_bags, 1)) for p in MIXES}
    pure = {f"all of class {c}": np.tile(np.eye(n_classes)[c], (n_bags, 1)) for c in range(n_classes)}
    order = rng.permuted(np.tile(np.arange(n_classes), (n_bags, 1)), axis=1)
    return {
        **pure,
        "halves of two classes": np.where(order < 2, 0.5, 0),
        "0.9 of one class": np.where(order < 1, 0.9, 0.1 / (n_classes - 1)),
        "as much of each class": np.full((n_bags, n_classes), 1 / n_classes),
        "uniformly drawn": rng.dirichlet(np.ones(n_classes), n_bags),
    }


def _models(name: str, n_draws: int) -> Iterator[tuple[Any, ...]]:
    for seed in range(n_draws):
        world, rng = World(name, seed), np.random.default_rng(seed)
        y = rng.integers(world.n_classes, size=1000)
        learned = hq.Bags.from_labels(world.rows(y, rng), y)
        for method in ("PACC", "EMQ"):
            q = getattr(hq, method)(random_state=0).fit(learned)
            for labels in (True, False):
                yield method, labels, seed, q.calibrate(world.calibrated(100, labels, 500 + seed)), world


def _unusual(told: pd.DataFrame) -> float:
    return float(told["trust"].str.startswith("unusual").mean())
