"""Shares of classes from verdicts without labels and the error rates of the judge, estimated from other labelled rows.

A row of class *k* gets verdict *v* with probability ``C_kv``. Verdicts without a label have the likelihood
``Σ_k θ_k C_kv``. Labelled rows of an earlier batch, whose classes may have had other shares, have the likelihood
``C_kv``. If the error rates are the same in both batches, labelled rows of this batch add ``θ_k C_kv``. The interval of
a class contains every share whose profile log-likelihood is within ``z² / 2`` of the greatest one. The likelihood is
maximised by expectation maximisation, with the share of the class held fixed, for all classes, both ends and all
batches at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from histnetq.simplex import Floats

__all__ = ["joint_interval"]

_STEPS, _ROUNDS, _FIRST_ROUNDS = 6, 200, 500
_TINY, _EDGE = 1e-12, 1e-9


def joint_interval(
    unlabelled: ArrayLike, labelled: ArrayLike, earlier: ArrayLike, quantile: float, batch: bool = True
) -> tuple[Floats, Floats, Floats]:
    """Return the estimates and both ends of the intervals of all classes.

    Parameters
    ----------
    unlabelled : array, shape (..., n_verdicts)
        Numbers of rows of this batch without a label.
    labelled : array, shape (..., n_verdicts, n_classes)
        Numbers of labelled rows of this batch, drawn at random.
    earlier : array, shape (..., n_verdicts, n_classes)
        Numbers of labelled rows of an earlier batch.
    quantile : float
        Quantile of the standard normal distribution.
    batch : bool, default=True
        Whether the target is this batch instead of the process.

    Returns
    -------
    tuple of three arrays, shape (..., n_classes)
        Estimates, lower ends and upper ends.

    Examples
    --------
    >>> earlier = [[45, 5], [5, 45]]
    >>> found = joint_interval([300, 700], np.zeros((2, 2)), earlier, 1.645)
    >>> [value.round(2).tolist() for value in found]
    [[0.25, 0.75], [0.16, 0.69], [0.31, 0.84]]
    """
    n = np.asarray(unlabelled, float)[..., None, :]  # (..., 1, n_verdicts)
    m, e = (
        np.swapaxes(np.asarray(each, float), -1, -2) for each in (labelled, earlier)
    )  # (..., n_classes, n_verdicts)
    n_classes, total = m.shape[-2], n.sum((-1, -2)) + m.sum((-1, -2))
    theta, rates = np.full(m.shape[:-1], 1 / n_classes), m + e + 0.5
    rates /= rates.sum(-1, keepdims=True)
    theta, rates = _maximise(n, m, e, theta, rates, None, _FIRST_ROUNDS)
    best = _log_likelihood(n, m, e, theta, rates)[..., None, None]
    # One problem for each end and class: (..., 2, n_classes) before the axes of `theta` and `rates`.
    n, m, e = (each[..., None, None, :, :] for each in (n, m, e))
    shape = (*theta.shape[:-1], 2, n_classes)
    at = np.broadcast_to(theta[..., None, None, :], (*shape, n_classes)).copy()
    table = np.broadcast_to(rates[..., None, None, :, :], (*shape, *rates.shape[-2:])).copy()
    inside = np.broadcast_to(theta[..., None, :], shape).copy()
    outside = np.broadcast_to(np.array([0.0, 1.0])[:, None], shape).copy()
    fixed = np.eye(n_classes, dtype=bool)
    # The root of the lost likelihood is almost linear in the share, so its line through the bracket finds the end.
    near, far = np.full(shape, -quantile), np.full(shape, np.inf)
    for step in range(_STEPS):
        if step < 3:
            share = (inside + outside) / 2 if step else np.clip(outside, _EDGE, 1 - _EDGE)
        else:
            part = np.where(np.isfinite(far), -near / np.maximum(far - near, _TINY), 0.5)
            share = inside + np.clip(part, 0.02, 0.98) * (outside - inside)
        at, table = _maximise(n, m, e, at, table, (fixed, share), _ROUNDS)
        lost = np.sqrt(np.maximum(2 * (best - _log_likelihood(n, m, e, at, table)), 0)) - quantile
        ok = lost <= 0
        inside, outside = np.where(ok, share, inside), np.where(ok, outside, share)
        near, far = np.where(ok, lost, near), np.where(ok, far, lost)
        if not step:  # an end at 0 or 1
            outside = np.where(ok, inside, outside)
    part = np.where(np.isfinite(far), np.clip(-near / np.maximum(far - near, _TINY), 0, 1), 0)
    inside = inside + part * (outside - inside)
    lower, upper = inside[..., 0, :], inside[..., 1, :]
    if batch:
        # The true shares of the batch vary about the process, and the verdicts with them, so this part is no error.
        variance = ((upper - lower) / (2 * quantile)) ** 2
        own = theta * (1 - theta) / np.maximum(total, 1)[..., None]
        factor = np.sqrt(np.clip(1 - own / np.maximum(variance, _TINY), 0, 1))
        lower, upper = theta - factor * (theta - lower), theta + factor * (upper - theta)
    return theta, np.minimum(lower, theta), np.maximum(upper, theta)


def _maximise(
    n: Floats, m: Floats, e: Floats, theta: Floats, rates: Floats, held: tuple[Floats, Floats] | None, rounds: int
) -> tuple[Floats, Floats]:
    """Return shares and error rates after some rounds of expectation maximisation, with the held shares fixed."""
    for _ in range(rounds):
        if held is not None:
            fixed, share = held
            others = np.where(fixed, 0, np.maximum(theta, _TINY))
            others *= ((1 - share) / others.sum(-1))[..., None]
            theta = np.where(fixed, share[..., None], others)
        joint = theta[..., None] * rates
        joint *= n / np.maximum(joint.sum(-2, keepdims=True), _TINY)
        joint += m
        theta = joint.sum(-1)
        theta = theta / np.maximum(theta.sum(-1, keepdims=True), _TINY)
        joint += e
        rates = joint / np.maximum(joint.sum(-1, keepdims=True), _TINY)
    if held is not None:
        others = np.where(held[0], 0, np.maximum(theta, _TINY))
        others *= ((1 - held[1]) / others.sum(-1))[..., None]
        theta = np.where(held[0], held[1][..., None], others)
    return theta, rates


def _log_likelihood(n: Floats, m: Floats, e: Floats, theta: Floats, rates: Floats) -> Floats:
    joint = np.maximum(theta[..., None] * rates, 1e-300)
    mixed = np.maximum(joint.sum(-2, keepdims=True), 1e-300)
    found: Floats = (n * np.log(mixed)).sum((-1, -2)) + (m * np.log(joint)).sum((-1, -2))
    return found + (e * np.log(np.maximum(rates, 1e-300))).sum((-1, -2))
