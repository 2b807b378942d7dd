"""`Metrics`: counts of requests and estimates for Prometheus, in a registry of their own."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # seconds


class Metrics:
    """Counts of requests and estimates. `registry` also exposes the collectors that are registered with it."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        place, model = ("method", "path"), ("model",)
        self._requests = Counter("histnetq_requests", "Requests that were answered.", (*place, "status"), registry=own)
        about = "Seconds from the first byte of a request to the last of its answer."
        self._seconds = Histogram("histnetq_request_seconds", about, place, buckets=_BOUNDS, registry=own)
        self._rows = Counter("histnetq_rows", "Rows that were estimated from.", model, registry=own)
        self._bags = Counter("histnetq_bags", "Bags that were estimated.", model, registry=own)
        about = "Mean estimated share of the class in the bags of the last request."
        self._shares = Gauge("histnetq_estimate", about, (*model, "class"), registry=own)
        about = "Part of the class's shares in the last request that is in bags to be trusted."
        self._trusted = Gauge("histnetq_trusted", about, (*model, "class"), registry=own)

    def note_request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request; `path` is the path of its route, with the names of parameters instead of their values."""
        self._requests.labels(method, path, status).inc()
        self._seconds.labels(method, path).observe(seconds)

    def note_estimates(self, model: str, found: dict[str, Any]) -> None:
        """Count the bags and rows of a summary by `tasks.summarise`, and keep the shares of its classes."""
        self._bags.labels(model).inc(found["bags"])
        self._rows.labels(model).inc(found["rows"])
        for name, share, part in zip(found["classes"], found["shares"], found["trusted"], strict=True):
            self._shares.labels(model, name).set(share)
            self._trusted.labels(model, name).set(part)
