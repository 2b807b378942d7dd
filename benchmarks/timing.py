"""Time several functions side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["side_by_side"]


def side_by_side(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each function, taken in turns so that noise on the machine hits all of them alike."""
    for function in contestants.values():
        function()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, function in contestants.items():
            began = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}
