"""EMQ fitted to labelled rows against the same by plain scikit-learn, alone and beside a busy process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from benchmarks.busy import busy_process
from benchmarks.timing import in_turns, seconds_of

__all__ = ["run"]

_ROWS, _FEATURES, _CLASSES = 20_000, 256, 28


def run() -> Iterator[tuple[str, float, str, float]]:
    """Yield (what, ratio, comparison, target)."""
    X, y = draw_rows(_ROWS, seed=0)
    new = draw_rows(2_000, seed=1)[0]
    shape = f"{_ROWS:,} × {_FEATURES} × {_CLASSES}"
    apart = float(np.abs(hq.EMQ(random_state=0).fit(X, y).predict(new) - _plain(X, y, new)).max())
    yield f"EMQ, {shape}: largest difference of an estimate from scikit-learn's pipeline and EM", apart, "≤", 1e-4
    contestants = {
        "ours": partial(seconds_of, lambda: hq.EMQ(random_state=0).fit(X, y).predict(new)),
        "pipeline": partial(seconds_of, lambda: _plain(X, y, new)),
        "rows as they are": partial(seconds_of, lambda: _plain(X, y, new, scaled=False)),
    }
    alone = in_turns(contestants, rounds=1)
    with busy_process():
        beside = in_turns(contestants, rounds=1)
    for where, seconds, target in (("alone", alone, 5.0), ("beside a busy process", beside, 8.0)):
        for other, least in (("pipeline", 1.0), ("rows as they are", target)):
            detail = f"{seconds['ours']:.1f} s against {seconds[other]:.1f} s"
            what = f"EMQ fitted, {shape}, {where}: times faster than scikit-learn, {other} ({detail})"
            yield what, seconds[other] / seconds["ours"], "≥", least


def draw_rows(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows that are not centred, some features ten times as large as others, and their classes."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(99)
    centres, shift = 0.2 * fixed.normal(size=(_CLASSES, _FEATURES)), fixed.uniform(-3, 3, _FEATURES)
    y = rng.integers(_CLASSES, size=n)
    scale = np.where(np.arange(_FEATURES) % 16 == 0, 10.0, 1.0)
    return ((rng.normal(size=(n, _FEATURES)) + centres[y] + shift) * scale).astype(np.float32), y


def _plain(X: NDArray[Any], y: NDArray[np.int64], new: NDArray[Any], scaled: bool = True) -> NDArray[np.float64]:
    """Posteriors across five folds, a fit to all rows, and EM on the new rows, as one writes it with scikit-learn."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model: Any = LogisticRegression(max_iter=1000)
    model = make_pipeline(StandardScaler(), model) if scaled else model
    cross_val_predict(model, X, y, cv=5, method="predict_proba")
    posteriors = model.fit(X, y).predict_proba(new).astype(np.float64)
    p = prior = np.bincount(y) / len(y)
    for _ in range(1000):
        products = posteriors * (p / prior)
        p = (products / products.sum(1, keepdims=True)).mean(0)
    return p
