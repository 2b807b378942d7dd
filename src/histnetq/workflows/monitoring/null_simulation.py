"""Simulated estimates of chunks that are drawn at random from a mix."""

from __future__ import annotations

from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, Ints, project
from histnetq.workflows.monitoring.alerts import Draw

_COVERAGE, _REACH = 0.8, 1.2816  # coverage of intervals, and their half width in standard deviations


def drawing_of(model: Any) -> Draw:
    """Return a function that simulates estimates of a fitted model, for `find_alerts`.

    Methods on posteriors keep cross-validated posteriors of their training rows, which are drawn by class. Networks
    must be calibrated: the mix of a chunk is drawn, and calibration gives the size of the estimation error.

    Examples
    --------
    >>> import histnetq as hq
    >>> q = hq.CC(random_state=0).fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
    >>> drawing_of(q)(np.array([0.5, 0.5]), 100, 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    if getattr(model, "resamples", False):
        return _ByRows(model)
    if hasattr(model, "calibration_"):
        return _ByErrors(model)
    raise ValueError(
        f"model: {type(model).__name__} is not calibrated, so the size of its estimation errors is unknown; fit it to "
        "more bags, so that some bags calibrate it."
    )


class _ByRows:
    """Draws cross-validated posteriors of training rows, and estimates from them."""

    def __init__(self, model: Any) -> None:
        self.model, labels = model, model.training_labels_.astype(np.int64)
        self.order = np.argsort(labels, kind="stable")
        self.counts = np.bincount(labels, minlength=len(model.classes_))
        weights = getattr(model, "training_weights_", None)
        # Cumulative weights draw rows in proportion to their weight; without weights, all rows are equally likely.
        self.below = None if weights is None else np.concatenate([[0.0], np.cumsum(weights[self.order])])
        self.posteriors = model.training_posteriors_.astype(np.float64)

    def __call__(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        mix = np.where(self.counts > 0, mix, 0.0)
        counts = rng.multinomial(size, mix / mix.sum(), n_draws)
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        ends = starts if self.below is None else self.below[starts]
        label = np.repeat(np.tile(np.arange(len(mix)), n_draws), counts.ravel())
        at = ends[:-1][label] + rng.random(len(label)) * np.diff(ends)[label]
        place = at.astype(np.int64) if self.below is None else np.searchsorted(self.below, at, "right") - 1
        row: Ints = self.order[np.minimum(place, len(self.order) - 1)]
        bags = Bags.trusted(self.posteriors, row, np.arange(n_draws + 1) * size)
        return self.model.predict_posteriors(bags)


class _ByErrors:
    """Draws the mix of a chunk, and adds normal errors whose size comes from the calibration."""

    def __init__(self, model: Any) -> None:
        self.calibration = model.calibration_

    def __call__(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        found = self.calibration.intervals(mix[None], np.array([size]), _COVERAGE)
        wide = np.maximum(found.upper - mix, mix - found.lower) / _REACH
        return project(rng.multinomial(size, mix, n_draws) / size + wide * rng.normal(size=(n_draws, len(mix))))
