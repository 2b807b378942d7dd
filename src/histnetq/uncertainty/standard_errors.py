"""Intervals from standard errors, for methods that know theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.intervals import IntervalMethod, Intervals


class StandardErrors(IntervalMethod):
    """Normal intervals: as many standard errors to both sides as the coverage takes.

    The joint region reaches as far as independent classes would, on the scale of the Hellinger distance.
    """

    name = "standard-errors"
    needs_rows = "standard errors come from the rows"

    def intervals(self, model: Any, bags: Bags | BagSketch, coverage: float) -> Intervals:  # type: ignore[override]
        if not hasattr(model, "standard_errors"):
            raise ValueError(
                f"interval: {type(model).__name__} has no standard errors, which EMNetQ has; "
                "fit with more bags, so that some calibrate it."
            )
        estimates, reach = model.predict(bags), float(ndtri((1 + check_fraction("coverage", coverage)) / 2))
        errors = model.standard_errors(bags)
        # By the delta method, √p has the standard error se / 2√p.
        variances = errors**2 / (8 * np.maximum(np.maximum(estimates, errors), np.finfo(float).tiny))
        radius = reach * np.sqrt(variances.sum(1))
        return Intervals.around(
            estimates, estimates - reach * errors, estimates + reach * errors, bags.sizes, coverage, radius
        )
