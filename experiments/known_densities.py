"""Errors of `Pretrained` for many labelled rows and large bags, relative to maximum likelihood with known densities."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq

_LABELLED, _SIZES = 100_000, (10_000, 100_000)  # labelled rows, and rows of a bag


def relative_errors(n_bags: int, n_classes: tuple[int, ...] = (2, 4)) -> pd.DataFrame:
    """Return, by number of classes and size of the bags, both root mean squared errors and their ratio.

    A method that learns the densities from as many rows as a bag has makes about the square root of 2 times the error.
    """
    return pd.DataFrame([_compared(k, size, n_bags) for k in n_classes for size in _SIZES])


def _compared(k: int, size: int, n_bags: int, apart: float = 1.5) -> dict[str, float]:
    rng = np.random.default_rng((k, size))
    labels = np.arange(_LABELLED) % k
    own = hq.Pretrained().fit_posteriors(_posteriors(labels, k, apart, rng), labels)
    # With the exact posteriors under equal proportions, expectation maximisation is maximum likelihood.
    known = hq.EMQ().fit_posteriors(np.eye(k), np.arange(k))
    off: dict[str, list[NDArray[np.float64]]] = {"own": [], "known": []}
    for p in rng.dirichlet(np.ones(k), n_bags):
        counts = rng.multinomial(size, p)
        rows = _posteriors(np.repeat(np.arange(k), counts), k, apart, rng)
        for name, q in (("own", own), ("known", known)):
            off[name].append(q.predict_posteriors(rows) - counts / size)
    first, second = (float(np.sqrt(np.mean(np.square(off[name])))) for name in ("own", "known"))
    return {"classes": k, "size": size, "RMSE": first, "RMSE, known densities": second, "ratio": first / second}


def _posteriors(labels: NDArray[np.int64], k: int, apart: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the posteriors, under equal proportions, of rows from normal densities."""
    X = apart * np.eye(k)[labels] + rng.normal(size=(len(labels), k))
    p = np.exp(apart * (X - X.max(1, keepdims=True)))
    found: NDArray[np.float64] = p / p.sum(1, keepdims=True)
    return found
