"""Tests of what judged rows must fulfil: labels drawn at random, equal error rates, and agreement of two humans."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from histnetq.simplex import Ints

__all__ = ["agreement", "equal_error_rates", "equal_mixes"]

_DRAWS = 9999
_FEW = 5  # expected rows of a cell, below which the distribution of the statistic is simulated


def equal_mixes(one: Ints, other: Ints, random_state: int | np.random.Generator = 0) -> float:
    """Return the p-value of a chi-squared test whether two samples have the same mix.

    If few rows of a kind are expected, the distribution of the statistic comes from samples that are drawn without
    replacement.

    Parameters
    ----------
    one, other : array of int, shape (n_kinds,)
        Numbers of rows of each kind.
    random_state : int or Generator, default=0
        Seed of the drawn samples.

    Examples
    --------
    >>> equal_mixes(np.array([30, 30]), np.array([300, 300]))
    1.0
    """
    both = one + other
    one, both = one[both > 0], both[both > 0]
    n, total = one.sum(), both.sum()
    if len(both) < 2 or n in (0, total):
        return 1.0

    def statistic(drawn: Ints) -> np.ndarray:
        expected = both * n / total
        found: np.ndarray = ((drawn - expected) ** 2 / (expected * (1 - n / total))).sum(-1)
        return found

    if min(n, total - n) * both.min() / total >= _FEW:
        return float(chi2.sf(statistic(one), len(both) - 1))
    drawn = np.random.default_rng(random_state).multivariate_hypergeometric(both, n, size=_DRAWS)
    return float((1 + (statistic(drawn) >= statistic(one) - 1e-9).sum()) / (1 + _DRAWS))


def equal_error_rates(one: Ints, other: Ints, random_state: int = 0) -> float:
    """Return the p-value of a test whether the verdicts about each class are distributed equally in two samples.

    Parameters
    ----------
    one, other : array of int, shape (n_verdicts, n_classes)
        Numbers of labelled rows by verdict and class.
    random_state : int, default=0
        Seed of simulated distributions.

    Examples
    --------
    >>> equal_error_rates(np.array([[9, 1], [1, 9]]), np.array([[90, 10], [10, 90]]))
    1.0
    """
    p = [equal_mixes(a, b, random_state) for a, b in zip(one.T, other.T, strict=True) if a.sum() and b.sum()]
    return float(min(1.0, min(p) * len(p))) if p else 1.0


def agreement(one: Ints, other: Ints) -> tuple[int, float, float]:
    """Return the number of rows that two humans labelled, the share of equal labels, and Cohen's kappa.

    Examples
    --------
    >>> agreement(np.array([0, 0, 1, 1, -1]), np.array([0, 0, 1, 0, 1]))
    (4, 0.75, 0.5)
    """
    both = (one >= 0) & (other >= 0)
    if not both.any():
        return 0, float("nan"), float("nan")
    one, other = one[both], other[both]
    same, n = float((one == other).mean()), int(max(one.max(), other.max())) + 1
    chance = float(np.bincount(one, minlength=n) @ np.bincount(other, minlength=n)) / len(one) ** 2
    return len(one), same, (same - chance) / (1 - chance) if chance < 1 else float("nan")
