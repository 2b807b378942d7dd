"""Simulated estimates of chunks without a change, from a model's held-out rows or calibration errors."""

from __future__ import annotations

import numpy as np

from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats, Ints, check_estimates, project
from histnetq.uncertainty.capabilities import HeldOutPosteriors
from histnetq.uncertainty.conformal import Calibration
from histnetq.workflows.monitoring.alerts import Draw

_COVERAGE, _REACH = 0.8, 1.2816  # coverage of intervals, and their half-width in standard deviations


def drawing_of(model: Quantifier) -> Draw:
    """Return a function that simulates estimates of a fitted model.

    For methods on posteriors, it draws posteriors of held-out training rows by class and estimates from them. For other
    methods, it draws the mix of a chunk and adds errors as large as the calibration errors.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier. It must be calibrated if it is not a method on posteriors.

    Returns
    -------
    callable
        Function for `histnetq.workflows.monitoring.alerts.find_alerts`: the mix of a chunk, its size, the number of
        draws and a random generator -> estimates (n_draws, n_classes).

    Examples
    --------
    >>> import histnetq as hq
    >>> q = hq.CC(random_state=0).fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
    >>> drawing_of(q)(np.array([0.5, 0.5]), 100, 3, np.random.default_rng(0)).shape
    (3, 2)
    """
    known = model.capabilities()
    if known.posteriors is not None:
        return _ByRows(known.posteriors, known.n_classes)
    if known.calibration is not None:
        return _ByErrors(known.calibration)
    raise ValueError(
        f"model: {type(model).__name__} is not calibrated, so the random error of its estimates is unknown; "
        "fit it to more bags, so that some calibrate it."
    )


class _ByRows:
    """Draws posteriors of held-out rows by class, and estimates the prevalences from them."""

    def __init__(self, known: HeldOutPosteriors, n_classes: int) -> None:
        self.quantify, self.posteriors = known.quantify, known.posteriors.astype(np.float64)
        self.order = np.argsort(known.labels, kind="stable")
        self.counts = np.bincount(known.labels, minlength=n_classes)
        # Rows are drawn by their cumulative weights; without weights, they are counted.
        cumulated = None if known.weights is None else np.cumsum(known.weights[self.order])
        self.below = None if cumulated is None else np.concatenate([[0.0], cumulated])

    def __call__(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        mix = np.where(self.counts > 0, mix, 0.0)
        counts = rng.multinomial(size, mix / mix.sum(), n_draws)
        starts = np.concatenate([[0], np.cumsum(self.counts)])
        ends = starts if self.below is None else self.below[starts]
        label = np.repeat(np.tile(np.arange(len(mix)), n_draws), counts.ravel())
        at = ends[:-1][label] + rng.random(len(label)) * np.diff(ends)[label]
        place = at.astype(np.int64) if self.below is None else np.searchsorted(self.below, at, "right") - 1
        row: Ints = self.order[np.minimum(place, len(self.order) - 1)]
        return check_estimates(self.quantify(self.posteriors, row, np.arange(n_draws + 1) * size, None))


class _ByErrors:
    """Draws the mix of a chunk, and adds normal errors as large as the calibration errors."""

    def __init__(self, calibration: Calibration) -> None:
        self.calibration = calibration

    def __call__(self, mix: Floats, size: int, n_draws: int, rng: np.random.Generator) -> Floats:
        found = self.calibration.intervals(mix[None], np.array([size]), _COVERAGE)
        wide = np.maximum(found.upper - mix, mix - found.lower) / _REACH
        return project(rng.multinomial(size, mix, n_draws) / size + wide * rng.normal(size=(n_draws, len(mix))))
