"""Every way to intervals, by the name that users call it."""

from __future__ import annotations

from histnetq.uncertainty.bayes import Bayes
from histnetq.uncertainty.bootstrap import Bootstrap
from histnetq.uncertainty.conformal import Conformal
from histnetq.uncertainty.intervals import IntervalMethod
from histnetq.uncertainty.standard_errors import StandardErrors

INTERVALS: dict[str, IntervalMethod] = {
    method.name: method for method in (Conformal(), Bayes(), Bootstrap(), StandardErrors())
}
