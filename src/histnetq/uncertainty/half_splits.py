"""Calibration from labelled rows without bags: a method learns from one half, and estimates bags of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_integer
from histnetq.bags.protocols import APP
from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.capabilities import REFITTED, HeldOutPosteriors
from histnetq.uncertainty.conformal import Calibration

SIZES = (20, 56, 159, 447, 1259, 3549, 10_000)  # of calibration bags, if no size is named
FEWEST_ROWS = 40  # smallest number of labelled rows for calibration
_FEWEST_OF_CLASS = 2  # rows, so that each half has one
_SPLITS = 20  # number of random halves, if learning is as cheap as from posteriors
_BAGS = 500  # number of calibration bags, at least
_LARGEST_DRAWN = 10_000  # the scales extrapolate to larger bags
_MOST_SIZES, _LARGEST = 20, 1_000_000_000
_MOST_ROWS = 50_000  # largest number of rows whose posteriors are learned from
# Halves have twice the sampling variance of all rows, both for learning and for the rows that bags are drawn from. A
# new bag has new rows and adds no variance of the second kind, so the factor would be 1/4. With it, the intervals of
# bags of 10,000 new rows were too narrow on real tables.
_OF_ALL_ROWS = 0.325

Learn = Callable[[Bags], Callable[[Bags], Floats]]


def check_sizes(bag_size: Any) -> tuple[int, ...]:
    """Return the distinct sizes of calibration bags in rising order; None gives sizes from 20 to 10,000.

    Examples
    --------
    >>> check_sizes([500, 50]), check_sizes(100)
    ((50, 500), (100,))
    """
    if bag_size is None:
        return SIZES
    given = list(bag_size) if isinstance(bag_size, list | tuple | np.ndarray) else [bag_size]
    sizes = tuple(sorted({check_integer("bag_size", size, 1, _LARGEST) for size in given}))
    if not 1 <= len(sizes) <= _MOST_SIZES:
        raise InputError("bag_size", f"1 to {_MOST_SIZES} sizes", len(sizes), "name a few typical ones")
    return sizes


def can_halve(bags: Bags) -> bool:
    """Return whether there are enough labelled rows, with at least two of each class that occurs."""
    assert bags.labels is not None
    labels = bags.labels[np.unique(bags.index)]
    counts = np.bincount(labels[labels >= 0])
    return bool(counts.sum() >= FEWEST_ROWS and counts[counts > 0].min() >= _FEWEST_OF_CLASS)


def draw_sizes(source: Bags, sizes: Sequence[int], n_bags: int, rng: np.random.Generator) -> Bags:
    """Draw at least `n_bags` bags from labelled rows, as many of each size, uniformly over all mixes."""
    each = -(-n_bags // len(sizes))
    return Bags.concat([APP(min(size, _LARGEST_DRAWN)).draw(source, each, rng) for size in sizes])


def calibrate_by_halves(
    learn: Learn,
    labelled: Bags,
    sizes: Sequence[int],
    n_splits: int = _SPLITS,
    random_state: int = 0,
    copies: Ints | None = None,
    variation: float = REFITTED,
) -> Calibration:
    """Calibrate a method that learns from labelled rows, on bags of held-out rows.

    In each of several repetitions, the method learns from a random half of the rows of each class, and estimates bags
    that are drawn from the held-out half. The errors thus include the variation between fits. The part of the squared
    errors that does not depend on the size of a bag is then reduced, because halves have fewer rows.

    Parameters
    ----------
    learn : callable
        Labelled rows -> function from bags on the same pool to estimates (n_bags, n_classes).
    labelled : Bags
        Labelled rows; entries without a label are ignored.
    sizes : sequence of int
        Sizes of the bags.
    copies : (n_rows,), optional
        A number for each row, equal for copies of a row, which stay in one half. By default no row is a copy.
    variation : float
        Variance of the final fit, in units of the variance that is expected from the halves.
    """
    rng = np.random.default_rng(random_state)
    truth, estimates, drawn = list[Floats](), list[Floats](), list[NDArray]()
    for _ in range(n_splits):
        first, second = _halves(labelled, rng, copies)
        bags = draw_sizes(second, sizes, -(-_BAGS // n_splits), rng)
        assert bags.prevalences is not None
        truth.append(bags.prevalences)
        estimates.append(learn(first)(bags))
        drawn.append(bags.sizes)
    joined = np.concatenate(truth), np.concatenate(estimates), np.concatenate(drawn)
    found = Calibration.of(*joined, random_state)
    return found.with_model_part(_OF_ALL_ROWS * variation)


def calibrate_from_posteriors(
    known: HeldOutPosteriors, n_classes: int, sizes: Sequence[int], random_state: int = 0, copies: Ints | None = None
) -> Calibration:
    """Calibrate a classifier-based method from the held-out posteriors of its training rows.

    `copies` (n_rows,) has equal numbers for copies of a row.
    """
    n_rows, rng = len(known.labels), np.random.default_rng(random_state)
    used = np.arange(n_rows) if n_rows <= _MOST_ROWS else np.sort(rng.permutation(n_rows)[:_MOST_ROWS])
    posteriors, labels = known.posteriors[used].astype(np.float64), known.labels[used].astype(np.int64)
    weights = None if known.weights is None else known.weights[used]
    kind = "count" if weights is None or weights.dtype.kind in "iu" else "survey"
    every, ends = np.arange(len(used)), np.array([0, len(used)])
    parts = {"labels": labels, "classes": np.arange(n_classes), "weights": weights, "weight_kind": kind}

    def learn(half: Bags) -> Callable[[Bags], Floats]:
        own = None if weights is None else weights[half.index]
        quantify = known.relearn(posteriors[half.index], labels[half.index], own)
        return lambda bags: quantify(posteriors, bags.index, bags.offsets, bags.weights)

    rows, copies = Bags.trusted(posteriors, every, ends, **parts), None if copies is None else copies[used]
    found = calibrate_by_halves(learn, rows, sizes, _SPLITS, random_state, copies, known.variation)
    return found if len(used) == n_rows else found.with_model_part(len(used) / n_rows)


def _halves(labelled: Bags, rng: np.random.Generator, copies: Ints | None = None) -> tuple[Bags, Bags]:
    """Divide the labelled rows of each class at random; the two parts have no row, and no copy of a row, in common."""
    assert labelled.labels is not None
    row_of = np.arange(labelled.rows.shape[0]) if copies is None else np.unique(copies, return_inverse=True)[1]
    entries, labels = row_of[labelled.index], labelled.labels[labelled.index]
    order = np.empty(int(row_of.max()) + 1)
    order[rng.permutation(len(order))] = np.arange(len(order))  # of rows, not entries: a row may have several
    is_first = np.zeros(len(order), bool)
    for code in np.unique(labels[labels >= 0]):
        rows = np.unique(entries[labels == code])
        # An odd row goes to either half, so that no class always has more rows in the same half.
        n_first = (len(rows) + int(rng.integers(2))) // 2
        is_first[rows[np.argsort(order[rows])[:n_first]]] = True
    chosen = is_first[entries]
    return _part(labelled, (labels >= 0) & chosen), _part(labelled, (labels >= 0) & ~chosen)


def _part(labelled: Bags, chosen: NDArray[np.bool_]) -> Bags:
    index, weights = labelled.index[chosen], None if labelled.weights is None else labelled.weights[chosen]
    return labelled.drawn(index, np.array([0, len(index)]), weights, None)
