"""Bootstrap intervals from resampled rows of the bags and resampled labelled rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction, check_whole
from histnetq.bags.indexing import divide
from histnetq.simplex import Floats, Ints, check_estimates
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.capabilities import Capabilities, HeldOutPosteriors, Quantify
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger


class Bootstrap(IntervalMethod):
    """Quantiles of estimates from resampled rows, by a copy of the method that is fitted to resampled labelled rows."""

    name = "bootstrap"
    needs = "posteriors"
    needs_rows = "the bootstrap draws from the rows"
    options = ("n_resamples", "random_state")

    def refusal(self, kind: str) -> Exception:
        return ValueError(
            f"interval: {kind} has no bootstrap; use a classifier-based method such as EMQ, or fit with more bags, "
            "so that some calibrate conformal intervals."
        )

    def intervals(  # type: ignore[override]
        self,
        model: Capabilities,
        bags: Bags | BagSketch,
        coverage: float,
        *,
        n_resamples: int = 200,
        random_state: int = 0,
    ) -> Intervals:
        assert isinstance(bags, Bags)
        assert model.posteriors is not None
        coverage, n_resamples = check_fraction("coverage", coverage), check_whole("n_resamples", n_resamples)
        estimates, resampled = _resampled(model.posteriors, bags, n_resamples, np.random.default_rng(random_state))
        lower, upper = np.quantile(resampled, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
        lower, upper = _reach_the_ends(lower, upper, bags.sizes)
        radius = np.quantile(hellinger(resampled, estimates), coverage, axis=0)
        return Intervals.around(estimates, lower, upper, bags.sizes, coverage, radius)


def _reach_the_ends(lower: Floats, upper: Floats, sizes: ArrayLike) -> tuple[Floats, Floats]:
    """Round ends that are within a hundredth of a row of 0 or 1; maximum likelihood never reaches 0 or 1."""
    tiny = 0.01 / np.asarray(sizes, np.float64)[:, None]
    return np.where(lower < tiny, 0.0, lower), np.where(upper > 1 - tiny, 1.0, upper)


def _resampled(
    known: HeldOutPosteriors, bags: Bags, n_resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return estimates ``(n_bags, n_classes)`` and resampled estimates ``(n_resamples, n_bags, n_classes)``."""
    p, index = known.of_bags(bags)
    sized = bags.sized_weights()
    estimates = check_estimates(known.quantify(p, index, bags.offsets, sized))
    resampled = np.empty((n_resamples, *estimates.shape))
    for again in resampled:
        entries, weights = resample(bags, rng)
        if sized is not None and bags.weight_kind == "survey":
            weights = sized[entries]
        again[:] = relearned(known, rng)(p, index[entries], bags.offsets, weights)
    return estimates, resampled


def relearned(known: HeldOutPosteriors, rng: np.random.Generator) -> Quantify:
    """Fit a copy of the method to labelled rows that are resampled with replacement within each class."""
    labels = known.labels.astype(np.int64)
    order = np.argsort(labels, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.unique(labels, return_counts=True)[1])])
    kind = "count" if known.weights is None or known.weights.dtype.kind in "iu" else "survey"
    w = None if known.weights is None else known.weights[order]
    entries, drawn = resample(Bags.trusted(labels, order, offsets, weights=w, weight_kind=kind), rng)
    chosen = order[entries]
    return known.relearn(known.posteriors[chosen].astype(np.float64), labels[chosen], drawn)


def resample(bags: Bags, rng: np.random.Generator) -> tuple[Ints, NDArray | None]:
    """Resample the rows of each bag with replacement; return entries in the order of the bags, and their weights.

    With counts as weights, each entry stays in its place and gets a new count, so a weight of *k* equals *k* copies.
    With survey weights, entries are drawn with equal probability and keep their weights.

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
