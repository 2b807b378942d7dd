"""Prevalence vectors: checking, counting, drawing, rounding and projecting points of the probability simplex."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "OffSimplex", "apportion", "check_estimates", "check_prevalences", "count_labels", "draw_uniform",
    "first_off_simplex", "project", "row_sums",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ESTIMATED = 1e-5  # rounding of estimates: networks compute in float32
_FAULTS = {
    "not finite": ("contains NaN or infinity", "drop or complete that bag"),
    "negative": ("has a negative entry", "proportions and counts start at 0"),
    "sum": ("sums to 0", "drop the bag or give it counts"),
}


class OffSimplex(NamedTuple):
    """A row that is not on the probability simplex, and why.

    Parameters
    ----------
    row : int
        The number of the row.
    fault : str
        ``"not finite"``, ``"negative"`` or ``"sum"``, the first of these that applies.
    total : float
        The sum of the row's numbers.

    Examples
    --------
    >>> OffSimplex(row=3, fault="sum", total=0.8).row
    3
    """

    row: int
    fault: str
    total: float


def row_sums(points: Floats) -> Floats:
    """Return the sums of the rows, by a matrix product, which is several times faster for a table of few columns.

    Parameters
    ----------
    points : (n_rows, n_columns)
        Numbers.

    Returns
    -------
    (n_rows,)
        The sums. Rows with NaN or infinity have a sum that is not finite.

    Examples
    --------
    >>> row_sums(np.array([[0.5, 0.25], [2.0, -1.0]]))
    array([0.75, 1.  ])
    """
    with np.errstate(invalid="ignore", over="ignore"):
        sums: Floats = points @ np.ones(points.shape[1])
    return sums


def first_off_simplex(
    points: Floats, *, tolerance: float = 1e-3, slack: float = 0.0, normalize: bool = False
) -> OffSimplex | None:
    """Find the first row that is not on the probability simplex.

    Every check of proportions in this package calls this function and writes its own error message.

    Parameters
    ----------
    points : (n_rows, n_classes)
        Proportions, or counts with ``normalize=True``.
    tolerance : float, default 1e-3
        Largest allowed difference of a row's sum from one.
    slack : float, default 0
        Largest allowed negative deviation of a number from zero.
    normalize : bool, default False
        Whether rows may have any positive, finite sum.

    Returns
    -------
    OffSimplex or None
        The row and its fault, or None if all rows are on the simplex.

    Examples
    --------
    >>> first_off_simplex(np.array([[0.5, 0.5], [0.5, 0.25], [2.0, -1.0]]))
    OffSimplex(row=1, fault='sum', total=0.75)
    >>> first_off_simplex(np.array([[3.0, 1.0]]), normalize=True) is None
    True
    """
    sums = row_sums(points)
    # A sum shows whether its numbers are finite, so the table is read only twice.
    right = (sums > 0) & (sums < np.inf) if normalize else np.abs(sums - 1) <= tolerance
    wrong = np.flatnonzero(~right if points.min(initial=0.0) >= -slack else ~right | (points < -slack).any(1))
    if not wrong.size:
        return None
    row = int(wrong[0])
    fault = "not finite" if not np.isfinite(sums[row]) else "negative" if points[row].min() < -slack else "sum"
    return OffSimplex(row, fault, float(sums[row]))


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
    n_bags : int
        The expected number of rows.
    n_classes : int, optional
        The expected number of columns. By default any number of at least two is accepted.
    normalize : bool, default False
        Whether rows of any positive sum are accepted.
    tolerance : float, default 1e-3
        Largest allowed difference of a row's sum from one without ``normalize``.

    Returns
    -------
    (n_bags, n_classes) of float64
        A new array of rows that sum to one.

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
        way_out = "give one row per bag and one column per class"
        raise ValueError(f"prevalences: expected shape (n_bags, n_classes), got {p.shape}; {way_out}.")
    if len(p) != n_bags:
        raise ValueError(f"prevalences: expected one row for each of the {n_bags} bags, got {len(p)} rows.")
    if n_classes is not None and p.shape[1] != n_classes:
        expected, way_out = f"{n_classes} columns, one per class", "check classes= or the table's columns"
        raise ValueError(f"prevalences: expected {expected}, got {p.shape[1]}; {way_out}.")
    if p.shape[1] < 2:
        raise ValueError(f"prevalences: expected at least 2 classes, got {p.shape[1]}; add the columns of the others.")
    wrong = first_off_simplex(p, tolerance=tolerance, normalize=normalize)
    if wrong is None:
        p /= p.sum(1, keepdims=True)
        return p
    if wrong.fault == "sum" and not normalize:
        raise ValueError(
            f"prevalences: row {wrong.row} sums to {wrong.total:.4g}, expected 1 ± {tolerance:g}; "
            "pass normalize=True to rescale counts or percentages."
        )
    what, way_out = _FAULTS[wrong.fault]
    shown = np.array2string(p[wrong.row], precision=3, threshold=6)
    raise ValueError(
        f"prevalences: row {wrong.row} {what}: {shown}, expected numbers in [0, 1] that sum to 1; {way_out}."
    )


def check_estimates(estimates: Floats) -> Floats:
    """Raise an error for estimates that are not prevalences, which a damaged model file can cause.

    Parameters
    ----------
    estimates : (n_bags, n_classes)
        Estimates of one model.

    Returns
    -------
    (n_bags, n_classes)
        The same estimates.

    Examples
    --------
    >>> check_estimates(np.array([[0.25, 0.75]]))
    array([[0.25, 0.75]])
    """
    if first_off_simplex(estimates, tolerance=_ESTIMATED, slack=_ESTIMATED) is None:
        return estimates
    n_bags, lost = f"{len(estimates):,} bags", (~np.isfinite(estimates)).any(1).sum()
    if lost:
        raise ValueError(
            f"model: cannot compute an estimate for {lost:,} of {n_bags}, "
            "its numbers or the numbers in the rows are too large; fit it again."
        )
    low, high = estimates.min(), estimates.max()
    raise ValueError(
        f"model: estimated proportions from {low:.4g} to {high:.4g} in {n_bags}, expected numbers in [0, 1] that sum "
        "to 1 in each bag; its file may be damaged, fit it again."
    )


def count_labels(labels: Ints, bag_of_entry: Ints, n_bags: int, n_classes: int, weights: NDArray | None) -> Floats:
    """Add up the weight of each class in each bag, in one pass.

    Parameters
    ----------
    labels : (n_entries,) of int
        Class codes from 0 to ``n_classes - 1``.
    bag_of_entry : (n_entries,) of int
        The bag that each entry belongs to.
    n_bags : int
        The number of bags.
    n_classes : int
        The number of classes.
    weights : (n_entries,) or None
        The weight of each entry. None counts every entry once.

    Returns
    -------
    (n_bags, n_classes) of float64
        The weight of each class in each bag.

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

    Parameters
    ----------
    n_bags : int
        The number of points.
    n_classes : int
        The number of coordinates of each point.
    rng : numpy.random.Generator
        The source of randomness.

    Returns
    -------
    (n_bags, n_classes) of float64
        One point in each row.

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

    Parameters
    ----------
    prevalences : (n_bags, n_classes)
        Proportions that sum to one in each row.
    sizes : (n_bags,) of int
        The sum of the counts of each row.

    Returns
    -------
    (n_bags, n_classes) of int64
        The counts.

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

    Parameters
    ----------
    points : (n_points, n_classes) or (n_classes,)
        Any finite numbers.

    Returns
    -------
    (n_points, n_classes) of float64
        The nearest point on the simplex in each row, also for a single point.

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
    # A shift along (1, …, 1) does not change the result. Without it, the 1 below would be lost for numbers beyond
    # 2**53.
    x = x - x.max(1, keepdims=True)
    descending = -np.sort(-x, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    place = np.arange(1, x.shape[1] + 1)
    support = (descending * place > excess).sum(1)
    threshold = np.take_along_axis(excess, support[:, None] - 1, axis=1) / support[:, None]
    return np.maximum(x - threshold, 0.0)
