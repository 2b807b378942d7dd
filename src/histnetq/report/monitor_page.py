"""`page`: one self-contained HTML page about class prevalences over time."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from histnetq.evaluation.monitor_plots import class_names, draw_class, draw_mix, draw_performance, shown_classes
from histnetq.evaluation.plot_style import color_of
from histnetq.report.figures import image
from histnetq.report.templates import require_pages, template
from histnetq.uncertainty.trust import DOUBT

_MOST_SEGMENTS = 30  # segments to draw: those with the most alerts


def page(
    table: pd.DataFrame, *, method: str, reference: str, false_alarms: float, coverage: float,
    checked: bool, command: str = "",
) -> str:  # fmt: skip
    """Return a page about the table of `histnetq.monitor`.

    `reference`, `false_alarms` and `coverage` are the arguments of `monitor`. `checked` says whether the model can
    detect rows that look different. `command` is the command that creates the page.
    """
    require_pages()
    names = list(table.columns[: table.columns.get_loc("chunk")])
    chunks = table[table["class"] == table["class"].iloc[0]]
    any_alert = table.groupby([*names, "chunk"], sort=False)["alert"].any().to_numpy()
    alerted, overview = chunks[any_alert], _overview(chunks, any_alert, names) if names else []
    return template("monitor_page.html").render(
        title=f"Class shares over time, estimated by {method}", n_chunks=len(chunks), n_rows=float(chunks["n"].sum()),
        n_reference=int((chunks["period"] == "reference").sum()), reference=reference.replace("..", " – "),
        n_analysis=int((chunks["period"] == "analysis").sum()), n_alerts=len(alerted),
        last_alert=_named(alerted.loc[alerted["start"].idxmax(), "chunk"]) if len(alerted) else "",
        n_different=int((chunks["verdict"] == "rows look different").sum()), checked=checked, doubt=DOUBT,
        false_alarms=false_alarms, coverage=coverage, intervals=bool(table["lower"].notna().any()),
        colors=_colors(class_names(table)), overview=overview, segments=list(_segments(table, names, overview)),
        command=command, compared=not (table["verdict"] == "no reference").any(), rated="accuracy" in table,
        lowest=_lowest(chunks) if "accuracy" in table else None,
    )  # fmt: skip


def _lowest(chunks: pd.DataFrame) -> dict[str, Any]:
    """Return the chunk with the lowest expected accuracy, and the mean of the reference."""
    lowest, held = chunks.loc[chunks["accuracy"].idxmin()], chunks[chunks["period"] == "reference"]
    return {"accuracy": lowest["accuracy"], "chunk": _named(lowest["chunk"]), "reference": held["accuracy"].mean()}


def _named(chunk: Any) -> str:
    return chunk if isinstance(chunk, str) else f"number {chunk}"


def _colors(names: list[Any]) -> list[tuple[Any, str]]:
    """Return the classes with their colours in the plots."""
    from matplotlib.colors import to_hex

    return [(name, to_hex(color_of(j))) for j, name in enumerate(names)]


def _overview(chunks: pd.DataFrame, alerted: NDArray, names: list[str]) -> list[dict[str, Any]]:
    """Return one row per segment: the numbers of chunks and alerts, and the verdict of the last chunk."""
    groups = chunks.assign(alerted=alerted).groupby(names, sort=False)
    found = [
        {"key": key, "name": _segment_name(names, key), "n_chunks": len(part), "n_alerts": int(part["alerted"].sum()),
         "last": part["chunk"].iloc[-1], "verdict": part["verdict"].iloc[-1]}
        for key, part in groups
    ]  # fmt: skip
    drawn = sorted(range(len(found)), key=lambda i: -found[i]["n_alerts"])[:_MOST_SEGMENTS]
    return [{**row, "drawn": i in drawn} for i, row in enumerate(found)]


def _segment_name(names: list[str], key: tuple[Any, ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))


def _segments(table: pd.DataFrame, names: list[str], overview: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the plots and the table of each drawn segment."""
    drawn = {row["key"] for row in overview if row["drawn"]}
    groups = table.groupby(names, sort=False) if names else [((), table)]
    for key, part in groups:
        if names and key not in drawn:
            continue
        draw = functools.partial(_draw_mix, part)
        own = [(name, image(functools.partial(_draw_class, part, name), (4.8, 2.2))) for name in shown_classes(part)]
        rated = ["accuracy", "f1"] if "accuracy" in part else []
        rows = [
            {**group.iloc[0][["chunk", "n", "period", "verdict", *rated]].to_dict(), "cells": group.to_dict("records")}
            for _, group in reversed(list(part.groupby("chunk", sort=False)))
        ]
        performance = image(functools.partial(_draw_performance, part), (10, 2.4)) if rated else ""
        yield {
            "name": _segment_name(names, key), "wide": image(draw, (10, 3.4)), "narrow": image(draw, (4.4, 2.6)),
            "classes": own, "rows": rows, "performance": performance,
        }  # fmt: skip


def _draw_mix(part: pd.DataFrame, figure: Any) -> None:
    draw_mix(part, figure.subplots(), legend=False)


def _draw_class(part: pd.DataFrame, name: Any, figure: Any) -> None:
    draw_class(part, name, figure.subplots())


def _draw_performance(part: pd.DataFrame, figure: Any) -> None:
    draw_performance(part, figure.subplots())
