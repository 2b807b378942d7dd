"""Bootstrap intervals: estimates of bags whose rows are drawn anew, by a method that is learned anew each time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction, check_whole
from histnetq.bags.indexing import divide
from histnetq.simplex import Floats, Ints, check_estimates
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger


class Bootstrap(IntervalMethod):
    """Intervals between quantiles of resampled estimates; for methods that learn in a moment from posteriors."""

    name = "bootstrap"
    needs_rows = "the bootstrap draws from the rows"
    options = ("n_resamples", "random_state")

    def intervals(  # type: ignore[override]
        self,
        model: Any,
        bags: Bags | BagSketch,
        coverage: float,
        *,
        n_resamples: int = 200,
        random_state: int = 0,
    ) -> Intervals:
        kind = type(model).__name__
        if not hasattr(model, "resamples"):
            raise ValueError(
                f"interval: {kind} has no bootstrap, which classical methods have; "
                "fit with more bags, so that some calibrate it."
            )
        if not model.resamples:
            raise TypeError(
                f"bootstrap_interval: {kind} takes too long to learn from every resample; "
                "use calibrate and predict_interval."
            )
        assert isinstance(bags, Bags)
        coverage, n_resamples = check_fraction("coverage", coverage), check_whole("n_resamples", n_resamples)
        estimates, resampled = _resampled(model, bags, n_resamples, np.random.default_rng(random_state))
        lower, upper = np.quantile(resampled, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
        lower, upper = _reach_the_ends(lower, upper, bags.sizes)
        radius = np.quantile(hellinger(resampled, estimates), coverage, axis=0)
        return Intervals.around(estimates, lower, upper, bags.sizes, coverage, radius)


def _reach_the_ends(lower: Floats, upper: Floats, sizes: ArrayLike) -> tuple[Floats, Floats]:
    """Ends within a hundredth of a row of 0 or 1 are 0 or 1: likelihood nears them forever and never gets there."""
    tiny = 0.01 / np.asarray(sizes, np.float64)[:, None]
    return np.where(lower < tiny, 0.0, lower), np.where(upper > 1 - tiny, 1.0, upper)


def _resampled(model: Any, bags: Bags, n_resamples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Estimates ``(n_bags, n_classes)``, and of resamples ``(n_resamples, n_bags, n_classes)``."""
    p, index = model._bag_posteriors(bags)
    resampled = np.empty((n_resamples, len(bags), len(model.classes_)))
    for estimates in resampled:
        entries, weights = resample(bags, rng)
        estimates[:] = relearned(model, rng)._quantify(p, index[entries], bags.offsets, weights)
    return check_estimates(model._quantify(p, index, bags.offsets, bags.weights)), resampled


def relearned(model: Any, rng: np.random.Generator) -> Any:
    """Give a copy of a method that has learned from as many rows of each class, drawn with replacement."""
    labels, weights = model.training_labels_.astype(np.int64), getattr(model, "training_weights_", None)
    order = np.argsort(labels, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.unique(labels, return_counts=True)[1])])
    kind = "count" if weights is None or weights.dtype.kind in "iu" else "survey"
    w = None if weights is None else weights[order]
    entries, drawn = resample(Bags.trusted(labels, order, offsets, weights=w, weight_kind=kind), rng)
    again, chosen = copy.copy(model), order[entries]
    again._learn(model.training_posteriors_[chosen].astype(np.float64), labels[chosen], drawn)
    return again


def resample(bags: Bags, rng: np.random.Generator) -> tuple[Ints, NDArray | None]:
    """Draw as many rows of each bag as it has, with replacement: entries in the order of the bags, and their weights.

    Every entry stays in its place and is told how often it is drawn, so that a weight of *k* equals *k* copies. Survey
    weights are weights of entries, which are drawn alike.

    Examples
    --------
    >>> bags = Bags(np.zeros((3, 1)), offsets=[0, 2, 3], weights=[2, 3, 4])
    >>> entries, weights = resample(bags, np.random.default_rng(0))
    >>> np.add.reduceat(weights, [0, 2]).tolist()
    [5, 4]
    """
    lengths = np.diff(bags.offsets)
    if bags.weights is not None and bags.weight_kind == "count":
        drawn = divide(bags.sizes, bags.weights, bags.offsets, lambda a, b, n: rng.binomial(n, a / (a + b)))
        return np.arange(len(bags.index)), drawn
    starts = np.repeat(bags.offsets[:-1], lengths)
    drawn = starts + (rng.random(len(starts)) * np.repeat(lengths, lengths)).astype(np.int64)
    return drawn, None if bags.weights is None else bags.weights[drawn]
