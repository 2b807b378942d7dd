"""Calibration of a model that was fitted to labelled rows without bags."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.shared_rows import same_rows
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.half_splits import calibrate_by_halves, calibrate_from_posteriors, draw_sizes
from histnetq.uncertainty.trust import Trust

_BAGS_FOR_TRUST, _LARGEST_FOR_TRUST = 200, 1000
_PART_IN_BAG = 4  # bags that trust learns from have at most this fraction of the rows, because they share rows


def calibrate_on_rows(
    model: Quantifier, labelled: Bags, sizes: Sequence[int], n_splits: int, random_state: int
) -> Quantifier:
    """Calibrate a model that was fitted to all these rows, without holding any out; `n_splits` counts its refits.

    A classifier-based model is not refitted: the held-out posteriors of its cross-fitting are divided instead.
    """
    can, copies = model.capabilities(), _copies_of_rows(labelled)
    if can.posteriors is None:
        model.calibration_ = calibrate_by_halves(_refitted(model), labelled, sizes, n_splits, random_state, copies)
    else:
        if copies is not None:
            assert labelled.labels is not None
            of_known = copies[labelled.index[labelled.labels[labelled.index] >= 0]]
            copies = of_known if len(of_known) == len(can.posteriors.labels) else None
        model.calibration_ = calibrate_from_posteriors(can.posteriors, can.n_classes, sizes, random_state, copies)
    model.trust_ = trust_from_rows(labelled, sizes, random_state)
    return model


def _copies_of_rows(labelled: Bags) -> Ints | None:
    """Return a number for each row of the pool, equal for copies of a row; None if no row is a copy."""
    numbers, part = same_rows(labelled)
    if part == 0:
        return None
    found = np.empty(labelled.rows.shape[0], np.int64)
    found[:] = -1 - np.arange(len(found))
    found[labelled.index] = np.unique(numbers, return_inverse=True)[1]
    return found


def trust_from_rows(labelled: Bags, sizes: Sequence[int], random_state: int) -> Trust:
    """Learn from labelled rows how bags of these sizes look."""
    most = max(min(sizes), min(_LARGEST_FOR_TRUST, len(labelled.index) // _PART_IN_BAG))
    shown = sorted({min(size, most) for size in sizes})
    return Trust.of(draw_sizes(labelled, shown, _BAGS_FOR_TRUST, np.random.default_rng(random_state)), random_state)


def _refitted(model: Quantifier) -> Callable[[Bags], Callable[[Bags], Floats]]:
    def learn(half: Bags) -> Callable[[Bags], Floats]:
        # Estimates of the copy have the classes of its half, which has all classes.
        return copy.copy(model).fit(half).predict

    return learn
