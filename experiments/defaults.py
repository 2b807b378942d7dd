"""Compares default settings of classical methods on development tables, with the same classifiers and bags."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import histnetq as hq
from experiments.development_tables import DevelopmentTable

CLASSIFIERS = ("logistic", "forest", "boosting")
_DYS_BINS = (*range(2, 21, 2), 30)  # as in the paper of DyS
METHODS: dict[str, Callable[[], Any]] = {
    "CC": hq.CC,
    "PACC": hq.PACC,
    "EMQ": hq.EMQ,
    "EMQ-bcts": lambda: hq.EMQ(rescaling="bcts"),
    "EMQ-ts": lambda: hq.EMQ(rescaling="ts"),
    "EMQ-shrunk": lambda: hq.EMQ(rescaling="shrunk"),
    "KDEy": hq.KDEy,
    "KDEy-0.05": lambda: hq.KDEy(bandwidth=0.05),
    "KDEy-0.2": lambda: hq.KDEy(bandwidth=0.2),
    "ED": hq.ED,
    "HDy": hq.HDy,
    "DyS-8": lambda: hq.DyS(n_bins=8),
    "DyS-median": lambda: hq.DyS(n_bins=_DYS_BINS),
    "MS": hq.MS,
    "MS-median2": lambda: hq.MS(policy="median2"),
}
FIELDS = ("table", "classes", "split", "classifier", "method", "ae", "rae", "seconds")


def split_rows(table: DevelopmentTable, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return row numbers of a labelled half and of a test half, with the same classes in both."""
    rng, halves = np.random.default_rng(seed), ([], [])  # type: ignore[var-annotated]
    for code in range(table.n_classes):
        rows = rng.permutation(np.flatnonzero(table.labels == code))
        halves[0].append(rows[: len(rows) // 2])
        halves[1].append(rows[len(rows) // 2 :])
    return np.sort(np.concatenate(halves[0])), np.sort(np.concatenate(halves[1]))


def run(table: DevelopmentTable, seed: int, n_bags: int = 100, size: int = 100) -> list[dict[str, Any]]:
    """Return one row per classifier and method: the errors on bags with uniformly drawn mixes."""
    labelled, test = split_rows(table, seed)
    classes = np.arange(table.n_classes)
    pool = hq.Bags.from_labels(table.rows[test], table.labels[test], classes=classes)
    bags = hq.APP(size).draw(pool, n_bags, random_state=seed)
    found = []
    for classifier in CLASSIFIERS:
        began = time.perf_counter()
        crossed = hq.EMQ(classifier, random_state=seed).cross_fit(table.rows[labelled], table.labels[labelled])
        fitting = time.perf_counter() - began
        for name, make in METHODS.items():
            began = time.perf_counter()
            errors = hq.evaluate(make().fit_crossed(crossed), bags)
            found.append({
                "table": table.name, "classes": table.n_classes, "split": seed, "classifier": classifier,
                "method": name, "ae": float(errors["ae"].mean()), "rae": float(errors["rae"].mean()),
                "seconds": round(fitting + time.perf_counter() - began, 2),
            })  # fmt: skip
    return found


def run_all(tables: list[DevelopmentTable], splits: int, path: Path) -> None:
    """Append the rows of all tables and splits to a CSV file; those it has are not repeated."""
    done = set()
    if path.exists():
        with path.open(newline="") as file:
            done = {(row["table"], int(row["split"])) for row in csv.DictReader(file)}
    for seed in range(splits):
        for table in tables:
            if (table.name, seed) in done:
                continue
            rows = run(table, seed)
            is_new = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if is_new:
                    writer.writeheader()
                writer.writerows(rows)
                file.flush()
                os.fsync(file.fileno())
            print(table.name, seed, flush=True)
