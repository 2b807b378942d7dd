"""What the service counts, in Prometheus's text format."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Any

_BOUNDS = (  # seconds
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, inf,
)  # fmt: skip
Labels = tuple[tuple[str, str], ...]
_ABOUT = {
    "histnetq_requests_total": ("counter", "Requests that were answered."),
    "histnetq_request_seconds": ("histogram", "Seconds from the first byte of a request to the last of its answer."),
    "histnetq_rows_total": ("counter", "Rows that were estimated from."),
    "histnetq_bags_total": ("counter", "Bags that were estimated."),
    "histnetq_estimate": ("gauge", "Mean estimated share of the class in the bags of the last request."),
    "histnetq_trusted": ("gauge", "Part of the class's shares in the last request that is in bags to be trusted."),
    "histnetq_busy": ("gauge", "Pieces of work that run or wait."),
    "histnetq_jobs": ("gauge", "Jobs that are known, by their state."),
    "histnetq_workers": ("gauge", "Worker processes that are alive."),
    "histnetq_workers_ended_total": ("counter", "Worker processes that were killed or died, by the reason."),
    "histnetq_memory_bytes": ("gauge", "Memory that the server and its workers use."),
}


class Metrics:
    """Counters and gauges by their names and labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._lock = threading.Lock()

    def note_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request to a path, with the names of its parameters in place of their values."""
        place = (("method", method), ("path", path))
        with self._lock:
            self._values["histnetq_requests_total"][(*place, ("status", str(status)))] += 1
            for bound in _BOUNDS:
                limit = ("le", f"{bound:g}".replace("inf", "+Inf"))
                self._values["histnetq_request_seconds_bucket"][(*place, limit)] += seconds <= bound
            self._values["histnetq_request_seconds_sum"][place] += seconds
            self._values["histnetq_request_seconds_count"][place] += 1

    def note_estimates(self, model: str, found: dict[str, Any]) -> None:
        """Count bags and rows, and keep what was found in them, as `tasks.summarise` tells it."""
        with self._lock:
            self._values["histnetq_bags_total"][(("model", model),)] += found["bags"]
            self._values["histnetq_rows_total"][(("model", model),)] += found["rows"]
            for name, share, part in zip(found["classes"], found["shares"], found["trusted"], strict=True):
                labels = (("model", model), ("class", name))
                self._values["histnetq_estimate"][labels] = share
                self._values["histnetq_trusted"][labels] = part

    def expose(self, **gauges: dict[Labels, float]) -> str:
        """Give all as text, with gauges that are known only when they are asked for."""
        with self._lock:
            values = {name: dict(found) for name, found in self._values.items()} | gauges
        return "\n".join(_lines(values)) + "\n"


def _lines(values: dict[str, dict[Labels, float]]) -> Iterable[str]:
    for name, (kind, about) in _ABOUT.items():
        yield f"# HELP {name} {about}"
        yield f"# TYPE {name} {kind}"
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            for labels, value in values.get(f"{name}{suffix}", {}).items():
                told = ",".join(f"{key}={_quoted(text)}" for key, text in labels)
                yield f"{name}{suffix}{{{told}}} {value:.10g}" if told else f"{name}{suffix} {value:.10g}"


def _quoted(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
