"""Classical methods against QuaPy on the same posteriors: seconds, agreement, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

import histnetq as hq
from benchmarks.timing import in_turns, seconds_of

__all__ = ["run"]

Row = tuple[str, float, str, float]
_BAGS, _SIZE, _TRAIN = 5_000, 500, 5_000
_METHODS = ("CC", "PCC", "ACC", "PACC", "EMQ", "HDy", "DyS", "KDEy")
# Times faster than QuaPy, at 10 classes (HDy: at 2).
_FASTER = {"PACC": 100.0, "EMQ": 10.0, "HDy": 100.0, "KDEy": 4.0}
# Largest difference from QuaPy: of the definition, of its solver, of its grid, of its search, of its optimiser.
_APART = {"CC": 0.0, "PCC": 1e-14, "ACC": 1e-3, "PACC": 1e-3, "EMQ": 1e-8, "HDy": 1 / 99, "DyS": 1e-5, "KDEy": 2e-3}
_SECONDS = 7.0  # given to QuaPy in each of three turns; it does as many bags as it can, and the rest is extrapolated


def run() -> Iterator[Row]:
    """Yield (what, ratio, comparison, target)."""
    for n_classes in (10, 2, 28):
        equal = np.arange(_BAGS + 1) * _SIZE
        yield from _against_quapy(f"{_BAGS:,} bags of {_SIZE}", n_classes, equal)
    sizes = np.exp(np.random.default_rng(1).uniform(0, np.log(5_000), 200)).astype(int)
    for n_classes in (2, 10):
        yield from _against_quapy("200 bags of 1 to 5,000", n_classes, np.concatenate([[0, 1], 1 + np.cumsum(sizes)]))
    for name in _METHODS:
        command = [sys.executable, "-m", "benchmarks.classical", name]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        yield f"{name} on {_BAGS:,} bags of {_SIZE}, 10 classes: GiB above the posteriors", grown, "≤", 1.0


def draw_posteriors(n: int, n_classes: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Posteriors of labelled rows by a classifier that is right more often than not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    scores = rng.normal(size=(n, n_classes))
    scores[np.arange(n), y] += 2.0
    return softmax(scores, axis=1), y


def _against_quapy(what: str, n_classes: int, offsets: NDArray[np.int64]) -> Iterator[Row]:
    P, _ = draw_posteriors(int(offsets[-1]), n_classes, seed=1)
    V, y = draw_posteriors(_TRAIN, n_classes, seed=2)
    bags = hq.Bags(P, offsets=offsets)
    for name in _METHODS:
        if name in ("HDy", "DyS") and n_classes > 2:
            continue
        ours = _ours(name).fit_posteriors(V, y)
        ours.predict_posteriors(bags[:2])  # compiles
        quapy = _quapy(name, V, y)
        found: list[Any] = []
        taken = in_turns(
            {
                "ours": partial(seconds_of, partial(ours.predict_posteriors, bags)),
                "QuaPy": partial(_one_by_one, quapy, P, offsets, found),
            },
            rounds=3,
        )
        seconds, each = taken["ours"], taken["QuaPy"]
        estimates, theirs = ours.predict_posteriors(bags), np.asarray(max(found, key=len))
        told = f"{name}, {what}, {n_classes} classes"
        apart = np.abs(estimates[: len(theirs)] - theirs).max(1)
        detail = ""
        if name in ("ACC", "PACC"):
            # QuaPy's optimiser stops early in some bags of few rows: there, it is run on from where it stopped.
            early = np.flatnonzero(apart > _APART[name])
            detail = f" ({apart.max():.2g} where its optimiser stops early, in {len(early)})" if len(early) else ""
            means = _ours({"ACC": "CC", "PACC": "PCC"}[name]).fit_posteriors(V, y).predict_posteriors(bags)
            for b in early:
                apart[b] = np.abs(estimates[b] - _run_on(ours.matrix_, means[b], theirs[b])).max()
        what_apart = f"{told}: largest difference from QuaPy on {len(theirs):,} of the bags{detail}"
        yield what_apart, float(apart.max()), "≤", _APART[name]
        if name in _FASTER and len(bags) == _BAGS and n_classes == (2 if name == "HDy" else 10):
            detail = f"{seconds:.2f} s against {each * len(bags):.0f} s, from {len(theirs):,} bags"
            yield f"{told}: times faster than QuaPy ({detail})", each * len(bags) / seconds, "≥", _FASTER[name]


def _run_on(matrix: NDArray[np.float64], target: NDArray[np.float64], start: NDArray[np.float64]) -> Any:
    """The constrained least squares that QuaPy solves, by the same optimiser, until it has converged."""
    return minimize(
        lambda p: ((matrix @ p - target) ** 2).sum(), start, method="SLSQP", bounds=[(0, 1)] * len(start),
        constraints={"type": "eq", "fun": lambda p: 1 - p.sum()}, options={"ftol": 1e-14, "maxiter": 1000},
    ).x  # fmt: skip


def _ours(name: str) -> Any:
    # QuaPy's EMQ stops at a mean change of 1e-4, its DyS matches 8 bins by Hellinger's distance.
    options: dict[str, dict[str, Any]] = {"EMQ": {"tol": 1e-4}, "DyS": {"n_bins": 8, "divergence": "hellinger"}}
    return getattr(hq, name)(**options.get(name, {}))


def _quapy(name: str, V: NDArray[np.float64], y: NDArray[np.int64]) -> Callable[[NDArray[np.float64]], Any]:
    """QuaPy's method, fitted on these posteriors: posteriors of a bag → prevalences."""
    from quapy.method import aggregative
    from quapy.method._kdey import KDEyML
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(y)
    if name == "EMQ":
        prior = np.bincount(y) / len(y)
        return lambda P: aggregative.EMQ.EM(prior, P, epsilon=1e-4)[0]
    method: Any = KDEyML if name == "KDEy" else getattr(aggregative, name)
    # A classifier of its own, never used: it tells QuaPy the classes.
    classifier = LogisticRegression().fit(np.repeat(np.eye(len(classes)), 3, axis=0), np.repeat(classes, 3))
    fitted = method(classifier, fit_classifier=False, **({} if name in ("CC", "PCC") else {"val_split": None}))
    hard = name in ("CC", "ACC")
    fitted.aggregation_fit(classes[V.argmax(1)] if hard else V, y)
    return lambda P: fitted.aggregate(classes[P.argmax(1)] if hard else P)


def _one_by_one(
    quantify: Callable[[NDArray[np.float64]], Any], P: NDArray[np.float64], offsets: NDArray[np.int64], found: list[Any]
) -> float:
    """Return the seconds per bag, over as many bags as the time allows; append their estimates to the list."""
    quantify(P[offsets[0] : offsets[2]])
    estimates = []
    began = time.perf_counter()
    for a, b in pairwise(offsets):
        estimates.append(quantify(P[a:b]))
        if time.perf_counter() - began > _SECONDS:
            break
    found.append(estimates)
    return (time.perf_counter() - began) / len(estimates)


def measure(name: str) -> float:
    """Growth of the resident set in GiB."""
    from benchmarks.memory import peak

    V, y = draw_posteriors(_TRAIN, 10, seed=2)
    quantifier = _ours(name).fit_posteriors(V, y)
    quantifier.predict_posteriors(V)  # compiles
    P = np.empty((_BAGS * _SIZE, 10))
    for start in range(0, len(P), 50_000):
        P[start : start + 50_000] = draw_posteriors(50_000, 10, seed=start)[0]
    bags = hq.Bags(P, offsets=np.arange(_BAGS + 1) * _SIZE)
    before = peak()
    quantifier.predict_posteriors(bags)
    return (peak() - before) / 2**30


if __name__ == "__main__":
    print(measure(sys.argv[1]))
