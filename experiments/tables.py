"""Finished runs → one table, as text, CSV and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import histnetq as hq
from experiments.runs import Run, Runs
from histnetq.comparison import Comparison

__all__ = ["write_table"]


def write_table(
    test: hq.Bags,
    train_prevalences: NDArray[np.float64],
    runs: Mapping[str, Runs],
    methods: Sequence[str],
    output: Path,
    about: str,
) -> list[Comparison]:
    """Compare the finished runs on the test bags, and write ``output.csv`` and ``output.md``.

    `runs` are those whose estimates count for each measure; where they are the same, measures share one comparison.
    """
    comparisons, tables = [], []
    for kept in dict.fromkeys(runs.values()):
        measures = [measure for measure, own in runs.items() if own is kept]
        finished = {method: found for method in methods if (found := kept.read(method))}
        comparison = hq.compare(
            {method: [run.estimates for run in found] for method, found in finished.items()},
            test, measures=measures, train_prevalences=train_prevalences,
        )  # fmt: skip
        comparisons.append(comparison)
        tables.append(_with_runs(comparison, finished))
    output.parent.mkdir(parents=True, exist_ok=True)
    pd.concat(tables).to_csv(output.with_suffix(".csv"), index=False, lineterminator="\n")
    text = "\n\n".join([about, *(comparison.to_markdown() for comparison in comparisons)])
    output.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    return comparisons


def _with_runs(comparison: Comparison, finished: Mapping[str, list[Run]]) -> pd.DataFrame:
    """The comparison's table with how each method was chosen and how long it took."""
    table = pd.read_csv(StringIO(comparison.to_csv()), keep_default_na=False)
    for column in ("validation", "fit_seconds", "predict_seconds"):
        means = {m: sum(getattr(r, column) for r in found) / len(found) for m, found in finished.items()}
        table[column] = table["method"].map(means).round(4)
    table["trials"] = table["method"].map({m: found[0].trials for m, found in finished.items()})
    table["chosen"] = table["method"].map({m: json.dumps([r.params for r in found]) for m, found in finished.items()})
    return table
