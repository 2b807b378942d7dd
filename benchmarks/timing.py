"""Measure several things in turns, so that noise on the machine hits all of them alike; medians count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

__all__ = ["in_turns", "seconds_of", "side_by_side"]


def in_turns(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of what each function returns, such as seconds, when they are called A B A B and so on."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def side_by_side(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each function, called in turns after a first call that does not count."""
    for function in contestants.values():
        function()
    return in_turns({name: partial(seconds_of, function) for name, function in contestants.items()}, rounds)


def seconds_of(function: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
