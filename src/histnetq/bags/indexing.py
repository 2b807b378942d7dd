"""Index arithmetic for many bags at once: offsets, ranges, and selection of bags by a key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.simplex import Ints

_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ].*)?)?")


def offsets_of(lengths: ArrayLike) -> Ints:
    """Return the start of each bag in a flat list of entries, followed by the number of entries.

    Examples
    --------
    >>> offsets_of([2, 3])
    array([0, 2, 5])
    """
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64, copy=False)


def ranges(starts: NDArray, lengths: NDArray) -> Ints:
    """Concatenate ``arange(start, start + length)`` of all pairs, without a loop.

    Examples
    --------
    >>> ranges(np.array([3, 10]), np.array([2, 3]))
    array([ 3,  4, 10, 11, 12])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def divide(taken: Ints, counts: Ints, offsets: Ints, draw: Callable[[Ints, Ints, Ints], Ints]) -> Ints:
    """Distribute the number taken from each segment over its entries, for all segments at once, by repeated halving.

    ``draw(left, right, taken)`` returns how many are taken from the left halves, given the counts of both halves.

    Examples
    --------
    >>> divide(np.array([4, 3]), np.array([3, 1, 7]), np.array([0, 2, 3]), lambda left, right, taken: taken // 2)
    array([2, 2, 3])
    """
    drawn, total = np.zeros_like(counts), offsets_of(counts)
    start, stop = offsets[:-1], offsets[1:]
    while len(start):
        single = stop - start == 1
        drawn[start[single]] = taken[single]
        wide = stop - start > 1
        start, stop, taken = start[wide], stop[wide], taken[wide]
        middle = (start + stop) // 2
        left = draw(total[middle] - total[start], total[stop] - total[middle], taken)
        start, stop, taken = np.append(start, middle), np.append(middle, stop), np.append(left, taken - left)
    return drawn


def selected(key: Any, n_bags: int) -> Ints:
    """Return the numbers of the bags that a number, slice, boolean mask or list of numbers selects.

    Examples
    --------
    >>> selected([-1, 0], n_bags=4), selected(slice(1, None, 2), n_bags=4)
    (array([3, 0]), array([1, 3]))
    """
    if isinstance(key, slice):
        return np.arange(n_bags)[key]
    chosen = np.asarray(key)
    if chosen.dtype == bool:
        if chosen.shape != (n_bags,):
            raise IndexError(f"bags: expected a mask of length {n_bags}, got shape {chosen.shape}.")
        return np.flatnonzero(chosen)
    if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise IndexError(f"bags: expected a number, slice, mask or list of numbers, got {key!r}.")
    chosen = np.atleast_1d(chosen).astype(np.int64)
    wrong = chosen[(chosen < -n_bags) | (chosen >= n_bags)]
    if wrong.size:
        raise IndexError(f"bags: bag {wrong[0]} is out of range, there are {n_bags} bags.")
    return chosen % n_bags if n_bags else chosen


def natural_keys(names: ArrayLike) -> NDArray:
    """Return sort keys that order names naturally: numbers by size, also within texts.

    Examples
    --------
    >>> np.argsort(natural_keys(["tow10", "tow9", "buoy"]))
    array([2, 1, 0])
    """
    array = np.asarray(names)
    if array.dtype.kind in "iufbM":
        return array
    with contextlib.suppress(TypeError, ValueError):
        return array.astype(np.float64)
    return np.array([re.sub(r"\d+", lambda found: found[0].zfill(20), str(name)) for name in array])


def have_order(names: ArrayLike) -> bool:
    """Return whether names are numbers or dates, which have a meaningful order.

    Examples
    --------
    >>> have_order(["2024-05-06", "2024-05-07"]), have_order(["tow1", "tow2"])
    (True, False)
    """
    array = natural_keys(names)
    return array.dtype.kind in "iufM" or all(_DATE.fullmatch(str(name)) for name in np.asarray(names))
