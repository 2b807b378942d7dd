"""Calibration of a model that was fitted to labelled rows without bags."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats
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
    can = model.capabilities()
    if can.posteriors is not None:
        model.calibration_ = calibrate_from_posteriors(can.posteriors, can.n_classes, sizes, random_state)
    else:
        model.calibration_ = calibrate_by_halves(_refitted(model), labelled, sizes, n_splits, random_state)
    model.trust_ = trust_from_rows(labelled, sizes, random_state)
    return model


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
