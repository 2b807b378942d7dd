"""Measures the default fit to labelled rows on development tables: its errors, its seconds, and its intervals."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import histnetq as hq
from experiments.defaults import split_rows
from experiments.development_tables import DevelopmentTable

BY_HAND = ("forest", "boosting")  # classifiers of EMQ-BCTS that is fitted to all labelled rows
TABLES_OF_INTERVALS = ("spam", "Satellite", "Vehicle", "PimaIndiansDiabetes", "digits")
SIZES = (20, 100, 1000, 10_000)
Run = Callable[[DevelopmentTable, int], list[dict[str, Any]]]


def errors_of(table: DevelopmentTable, seed: int, n_bags: int = 100, size: int = 100) -> list[dict[str, Any]]:
    """Return the mean AE of the default fit and of EMQ-BCTS on a forest and on boosting."""
    rows, labels, pool = _split(table, seed)
    bags, found = hq.APP(size).draw(pool, n_bags, random_state=seed), []
    fits: dict[str, Callable[[], Any]] = {"default": lambda: hq.fit_best(rows, labels, random_state=seed)[0]}
    for name in BY_HAND:
        fits[f"EMQ, bcts ({name})"] = partial(
            hq.EMQ(name, rescaling="bcts", random_state=seed).fit, rows, labels
        )  # fmt: skip
    for name, fit in fits.items():
        began = time.perf_counter()
        model = fit()
        seconds, errors = time.perf_counter() - began, hq.evaluate(model, bags)
        found.append({
            "table": table.name, "classes": table.n_classes, "split": seed, "method": name,
            "classifier": model.classifier, "ae": round(float(errors["ae"].mean()), 5), "seconds": round(seconds, 2),
        })  # fmt: skip
    return found


def intervals_of(
    table: DevelopmentTable, seed: int, n_conformal: int = 400, n_bayes: int = 400, sizes: Iterable[int] = SIZES
) -> list[dict[str, Any]]:
    """Return coverage and mean width of 90 % intervals of the default fit, conformal and Bayesian ones of some bags."""
    rows, labels, pool = _split(table, seed)
    model, found = hq.fit_best(rows, labels, random_state=seed)[0], []
    for size in sizes:
        bags = hq.APP(size).draw(pool, max(n_conformal, n_bayes), random_state=seed)
        for name, some in (("conformal", bags[:n_conformal]), ("bayes", bags[:n_bayes])):
            if not len(some):
                continue
            given, truth = model.predict_interval(some, method=name), some.prevalences
            assert truth is not None
            found.append({
                "table": table.name, "classes": table.n_classes, "split": seed, "size": size, "interval": name,
                "bags": len(some), "coverage": round(float(given.contains(truth).mean()), 4),
                "joint": round(float(given.region.contains(truth).mean()), 4),
                "width": round(float((given.upper - given.lower).mean()), 5),
                "doubted": round(float((model.trust(some)["trust"] != "ok").mean()), 4),
            })  # fmt: skip
    return found


def run_all(
    run: Run, tables: Iterable[DevelopmentTable], splits: int, path: Path, say: Callable[[str], Any] = print
) -> None:
    """Append the rows of all tables and splits to a CSV file; finished ones are not repeated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables, done = list(tables), set()
    if path.exists():
        with path.open(newline="") as file:
            done = {(row["table"], int(row["split"])) for row in csv.DictReader(file)}
    for seed in range(splits):
        for table in tables:
            if (table.name, seed) in done:
                continue
            rows, is_new = run(table, seed), not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                if is_new:
                    writer.writeheader()
                writer.writerows(rows)
                file.flush()
                os.fsync(file.fileno())
            say(f"{table.name}, split {seed}")


def errors_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the mean AE and the mean seconds of each method."""
    kinds = found.assign(kind=np.where(found["classes"] > 2, "AE, more", "AE, two classes"))
    means = kinds.pivot_table("ae", "method", "kind").reindex(columns=["AE, two classes", "AE, more"])
    own = found.groupby("method")
    means = means.assign(AE=own["ae"].mean(), seconds=own["seconds"].mean().round(1))
    return means.rename_axis(columns=None).reset_index()


def intervals_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the mean coverage and width by the size of bags, for conformal and Bayes intervals."""
    means = found.groupby(["size", "interval"])[["coverage", "joint", "width", "doubted"]].mean().round(4)
    return means.reset_index()


def _split(table: DevelopmentTable, seed: int) -> tuple[Any, Any, hq.Bags]:
    """Return the labelled half, and the other half as a pool to draw bags from."""
    labelled, test = split_rows(table, seed)
    pool = hq.Bags.from_labels(table.rows[test], table.labels[test], classes=np.arange(table.n_classes))
    return table.rows[labelled], table.labels[labelled], pool
