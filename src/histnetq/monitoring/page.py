"""`page`: the text of one HTML file, which needs no network, about a mix over time."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from histnetq.evaluation import plots
from histnetq.monitoring.plots import draw_class, draw_mix, shown_classes
from histnetq.report.figures import image
from histnetq.uncertainty.trust import DOUBT


def page(
    table: pd.DataFrame, *, method: str, reference: str, false_alarms: float, coverage: float,
    checked: bool, command: str = "",
) -> str:  # fmt: skip
    """Give a page about the table that `histnetq.monitor` gave.

    Parameters
    ----------
    table : DataFrame
        The table.
    method : str
        Name of the quantifier.
    reference : str
        The range of the reference, as it was given.
    false_alarms, coverage : float
        As they were given to `monitor`.
    checked : bool
        Whether the model can tell rows that look different.
    command : str, default=""
        The command that makes the page again.
    """
    plots.require_matplotlib()
    names = list(table.columns[: table.columns.get_loc("chunk")])
    chunks = table[table["class"] == table["class"].iloc[0]]
    any_alert = table.groupby([*names, "chunk"], sort=False)["alert"].any()
    alerted = chunks[any_alert.to_numpy()]
    environment = Environment(
        loader=PackageLoader("histnetq.monitoring", "."), autoescape=True, trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters["number"] = format
    return environment.get_template("page.html").render(
        title=f"Class shares over time, estimated by {method}", n_chunks=len(chunks), n_rows=float(chunks["n"].sum()),
        n_reference=int((chunks["period"] == "reference").sum()), reference=reference.replace("..", " – "),
        n_analysis=int((chunks["period"] == "analysis").sum()), n_alerts=len(alerted),
        last_alert=alerted.loc[alerted["start"].idxmax(), "chunk"] if len(alerted) else "",
        n_different=int((chunks["verdict"] == "rows look different").sum()), checked=checked, doubt=DOUBT,
        false_alarms=false_alarms, coverage=coverage, intervals=bool(table["lower"].notna().any()),
        classes=table["class"].drop_duplicates().tolist(), segments=list(_segments(table, names)), command=command,
        date=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
    )  # fmt: skip


def _segments(table: pd.DataFrame, names: list[str]) -> Iterator[dict[str, Any]]:
    """The plots and the table of each segment."""
    groups = table.groupby(names, sort=False) if names else [((), table)]
    for key, part in groups:
        mix = image(functools.partial(_draw_mix, part), (6.4, 2.9))
        own = [(name, image(functools.partial(_draw_class, part, name), (4.8, 2.2))) for name in shown_classes(part)]
        rows = [
            {**group.iloc[0][["chunk", "n", "period", "verdict"]].to_dict(), "cells": group.to_dict("records")}
            for _, group in reversed(list(part.groupby("chunk", sort=False)))
        ]
        told = ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))
        yield {"name": told, "mix": mix, "classes": own, "rows": rows}


def _draw_mix(part: pd.DataFrame, figure: Any) -> None:
    draw_mix(part, figure.subplots())


def _draw_class(part: pd.DataFrame, name: Any, figure: Any) -> None:
    draw_class(part, name, figure.subplots())
