"""Learning from few bags with natural mixes: voting units of New Zealand, and scans of zooplankton.

Bags are learned from in random samples of growing size. Units of the election of 2020 are estimated from units of
earlier elections, and scans of plankton from scans of other tows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments import elections

__all__ = ["CHOSEN", "COUNTS", "DATA", "METHODS", "chosen_bags", "natural_bags", "summary"]

COUNTS = (10, 20, 40, 100, 400)
CHOSEN = (10, 15, 20, 30, 40, 60, 80, 120)  # numbers of bags that are chosen, or drawn at random
_TEST, _COVERAGE, _LABELLED = 1_000, 0.9, 300
_COMMON = 6  # classes of plankton; the others are one class
_FEWEST = 5  # labelled rows of a class, for cross-fitting; estimates of rarer classes are 0
_TOWS = 7  # tested tows of each draw
_PLANKTON = "zooplankton_marine_scotland.npz"
_QUICK = hq.Training(epochs=40, progress=False)
_NETWORKS: dict[str, Callable[[int], Any]] = {"EMNetQ": lambda seed: hq.EMNetQ(training=_QUICK, random_state=seed)}
_QUICK_METHODS: dict[str, Callable[[int], Any]] = {
    "training mean": lambda seed: hq.MLPE(),
    "LinearQ": lambda seed: hq.LinearQ(random_state=seed),
}
_LABELS = "EMQ on 300 labelled rows"
METHODS = [*_QUICK_METHODS, *_NETWORKS, _LABELS]


def _elections(folder: Path, seed: int) -> tuple[hq.Bags, hq.Bags]:
    """Units before 2020 in random order, and units of 2020."""
    found, rng = elections.read_elections(folder / elections.FILE), np.random.default_rng(seed)
    before, test = (bags[rng.permutation(len(bags))[:_TEST]] for bags in (found.before, found.test))
    return _with_own_rows(before), _with_own_rows(test)


def _with_own_rows(bags: hq.Bags) -> hq.Bags:
    """Give each bag rows of its own, since folds of a cross-validation may not share rows."""
    own = np.arange(len(bags.index))
    return hq.Bags(
        bags.rows[bags.index], own, bags.offsets, weights=bags.weights, prevalences=bags.prevalences,
        classes=bags.classes,
    )  # fmt: skip


def _plankton(folder: Path, seed: int) -> tuple[hq.Bags, hq.Bags]:
    """Scans of 20 tows in random order, and the scans of the other tows."""
    with np.load(folder / _PLANKTON, allow_pickle=False) as file:
        X, y, tow, scan, names = (file[name] for name in ("X", "y", "tow", "scan", "class_names"))
    kept = np.argsort(-np.bincount(y))[:_COMMON]
    place = np.full(len(names), _COMMON)
    place[kept] = np.arange(_COMMON)
    labels = np.append(names[kept], "others")[place[y]]
    bags = hq.Bags.from_labels(X, labels, groups=scan).with_known_prevalences()
    tow_of_bag = tow[bags.index[bags.offsets[:-1]]]
    rng = np.random.default_rng(seed)
    tested = np.isin(tow_of_bag, rng.permutation(np.unique(tow))[:_TOWS])
    return bags[rng.permutation(np.flatnonzero(~tested))], bags[tested]


DATA: dict[str, Callable[[Path, int], tuple[hq.Bags, hq.Bags]]] = {"elections": _elections, "zooplankton": _plankton}


def natural_bags(names: Sequence[str], methods: Sequence[str], draws: int, folder: Path) -> pd.DataFrame:
    """Return one row per data set, draw, number of bags and method: AE, and coverage and width of 90 % intervals."""
    rows = []
    for name in names:
        for draw in range(draws):
            every, test = DATA[name](folder, draw)
            for n in (count for count in COUNTS if count <= len(every)):
                for method, quantifier in _quantifiers(methods, draw, every.labels is not None):
                    rows.append({"data": name, "draw": draw, "bags": n, "method": method,
                                 **_measure(method, quantifier, every[:n], test, draw)})  # fmt: skip
    return pd.DataFrame(rows)


def _quantifiers(methods: Sequence[str], seed: int, labelled: bool) -> Iterator[tuple[str, Any]]:
    for method in methods:
        if method in _QUICK_METHODS or method in _NETWORKS:
            yield method, (_QUICK_METHODS | _NETWORKS)[method](seed)
        elif labelled:
            yield method, hq.EMQ("forest", random_state=seed)


def _measure(method: str, quantifier: Any, train: hq.Bags, test: hq.Bags, seed: int) -> dict[str, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == _LABELS:
            assert train.labels is not None
            rows = np.random.default_rng(seed).permutation(train.index)[:_LABELLED]
            often = np.bincount(train.labels[rows], minlength=len(train.classes)) >= _FEWEST  # type: ignore[arg-type]
            rows = rows[often[train.labels[rows]]]
            quantifier.fit(train.rows[rows], np.asarray(train.classes)[train.labels[rows]])
        else:
            quantifier.fit(train.replaced(labels=None))
        found = {"ae": -quantifier.score(test.replaced(labels=None)), "cpu_seconds": time.process_time() - began}
        if method in _QUICK_METHODS:
            quantifier.cross_calibrate(train.replaced(labels=None), random_state=seed)
            ends = quantifier.predict_interval(test.replaced(labels=None), _COVERAGE, method="conformal")
            found |= {"coverage": float(ends.contains(test.prevalences).mean()),
                      "width": float((ends.upper - ends.lower).mean())}  # fmt: skip
    return found


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return the means over the draws."""
    table = table.reindex(columns=[*dict.fromkeys([*table.columns, "coverage", "width"])])
    grouped = table.groupby(["data", "bags", "method"], sort=False)
    means = grouped.agg(
        draws=("draw", "size"), ae=("ae", "mean"), coverage=("coverage", "mean"), width=("width", "mean")
    )
    return means.reset_index()


def chosen_bags(draws: int, folder: Path) -> pd.DataFrame:
    """Return the AE of `LinearQ` from bags that `choose_bags` chose and from random ones, by number and draw."""
    rows = []
    for name, load in DATA.items():
        for draw in range(draws):
            every, test = (bags.replaced(labels=None) for bags in load(folder, draw))
            most = [n for n in CHOSEN if n <= len(every)]
            ways = {"random": np.arange(len(every)), "chosen": hq.choose_bags(every, max(most))}
            for n in most:
                for way, order in ways.items():
                    q = hq.LinearQ(random_state=draw).fit(every[np.sort(order[:n])])
                    rows.append({"data": name, "draw": draw, "bags": n, "way": way, "ae": -q.score(test)})
    return pd.DataFrame(rows)
