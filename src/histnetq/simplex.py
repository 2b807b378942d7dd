"""Prevalence vectors: checking, counting, drawing, rounding and projecting points of the probability simplex."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["apportion", "check_prevalences", "count_labels", "draw_uniform", "project"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def check_prevalences(
    prevalences: ArrayLike,
    n_bags: int,
    n_classes: int | None = None,
    *,
    normalize: bool = False,
    tolerance: float = 1e-3,
) -> Floats:
    """Validate one prevalence vector per bag and rescale each to sum to one exactly.

    Parameters
    ----------
    prevalences : (n_bags, n_classes)
        Proportions, or counts with ``normalize=True``.
    n_bags, n_classes : int
        The expected shape; ``n_classes=None`` accepts any number of at least two.
    normalize : bool
        Accept rows of any positive sum.
    tolerance : float
        How far from one a sum may be without ``normalize``.

    Returns
    -------
    (n_bags, n_classes) of float64, a new array.

    Examples
    --------
    >>> check_prevalences([[3, 1]], n_bags=1, normalize=True)
    array([[0.75, 0.25]])
    """
    try:
        p = np.array(prevalences, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "prevalences: expected a table of numbers, one row per bag and one column per class; "
            f"got {type(prevalences).__name__} that does not convert to one."
        ) from None
    if p.ndim != 2:
        raise ValueError(
            f"prevalences: expected shape (n_bags, n_classes), got {p.shape}; "
            "give one row per bag and one column per class."
        )
    if len(p) != n_bags:
        raise ValueError(f"prevalences: expected one row for each of the {n_bags} bags, got {len(p)} rows.")
    if n_classes is not None and p.shape[1] != n_classes:
        raise ValueError(
            f"prevalences: expected {n_classes} columns, one per class, got {p.shape[1]}; "
            "check classes= or the table's columns."
        )
    if p.shape[1] < 2:
        raise ValueError(f"prevalences: expected at least 2 classes, got {p.shape[1]}; add the columns of the others.")
    _refuse_rows(~np.isfinite(p).all(1), p, "contains NaN or infinity", "drop or complete that bag")
    _refuse_rows((p < 0).any(1), p, "has a negative entry", "proportions and counts start at 0")
    sums = p.sum(1)
    if normalize:
        _refuse_rows(sums <= 0, p, "sums to 0", "drop the bag or give it counts")
    else:
        off = np.flatnonzero(np.abs(sums - 1) > tolerance)
        if off.size:
            raise ValueError(
                f"prevalences: row {off[0]} sums to {sums[off[0]]:.4g}, expected 1 ± {tolerance:g}; "
                "pass normalize=True to rescale counts or percentages."
            )
    p /= sums[:, None]
    return p


def _refuse_rows(bad: ArrayLike, p: Floats, what: str, way_out: str) -> None:
    first = np.flatnonzero(bad)
    if first.size:
        shown = np.array2string(p[first[0]], precision=3, threshold=6)
        raise ValueError(
            f"prevalences: row {first[0]} {what}: {shown}, expected numbers in [0, 1] that sum to 1; {way_out}."
        )


def count_labels(labels: Ints, bag_of_entry: Ints, n_bags: int, n_classes: int, weights: NDArray | None) -> Floats:
    """Weight of each class in each bag, in one pass.

    Parameters
    ----------
    labels : (n_entries,)
        Class codes from 0 to ``n_classes - 1``.
    bag_of_entry : (n_entries,)
        The bag each entry belongs to.
    weights : (n_entries,) or None

    Returns
    -------
    (n_bags, n_classes)

    Examples
    --------
    >>> count_labels(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, 2, None)
    array([[1., 1.],
           [0., 1.]])
    """
    flat = np.bincount(bag_of_entry * n_classes + labels, weights=weights, minlength=n_bags * n_classes)
    return flat.reshape(n_bags, n_classes).astype(np.float64)


def draw_uniform(n_bags: int, n_classes: int, rng: np.random.Generator) -> Floats:
    """Draw points uniformly on the simplex by Kraemer's algorithm: the gaps between sorted uniform numbers.

    References
    ----------
    Smith & Tromble (2004), *Sampling uniformly from the unit simplex*.

    Examples
    --------
    >>> draw_uniform(2, 3, np.random.default_rng(0)).sum(1)
    array([1., 1.])
    """
    cuts = np.zeros((n_bags, n_classes + 1))
    cuts[:, -1] = 1.0
    cuts[:, 1:-1] = np.sort(rng.random((n_bags, n_classes - 1)), axis=1)
    return np.diff(cuts, axis=1)


def apportion(prevalences: Floats, sizes: Ints) -> Ints:
    """Round each prevalence vector to whole counts of the bag's size, by largest remainder.

    Examples
    --------
    >>> apportion(np.array([[0.5, 0.3, 0.2]]), np.array([4]))
    array([[2, 1, 1]])
    """
    exact = prevalences * sizes[:, None]
    counts = np.floor(exact).astype(np.int64)
    missing = sizes - counts.sum(1)
    order = np.argsort(counts - exact, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(exact.shape[1])[None], axis=1)
    return counts + (ranks < missing[:, None])


def project(points: ArrayLike) -> Floats:
    """Move each point to the nearest one (Euclidean) on the simplex.

    References
    ----------
    Held, Wolfe & Crowder (1974), *Validation of subgradient optimization*: the threshold from the sorted vector.

    Examples
    --------
    >>> project([[1.2, -0.1], [0.4, 0.4]])
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    x = np.atleast_2d(np.asarray(points, dtype=np.float64))
    # A shift along (1, …, 1) changes nothing; beyond 2**53 the 1 below would be lost without it.
    x = x - x.max(1, keepdims=True)
    descending = -np.sort(-x, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    place = np.arange(1, x.shape[1] + 1)
    support = (descending * place > excess).sum(1)
    threshold = np.take_along_axis(excess, support[:, None] - 1, axis=1) / support[:, None]
    return np.maximum(x - threshold, 0.0)
