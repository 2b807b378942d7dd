"""`page`: one self-contained HTML page about the shares that a judge and human labels give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from histnetq.report.sentences import (
    describe_difference,
    describe_plan,
    describe_share,
    describe_worth,
    less_common,
    one_of_two,
)
from histnetq.report.templates import require_pages, template

if TYPE_CHECKING:
    from histnetq.workflows.judging import Judgement

__all__ = ["page"]

_MOST_DRAWN, _MOST_LEADS = 300, 6  # rows of a plot, and sentences at the beginning
_AXES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # largest shares of an axis
_TICKS = 4


def page(found: Judgement, command: str = "") -> str:
    """Return a page about the result of `histnetq.judge`; `command` is the command that creates the page."""
    require_pages()
    table, apart = found.to_frame(), found.comparisons
    systems = [None] if found.by is None else list(dict.fromkeys(table[found.by]))
    end = _axis(table[["raw", "upper"]].max().max())
    far = 0.0 if apart is None or not len(apart) else _axis(apart[["lower", "upper"]].abs().max().max())
    own = table if found.by is None else table.drop_duplicates(found.by)
    counts = {name: int(own[name].iloc[: len(systems)].sum()) for name in ("n_rows", "n_labels")}
    return template("judge_page.html").render(
        **counts, found=found, systems=systems, command=command, table=table,
        bounds_only=bool(table["estimate"].isna().all()),
        leads=_leads(found),
        shares=list(_drawn(found, table, systems, end)), ticks=_ticks(0.0, end),
        differences=[_difference(row, far) for row in one_of_two(found)[:_MOST_DRAWN]],
        difference_ticks=_ticks(-far, far), worth=describe_worth(found), plan=describe_plan(found),
        confusions=list(_confusions(found, systems)), separate=_shown(found.separate),
        agreement=_shown(found.agreement),
        error_rates=_shown(found.error_rates), ordered=_shown(found.ordered),
        n_more=max(0, len(table) - _MOST_DRAWN),
    )  # fmt: skip


def _leads(found: Judgement) -> list[str]:
    """Return the first sentences of the page: shares, without the complement of one of two classes, and differences."""
    classes = found.classes if len(found.classes) != 2 else [less_common(found)]
    rows = [row for row in _records(found.table) if row["class"] in classes]
    leads = [describe_share(row, found.by, found.level) for row in rows[:_MOST_LEADS]]
    return [*leads, *map(describe_difference, one_of_two(found)[: _MOST_LEADS - len(leads)])]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_dict("records")
    return found


def _axis(largest: float) -> float:
    """Return the end of an axis that shows all shares up to this one."""
    return next((end for end in _AXES if not largest > end), 1.0)


def _ticks(start: float, end: float) -> list[dict[str, Any]]:
    values = [start + i * (end - start) / _TICKS for i in range(_TICKS + 1)] if end > start else []
    return [{"at": 100 * i / _TICKS, "text": _signed(value) if start < 0 else f"{100 * value:.3g}"}
            for i, value in enumerate(values)]  # fmt: skip


def _signed(value: float) -> str:
    return f"{100 * value:+.3g}" if value else "0"


def _place(value: float, start: float, end: float) -> float | None:
    """Return the place of a value in percent of an axis; None if there is no value."""
    return None if math.isnan(value) else round(min(max(100 * (value - start) / (end - start), 0.0), 100.0), 2)


def _drawn(found: Judgement, table: pd.DataFrame, systems: list[Any], end: float) -> Iterator[dict[str, Any]]:
    """Yield each system with the rows of its plot: the interval, the estimate and the judge's share of each class."""
    left = _MOST_DRAWN
    for system in systems:
        own = table if found.by is None else table[table[found.by] == system]
        rows = _records(own)[: max(left, 0)]
        left -= len(rows)
        if rows:
            for row in rows:
                row["places"] = {name: _place(row[name], 0.0, end) for name in ("raw", "estimate", "lower", "upper")}
            yield {"name": system, "rows": rows}


def _difference(row: dict[str, Any], far: float) -> dict[str, Any]:
    places = {name: _place(row[name], -far, far) for name in ("difference", "lower", "upper")}
    return {**row, "places": places, "sentence": describe_difference(row)}


def _confusions(found: Judgement, systems: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each system, a row per verdict: the share of each human label among the rows with this verdict."""
    confusion = found.confusion
    if confusion is None:
        return
    for system in systems:
        own = confusion if found.by is None else confusion[confusion[found.by] == system]
        rows = []
        for verdict, part in own.groupby("verdict", sort=False, dropna=False):
            labels = {record["label"]: record for record in _records(part)}
            rows.append({"verdict": verdict, "cells": [labels.get(name) for name in found.classes],
                         "n": int(part["n"].sum()), "n_rows": int(part["n_rows"].iloc[0])})  # fmt: skip
        yield {"name": system, "rows": rows}


def _shown(table: pd.DataFrame | None) -> dict[str, Any] | None:
    """Return a table as texts for the page, or None if it is empty."""
    if table is None or not len(table):
        return None
    cells = [[_as_cell(name, value) for name, value in row.items()] for row in _records(table)]
    return {"names": [str(name).replace("_", " ") for name in table.columns], "rows": cells}


def _as_cell(name: Any, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    share = str(name) in ("estimate", "lower", "upper", "agreement")
    return "–" if math.isnan(value) else f"{100 * value:.1f} %" if share else f"{value:.3g}"
