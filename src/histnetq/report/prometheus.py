"""`expose`: the last chunk of a monitored table as metrics in the text format of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pandas as pd
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_METRICS = {
    "histnetq_share": ("estimate", "Estimated share of the class in the last chunk."),
    "histnetq_reference": ("reference", "Mean share of the class in the reference."),
    "histnetq_threshold_lower": ("threshold_lower", "Shares below are an alert."),
    "histnetq_threshold_upper": ("threshold_upper", "Shares above are an alert."),
    "histnetq_alert": ("alert", "Whether the class has an alert in the last chunk."),
    "histnetq_rows": ("n", "Rows of the last chunk."),
    "histnetq_chunk_start_seconds": ("start", "Start of the last chunk, in seconds since 1970."),
}
_PERFORMANCE = {
    "histnetq_expected_accuracy": ("accuracy", "Expected accuracy of the classifier in the last chunk."),
    "histnetq_expected_f1": ("f1", "Expected F1 of the classifier in the last chunk."),
}


def expose(table: pd.DataFrame) -> str:
    """Return the last chunk of each segment in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_LastChunks(table))
    return generate_latest(registry).decode()


class _LastChunks(Collector):
    """The metrics of the last chunk of each segment."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one metric per column, with one value per segment and class, or per segment for the performance."""
        table, segments = self.table, list(self.table.columns[: self.table.columns.get_loc("chunk")])
        newest = table.groupby(segments, sort=False)["start"].transform("max") if segments else table["start"].max()
        last = table[table["start"] == newest].to_dict("records")
        of_chunks = _PERFORMANCE if "accuracy" in table else {}
        for name, (column, about) in (_METRICS | of_chunks).items():
            keys = segments if name in of_chunks else [*segments, "class"]
            metric = GaugeMetricFamily(name, about, labels=list(map(_label, keys)))
            for row in last if keys != segments else [row for row in last if row["class"] == last[0]["class"]]:
                value = row[column].timestamp() if column == "start" else float(row[column])
                metric.add_metric([str(row[key]) for key in keys], value)
            yield metric


def _label(name: str) -> str:
    """Return the name of a column as a valid name of a label."""
    return re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name, flags=re.ASCII))
