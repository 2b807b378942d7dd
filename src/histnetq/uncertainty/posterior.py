"""Intervals from the posterior distribution that a method computes itself."""

from __future__ import annotations

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.capabilities import Capabilities
from histnetq.uncertainty.intervals import IntervalMethod, Intervals, hellinger


class Posterior(IntervalMethod):
    """Shortest intervals of the posterior of each class; the joint region contains the same part of the draws.

    A class that may be absent has an interval from 0, as an interval between two quantiles would never contain a share
    of exactly 0. The intervals need no calibration bags, and they read sketches as well as rows.
    """

    name = "posterior"
    needs = "posterior"

    def refusal(self, kind: str) -> Exception:
        return ValueError(
            f"interval: {kind} has no posterior distribution; use Pretrained, or Bayesian intervals of a method on "
            "posteriors such as EMQ."
        )

    def intervals(  # type: ignore[override]
        self, model: Capabilities, bags: Bags | BagSketch, coverage: float
    ) -> Intervals:
        assert model.posterior is not None
        coverage = check_fraction("coverage", coverage)
        estimates = np.atleast_2d(model.estimate(bags))
        low, high = model.posterior.shortest(bags, coverage)
        draws = model.posterior.draw(bags)
        radius = np.quantile(hellinger(draws, estimates[:, None]), coverage, axis=1)
        return Intervals.around(estimates, low, high, bags.sizes, coverage, radius)
