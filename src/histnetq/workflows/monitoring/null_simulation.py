"""Estimates of chunks that are drawn at random from a mix, by what a model keeps of rows that it has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, Ints, project
from histnetq.workflows.monitoring.alerts import Draw

_COVERAGE, _REACH = 0.8, 1.2816  # of intervals, and how many standard deviations they reach


def drawing_of(model: Any) -> Draw:
    """Give what simulates estimates of a fitted model.

    Methods on posteriors keep those of rows that their classifier had not seen, which are drawn by class. Of others,
    calibration tells how far estimates are from the mix of a bag, which itself is drawn.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier; a network has to be calibrated.

    Returns
    -------
    callable
        As `histnetq.workflows.monitoring.alerts.find_alerts` takes it.

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
        f"model: {type(model).__name__} is not calibrated, so that nothing tells how far its estimates go by chance; "
        "fit it to more bags, some of which calibrate it."
    )


class _ByRows:
    """Draws posteriors of held-out rows, and estimates from them."""

    def __init__(self, model: Any) -> None:
        self.model, labels = model, model.training_labels_.astype(np.int64)
        self.order = np.argsort(labels, kind="stable")
        self.counts = np.bincount(labels, minlength=len(model.classes_))
        weights = getattr(model, "training_weights_", None)
        # Weight of the rows before each, by which they are drawn; without weights, rows are counted.
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
    """Draws the mix of a chunk, and adds normal errors as wide as calibration tells."""

    def __init__(self, model: Any) -> None:
        self.calibration = model.calibration_

    def __call__(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        found = self.calibration.intervals(mix[None], np.array([size]), _COVERAGE)
        wide = np.maximum(found.upper - mix, mix - found.lower) / _REACH
        return project(rng.multinomial(size, mix, n_draws) / size + wide * rng.normal(size=(n_draws, len(mix))))
