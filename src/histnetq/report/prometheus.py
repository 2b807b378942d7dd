"""The last chunk of a monitored table as metrics in the text format of Prometheus."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

_METRICS = {
    "histnetq_share": ("estimate", "Estimated share of the class in the last chunk."),
    "histnetq_reference": ("reference", "Mean share of the class in the reference."),
    "histnetq_threshold_lower": ("threshold_lower", "Shares below are an alert."),
    "histnetq_threshold_upper": ("threshold_upper", "Shares above are an alert."),
    "histnetq_alert": ("alert", "Whether the class has an alert in the last chunk."),
    "histnetq_rows": ("n", "Rows of the last chunk."),
    "histnetq_chunk_start_seconds": ("start", "Begin of the last chunk, in seconds since 1970."),
}


def expose(table: pd.DataFrame) -> str:
    """Return the last chunk of each segment in the text format of Prometheus."""
    segments = list(table.columns[: table.columns.get_loc("chunk")])
    newest = table.groupby(segments, sort=False)["start"].transform("max") if segments else table["start"].max()
    last = table[table["start"] == newest]
    lines = []
    for name, (column, about) in _METRICS.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for row in last.to_dict("records"):
            labels = ",".join(f"{_label(key)}={_quoted(row[key])}" for key in [*segments, "class"])
            value = row[column].timestamp() if column == "start" else float(row[column])
            lines.append(f"{name}{{{labels}}} {value:.10g}")
    return "\n".join(lines) + "\n"


def _label(name: str) -> str:
    """Return the name of a column as a valid name of a label."""
    return re.sub(r"^(?=\d)", "_", re.sub(r"\W", "_", name, flags=re.ASCII))


def _quoted(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
