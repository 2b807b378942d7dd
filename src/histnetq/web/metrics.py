"""What the service counts, in Prometheus's text format."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from histnetq.report.estimating import Estimates
from histnetq.web.answers import is_trusted

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds
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
            for bound in (*(b for b in _BOUNDS if seconds <= b), float("inf")):
                limit = ("le", f"{bound:g}".replace("inf", "+Inf"))
                self._values["histnetq_request_seconds_bucket"][(*place, limit)] += 1
            self._values["histnetq_request_seconds_sum"][place] += seconds
            self._values["histnetq_request_seconds_count"][place] += 1

    def note_estimates(self, model: str, found: Estimates, n_rows: float) -> None:
        """Count bags and rows, and keep what was found in them."""
        shares, trusted = found.values["estimate"], is_trusted(found)
        total = shares.sum(0)
        safe = np.divide(shares[trusted].sum(0), total, out=np.ones_like(total), where=total > 0)
        with self._lock:
            self._values["histnetq_bags_total"][(("model", model),)] += len(found)
            self._values["histnetq_rows_total"][(("model", model),)] += n_rows
            for name, share, part in zip(found.classes.tolist(), shares.mean(0), safe, strict=True):
                labels = (("model", model), ("class", str(name)))
                self._values["histnetq_estimate"][labels] = float(share)
                self._values["histnetq_trusted"][labels] = float(part)

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
