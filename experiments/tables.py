"""Finished runs → one table beside the paper's numbers, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.paper import RESULTS
from experiments.runs import Run, Runs
from histnetq.evaluation.comparison import Comparison

__all__ = ["to_markdown", "write_frame", "write_table"]


def write_table(
    test: hq.Bags,
    train_prevalences: NDArray[np.float64],
    runs: Mapping[str, Runs],
    methods: Sequence[str],
    output: Path,
    about: str,
    paper: str | None = None,
) -> list[Comparison]:
    """Compare the finished runs on the test bags, and write ``output.csv``, ``output.md`` and ``output.tex``.

    Parameters
    ----------
    runs : measure → the runs whose estimates count for it
        Where they are the same, measures share one comparison.
    output : path without ending
    about : description of the experiment
    paper : column of the paper's table to compare with
    """
    comparisons, tables = [], []
    for kept in dict.fromkeys(runs.values()):
        measures = [measure for measure, own in runs.items() if own is kept]
        finished = {method: found for method in methods if (found := kept.read(method))}
        if not finished:
            continue
        comparison = hq.compare(
            {method: [run.estimates for run in found] for method, found in finished.items()},
            test, measures=measures, train_prevalences=train_prevalences,
        )  # fmt: skip
        comparisons.append(comparison)
        tables.append(_with_runs(comparison, finished))
    output.parent.mkdir(parents=True, exist_ok=True)
    pd.concat(tables).to_csv(output.with_suffix(".csv"), index=False, lineterminator="\n")
    numbers = RESULTS[paper] if paper else {}
    if paper:
        about += f" The last columns are the paper's, on {paper}."
    parts = [_beside(c.to_markdown(), c.measures, numbers, "| ", " |") for c in comparisons]
    output.with_suffix(".md").write_text("\n\n".join([about, *parts]) + "\n", encoding="utf-8")
    parts = [_beside(c.to_latex(), c.measures, numbers, "& ", r" \\") for c in comparisons]
    output.with_suffix(".tex").write_text("\n\n".join([f"% {about}", *parts]) + "\n", encoding="utf-8")
    return comparisons


def _beside(
    text: str, measures: Sequence[str], numbers: Mapping[str, tuple[float, float]], between: str, end: str
) -> str:
    """Add the paper's numbers to the lines of a table; `between` cells and at the `end` of a line stand these marks."""
    if not numbers:
        return text
    places = [("ae", "rae").index(measure) for measure in measures]
    lines = []
    for line in text.splitlines():
        name = line.removeprefix("| ").split(f" {between}"[:2], 1)[0].strip()
        if line.startswith("| :--"):
            cells = ["--:"] * len(places)
        elif name == "method":
            cells = [f"{measure.upper()}, paper" for measure in measures]
        else:
            cells = [f"{numbers[name][place]:.4f}" if name in numbers else "–" for place in places]
        if line.startswith(r"\begin"):
            line = line[:-1] + "r" * len(places) + "}"
        elif line.endswith(end):
            line = f"{line.removesuffix(end)} {between}{f' {between}'.join(cells)}{end}"
        lines.append(line)
    return "\n".join(lines)


def write_frame(output: Path, table: pd.DataFrame, text: str) -> None:
    """Write ``output.csv`` and, in words, ``output.md``."""
    output.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(output.with_suffix(".csv"), index=False, lineterminator="\n")
    output.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")


def to_markdown(table: pd.DataFrame) -> str:
    """Numbers with four decimals."""
    rows = [[f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row] for row in table.to_numpy()]
    numeric = [table[column].dtype.kind == "f" for column in table]
    lines = [list(table), ["--:" if number else ":--" for number in numeric], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _with_runs(comparison: Comparison, finished: Mapping[str, list[Run]]) -> pd.DataFrame:
    """The comparison's table with how each method was chosen and how long it took."""
    table = pd.read_csv(StringIO(comparison.to_csv()), keep_default_na=False)
    for column in ("validation", "fit_seconds", "predict_seconds"):
        means = {m: sum(getattr(r, column) for r in found) / len(found) for m, found in finished.items()}
        table[column] = table["method"].map(means).round(4)
    table["trials"] = table["method"].map({m: found[0].trials for m, found in finished.items()})
    table["chosen"] = table["method"].map({m: json.dumps([r.params for r in found]) for m, found in finished.items()})
    return table
