"""Score intervals of a share, from labels in strata of rows that have the same verdict.

Stratum *v* has the share ``w`` of the rows, and ``m`` of its rows have a label, of which ``m₁`` name the class. The
estimate is ``Σ_v w m₁ / m``. The interval contains every share ``θ`` with ``(estimate − θ)² ≤ z² V(θ)``. The variance
``V(θ)`` is computed from the most likely shares ``q`` of the strata among those with ``Σ_v w q = θ``. With one stratum
this is Wilson's interval. It does not collapse if a class is rare or the judge makes no error among the labelled rows.

With a Lagrange multiplier ``μ``, the shares ``q`` solve ``μ w q (1 − q) = m₁ (1 − q) − (m − m₁) q``. They decrease in
``μ``, so a bisection over ``μ`` finds both ends, for all batches and classes at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.simplex import Floats

__all__ = ["pool_small_strata", "score_interval", "strata_shares"]

_STEPS = 32  # of the bisection over log |μ|
_SPAN = 18.0  # log |μ| relative to the fewest labels of a stratum


def strata_shares(counts: Floats, weights: Floats, mu: Floats, without_labels: Floats | float = 0.5) -> Floats:
    """Return the most likely share of the class in each stratum for a Lagrange multiplier `mu`.

    Parameters
    ----------
    counts : array, shape (..., n_strata, 2)
        Numbers of labels that name the class, and that name another class.
    weights : array, shape (..., n_strata)
        Share of the rows in each stratum.
    mu : array, shape (...)
        Lagrange multiplier; 0 gives the observed shares.
    without_labels : array or float, default=0.5
        Share in strata without labels if `mu` is 0; otherwise it is 0 or 1.

    Returns
    -------
    array, shape (..., n_strata)

    Examples
    --------
    >>> strata_shares(np.array([[3.0, 1.0]]), np.array([1.0]), np.array(0.0))
    array([0.75])
    """
    yes, no = counts[..., 0], counts[..., 1]
    pull = mu[..., None] * weights
    root = np.sqrt(np.maximum((yes + no + pull) ** 2 - 4 * pull * yes, 0))
    up, down = yes + no + np.abs(pull) + root, np.where(pull >= 0, yes, no)
    part = np.where(up > 0, 2 * down / np.where(up > 0, up, 1), 0)
    shares = np.where(pull >= 0, part, 1 - part)
    return np.where((yes + no <= 0) & (pull == 0), without_labels, shares)


def score_interval(
    counts: ArrayLike, weights: ArrayLike, quantile: ArrayLike, n_rows: ArrayLike = np.inf
) -> tuple[Floats, Floats, Floats]:
    """Return the estimate and both ends of the interval of a share.

    Parameters
    ----------
    counts : array, shape (..., n_strata, 2)
        Numbers of labels that name the class, and that name another class. They may be effective numbers: divided by a
        design effect, or by the share of rows without a label if the target is a finite batch.
    weights : array, shape (..., n_strata)
        Share of the rows in each stratum.
    quantile : array, shape (...)
        Quantile of the standard normal or Student's distribution.
    n_rows : array, shape (...), default=inf
        Number of rows whose verdicts are a random sample of the process; infinite if the target is the batch.

    Returns
    -------
    tuple of three arrays, shape (...)
        Estimate, lower end and upper end.

    Examples
    --------
    >>> found = score_interval([[8, 2], [3, 27]], [0.2, 0.8], 1.645)
    >>> [round(float(value), 3) for value in found]
    [0.24, 0.167, 0.345]
    """
    counts, weights, z = np.asarray(counts, float), np.asarray(weights, float), np.asarray(quantile, float)
    n_rows = np.asarray(n_rows, float)
    n_labels = counts.sum(-1)
    total = n_labels.sum(-1)
    overall = (counts[..., 0].sum(-1) / np.where(total > 0, total, 1))[..., None]
    estimate = (weights * strata_shares(counts, weights, np.zeros(total.shape), overall)).sum(-1)
    known = np.where(n_labels > 0, weights, 0)  # the share is unknown in strata without labels
    center = (known * strata_shares(counts, weights, np.zeros(total.shape))).sum(-1)
    factors = known**2 / np.where(n_labels > 0, n_labels, 1)
    # Strata whose rows all have a label have infinite effective numbers; the others move first.
    scale = np.where(n_labels > 0, n_labels, np.inf).min(-1)
    scale = np.where(np.isfinite(scale), np.maximum(scale, 1e-3), 1)
    ends = []
    for sign in (1.0, -1.0):
        low, high = np.full(total.shape, -_SPAN), np.full(total.shape, _SPAN)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            shares = strata_shares(counts, weights, sign * np.exp(middle) * scale)
            theta = (weights * shares).sum(-1)
            variance = (factors * shares * (1 - shares)).sum(-1)
            variance += np.maximum((weights * shares**2).sum(-1) - theta**2, 0) / n_rows
            inside = (center - (known * shares).sum(-1)) ** 2 <= z**2 * variance
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        ends.append(theta)
    lower, upper = np.minimum(ends[0], estimate), np.maximum(ends[1], estimate)
    nothing = total <= 0
    return np.where(nothing, np.nan, estimate), np.where(nothing, 0, lower), np.where(nothing, 1, upper)


def pool_small_strata(n_labels: ArrayLike, least: int) -> NDArray[np.bool_]:
    """Return which strata to pool so that each stratum has at least `least` labels.

    Pooling is valid if the labelled rows are a random sample of all rows.

    Parameters
    ----------
    n_labels : array, shape (..., n_strata)
        Number of labels in each stratum.
    least : int
        Smallest number of labels of a stratum.

    Returns
    -------
    array of bool, shape (..., n_strata)
        Strata that become one; at least one is True.

    Examples
    --------
    >>> pool_small_strata([40, 1, 0, 7], least=3)
    array([False,  True,  True,  True])
    """
    n_labels = np.asarray(n_labels, float)
    order = np.argsort(n_labels, -1, kind="stable")
    ascending = np.take_along_axis(n_labels, order, -1)
    before = np.cumsum(ascending, -1) - ascending
    pooled = np.empty(n_labels.shape, bool)
    np.put_along_axis(pooled, order, (ascending < least) | (before < least), -1)
    return pooled
