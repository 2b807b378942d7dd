"""Interval methods by name, and the choice of one for a model if none is named."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np

from histnetq import registry
from histnetq.bags.bags import Bags
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.capabilities import Capabilities
from histnetq.uncertainty.intervals import IntervalMethod

# Bayesian intervals take seconds up to this number of rows times classes. For more, they must be asked for.
_MOST_UNASKED = 2_000_000
_TO_CALIBRATE = "calibrate the model with bags of known proportions to get conformal intervals"


def _load(place: str) -> IntervalMethod:
    module, _, name = place.rpartition(".")
    method: IntervalMethod = getattr(importlib.import_module(f"histnetq.uncertainty.{module}"), name)()
    return method


INTERVALS: dict[str, IntervalMethod] = {name: _load(place) for name, place in registry.INTERVALS.items()}


@dataclass(frozen=True)
class Choice:
    """An interval method that was chosen for a model and its bags.

    Attributes
    ----------
    name : str or None
        A name in `INTERVALS`; None if no method is possible.
    note : str
        A sentence that gives the reason and the way to conformal intervals; empty for conformal intervals.
    """

    name: str | None
    note: str = ""


def choose_interval(model: Capabilities, bags: Bags | BagSketch) -> Choice:
    """Choose conformal intervals for a calibrated model, else the model's own posterior, else Bayesian intervals.

    If none of them is possible, there are no intervals.

    Examples
    --------
    >>> import histnetq as hq
    >>> q, rows = hq.CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10), np.array([[0.0], [1.0]])
    >>> choose_interval(q.capabilities(), hq.Bags(rows)).name
    'bayes'
    >>> print(choose_interval(hq.MLPE().fit(rows, ["a", "b"]).capabilities(), hq.Bags(rows)).name)
    None
    """
    if model.calibration is not None:
        return Choice("conformal")
    assumed = "which assume that only the proportions of the classes have changed since training"
    if model.posterior is not None:
        note = f"The model is not calibrated, so its intervals are of its own posterior, {assumed}; {_TO_CALIBRATE}."
        return Choice("posterior", note)
    reason = _refusal(model, bags)
    if not reason:
        note = f"The model is not calibrated, so its intervals are Bayesian, {assumed}; {_TO_CALIBRATE}."
        return Choice("bayes", note)
    other = "" if model.standard_errors is None else ", or name standard-errors as the interval method"
    note = f"There are no intervals, because the model is not calibrated and {reason}; {_TO_CALIBRATE}{other}."
    return Choice(None, note)


def _refusal(model: Capabilities, bags: Bags | BagSketch) -> str:
    """Return the reason why there are no Bayesian intervals; empty if there are."""
    if model.posteriors is None:
        return f"{model.kind} has no posteriors of labelled rows for Bayesian intervals"
    if isinstance(bags, BagSketch):
        return "Bayesian intervals need the rows of the bags in memory, not sketches"
    n_entries = float(np.maximum(bags.sizes, np.diff(bags.offsets)).sum())
    if n_entries * model.n_classes > _MOST_UNASKED:
        most = _MOST_UNASKED // model.n_classes
        return f"Bayesian intervals of more than {most:,} rows take long and must be asked for by name"
    return ""
