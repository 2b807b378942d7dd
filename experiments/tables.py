"""Finished runs → one table, as text, CSV and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pandas as pd

import histnetq as hq
from experiments.runs import Runs
from histnetq.comparison import Comparison
from histnetq.datasets import Dataset

__all__ = ["write_table"]


def write_table(data: Dataset, runs: Runs, methods: Sequence[str], output: Path, about: str) -> Comparison:
    """Compare the finished runs on the test bags, and write ``output.csv`` and ``output.md``."""
    finished = {method: runs.read(method) for method in methods}
    finished = {method: found for method, found in finished.items() if found}
    comparison = hq.compare(
        {method: [run.estimates for run in found] for method, found in finished.items()},
        data.test,
        train_prevalences=data.train.label_prevalences()[0],
    )
    table = pd.read_csv(StringIO(comparison.to_csv()), keep_default_na=False)
    for column in ("validation", "fit_seconds", "predict_seconds"):
        means = {m: sum(getattr(r, column) for r in found) / len(found) for m, found in finished.items()}
        table[column] = table["method"].map(means).round(4)
    table["trials"] = table["method"].map({m: found[0].trials for m, found in finished.items()})
    table["chosen"] = table["method"].map({m: json.dumps([r.params for r in found]) for m, found in finished.items()})
    output.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(output.with_suffix(".csv"), index=False, lineterminator="\n")
    output.with_suffix(".md").write_text(f"{about}\n\n{comparison.to_markdown()}\n", encoding="utf-8")
    return comparison
