"""Differences between the shares of systems, with intervals for all comparisons together."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.judging.judged_rows import ShareIntervals

__all__ = ["difference", "holm"]


def difference(
    one: ShareIntervals, other: ShareIntervals, units: tuple[Ints, Ints] | None, level: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the differences ``other - one`` of the class shares, the ends of their intervals, and p-values.

    The distances from the estimates to the ends of both intervals are combined as if each were a multiple of a standard
    error. `units` are the units, such as prompts, of the rows of both systems, whose influences are correlated.

    References
    ----------
    Newcombe (1998), *Interval estimation for the difference between independent proportions*, method 10.
    Zou & Donner (2008), *Construction of confidence limits about effect measures*.

    Examples
    --------
    >>> share = ShareIntervals(np.array([0.5]), np.array([0.4]), np.array([0.6]), np.zeros((1, 1)))
    >>> lower, upper = difference(share, share, None, 0.9)[1:3]
    >>> lower.round(3), upper.round(3)
    (array([-0.141]), array([0.141]))
    """
    correlation = np.zeros(len(one.estimate))
    if units is not None:
        n = int(max(units[0].max(), units[1].max())) + 1
        sums = [np.zeros((n, len(one.estimate))) for _ in units]
        for total, codes, found in zip(sums, units, (one, other), strict=True):
            np.add.at(total, codes, found.influence)
        size = np.sqrt((sums[0] ** 2).sum(0) * (sums[1] ** 2).sum(0))
        correlation = np.where(size > 0, (sums[0] * sums[1]).sum(0) / np.where(size > 0, size, 1), 0)

    def combined(first: Floats, second: Floats) -> Floats:
        found: Floats = np.sqrt(np.maximum(first**2 + second**2 - 2 * correlation * first * second, 0))
        return found

    apart = other.estimate - one.estimate
    below = combined(other.estimate - other.lower, one.upper - one.estimate)
    above = combined(other.upper - other.estimate, one.estimate - one.lower)
    facing = np.where(apart > 0, below, above)
    error = facing / ndtri((1 + level) / 2)
    p = 2 * ndtr(-np.abs(apart) / np.where(error > 0, error, np.inf))
    return apart, np.maximum(apart - below, -1), np.minimum(apart + above, 1), p


def holm(p_values: Floats) -> Floats:
    """Return p-values that are adjusted for their number by Holm's method.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p_values)
    found = np.empty(len(p_values))
    factors = np.arange(len(p_values), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1)
    return found
