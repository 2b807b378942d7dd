"""Value of labels, numbers of labels for a planned width, and levels for intervals that are looked at repeatedly."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from histnetq.simplex import Floats, Ints

__all__ = ["FIRST_LOOK", "LOOK_EVERY", "MOST_SEQUENTIAL", "labels_needed", "sequential_level", "worth"]

FIRST_LOOK, LOOK_EVERY, MOST_SEQUENTIAL = 20, 10, 1000  # labels at the first look, between looks, and at most
_PATHS = 50_000


def worth(widths: Floats, estimates: Floats, level: float, n_rows: float) -> float:
    """Return the number of labels that would give equally short intervals without a judge.

    Parameters
    ----------
    widths, estimates : array, shape (n_classes,)
        Widths of the intervals, and the estimates.
    level : float
        Coverage of the intervals.
    n_rows : float
        Number of rows if the target is the batch, else infinity.

    Examples
    --------
    >>> width = 2 * 1.645 * np.sqrt(0.25 / 400)
    >>> round(worth(np.full(2, width), np.full(2, 0.5), 0.9, np.inf))
    397
    """
    z2 = float(ndtri((1 + level) / 2)) ** 2
    half2 = (np.asarray(widths) / 2) ** 2
    if not half2.sum() > 0:
        return float(n_rows)
    # Width of Wilson's interval for n effective labels: half² (n + z²)² = z² n p (1 − p) + z⁴ / 4, summed over classes.
    spread, total = (estimates * (1 - estimates)).sum(), half2.sum()
    b = 2 * total * z2 - z2 * spread
    c = z2**2 * (total - len(half2) / 4)
    n = (-b + np.sqrt(max(b**2 - 4 * total * c, 0))) / (2 * total)
    return float(n if np.isinf(n_rows) else n / (1 + n / n_rows))


def labels_needed(counts: Ints, sizes: Ints, half_width: float, level: float, batch: bool) -> tuple[float, Floats]:
    """Return the number of labels for intervals of a half-width: drawn at random, and by verdict.

    Parameters
    ----------
    counts : array of int, shape (n_verdicts, n_classes)
        Numbers of labels by verdict and class.
    sizes : array of int, shape (n_verdicts,)
        Number of rows with each verdict.
    half_width : float
        Planned half-width of the interval of every class.
    level : float
        Coverage of the intervals.
    batch : bool
        Whether the target is the batch instead of the process.

    Returns
    -------
    at_random : float
        Number of labels, NaN if even labels of all rows are not enough.
    by_verdict : array, shape (n_verdicts,)
        Numbers of labels by verdict, in Neyman's allocation.

    Examples
    --------
    >>> at_random, by_verdict = labels_needed(np.array([[45, 5], [5, 45]]), np.array([1000, 9000]), 0.02, 0.9, True)
    >>> round(at_random), by_verdict.round().tolist()
    (611, [61.0, 550.0])
    """
    n_rows, weights = sizes.sum(), sizes / sizes.sum()
    shares = (counts + 1 / counts.shape[1]) / (counts.sum(1, keepdims=True) + 1)
    inside = shares * (1 - shares)
    goal = (half_width / float(ndtri((1 + level) / 2))) ** 2
    if not batch:
        goal = goal - ((weights[:, None] * shares**2).sum(0) - (weights @ shares) ** 2).max() / n_rows
        if goal <= 0:
            return np.nan, np.full(len(sizes), np.nan)
    left = 1 / n_rows if batch else 0.0  # no error remains if all rows of a batch are labelled
    within = float((weights @ inside).max())
    at_random = within / (goal + within * left)
    spread = np.sqrt(inside.max(1))
    total = float(weights @ spread)
    n = total**2 / (goal + float(weights @ spread**2) * left)
    by_verdict = np.minimum(n * weights * spread / total, sizes)
    if not batch and at_random > n_rows:
        return np.nan, np.full(len(sizes), np.nan)
    return min(at_random, float(n_rows)), by_verdict


@lru_cache
def sequential_level(level: float) -> float:
    """Return the level of single intervals that all hold together, with looks from 20 labels on up to 1,000 labels.

    The errors of estimates from growing samples behave like the means of a random walk. The level belongs to the
    quantile of the largest standardised mean (Pocock's boundary) among looks after every 10 labels, from 50,000
    simulated walks.

    References
    ----------
    Pocock (1977), *Group sequential methods in the design and analysis of clinical trials*.

    Examples
    --------
    >>> round(sequential_level(0.9), 3)
    0.99
    """
    rng, n = np.random.default_rng(0), FIRST_LOOK
    total = np.sqrt(n) * rng.standard_normal(_PATHS)
    largest = np.abs(total) / np.sqrt(n)
    while n < MOST_SEQUENTIAL:
        total += np.sqrt(LOOK_EVERY) * rng.standard_normal(_PATHS)
        n += LOOK_EVERY
        np.maximum(largest, np.abs(total) / np.sqrt(n), out=largest)
    return float(2 * ndtr(np.quantile(largest, level)) - 1)
