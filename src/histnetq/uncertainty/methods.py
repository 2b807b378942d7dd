"""Interval methods by name."""

from __future__ import annotations

import importlib

from histnetq import registry
from histnetq.uncertainty.intervals import IntervalMethod


def _load(place: str) -> IntervalMethod:
    module, _, name = place.rpartition(".")
    method: IntervalMethod = getattr(importlib.import_module(f"histnetq.uncertainty.{module}"), name)()
    return method


INTERVALS: dict[str, IntervalMethod] = {name: _load(place) for name, place in registry.INTERVALS.items()}
