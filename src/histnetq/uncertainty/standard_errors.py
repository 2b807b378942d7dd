"""Normal intervals from standard errors."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.capabilities import Capabilities
from histnetq.uncertainty.intervals import IntervalMethod, Intervals


class StandardErrors(IntervalMethod):
    """Normal intervals from the standard errors of a model.

    The joint region is computed on the scale of the Hellinger distance, with classes treated as independent.
    """

    name = "standard-errors"
    needs = "standard_errors"
    needs_rows = "standard errors come from the rows"

    def refusal(self, kind: str) -> Exception:
        return ValueError(
            f"interval: {kind} has no standard errors; use EMNetQ, or fit with more bags, "
            "so that some calibrate conformal intervals."
        )

    def intervals(  # type: ignore[override]
        self, model: Capabilities, bags: Bags | BagSketch, coverage: float
    ) -> Intervals:
        assert isinstance(bags, Bags)
        assert model.standard_errors is not None
        estimates, reach = model.estimate(bags), float(ndtri((1 + check_fraction("coverage", coverage)) / 2))
        errors = model.standard_errors(bags)
        # By the delta method, √p has the standard error se / 2√p.
        variances = errors**2 / (8 * np.maximum(np.maximum(estimates, errors), np.finfo(float).tiny))
        radius = reach * np.sqrt(variances.sum(1))
        return Intervals.around(
            estimates, estimates - reach * errors, estimates + reach * errors, bags.sizes, coverage, radius
        )
