"""Compares default settings of classical methods on development tables, with the same classifiers and bags."""

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
from experiments.development_tables import DevelopmentTable

CLASSIFIERS = ("logistic", "forest", "boosting")
_DYS_BINS = hq.DyS().n_bins  # as in its paper
_HD_BINS = tuple(range(10, 111, 10))  # as in the paper of HDy and HDx
METHODS: dict[str, Callable[[], Any]] = {  # the name of a method alone is its default
    "DyS": hq.DyS,
    "DyS, 8 bins": lambda: hq.DyS(n_bins=8),
    "DyS, 10 to 110 bins": lambda: hq.DyS(n_bins=_HD_BINS),
    "HDy": hq.HDy,
    "HDy, 2 to 30 bins": lambda: hq.DyS(n_bins=_DYS_BINS, divergence="hellinger"),
    "KDEy": hq.KDEy,
    "KDEy, 0.05": lambda: hq.KDEy(bandwidth=0.05),
    "KDEy, 0.2": lambda: hq.KDEy(bandwidth=0.2),
    "MS": hq.MS,
    "MS, median2": lambda: hq.MS(policy="median2"),
    "MS, max": lambda: hq.MS(policy="max"),
    "ACC": hq.ACC,
    "ACC, inverse": lambda: hq.ACC(solver="inverse"),
    "PACC": hq.PACC,
    "PACC, inverse": lambda: hq.PACC(solver="inverse"),
    "RLLS": hq.RLLS,
    "RLLS, 0.1": lambda: hq.RLLS(alpha=0.1),
    "ED": hq.ED,
    "EMQ": hq.EMQ,
    "EMQ, bcts": lambda: hq.EMQ(rescaling="bcts"),
    "EMQ, mean": lambda: hq.EMQ(estimate="mean"),
    "EMQ, median": lambda: hq.EMQ(estimate="median"),
    "EMQ, bcts, mean": lambda: hq.EMQ(rescaling="bcts", estimate="mean"),
    "EMQ, bcts, median": lambda: hq.EMQ(rescaling="bcts", estimate="median"),
}
ON_FEATURES: dict[str, Callable[[], Any]] = {
    "HDx": hq.HDx,
    "HDx, 20 bins": lambda: hq.HDx(n_bins=20),
    "HDx, 10 to 110 bins": lambda: hq.HDx(n_bins=_HD_BINS),
    "EDx": hq.EDx,
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
    found: list[dict[str, Any]] = []

    def measure(classifier: str, name: str, fit: Callable[[], Any], before: float = 0.0) -> None:
        began = time.perf_counter()
        errors = hq.evaluate(fit(), bags)
        found.append({
            "table": table.name, "classes": table.n_classes, "split": seed, "classifier": classifier,
            "method": name, "ae": round(float(errors["ae"].mean()), 5), "rae": round(float(errors["rae"].mean()), 5),
            "seconds": round(before + time.perf_counter() - began, 2),
        })  # fmt: skip

    for classifier in CLASSIFIERS:
        began = time.perf_counter()
        crossed = hq.EMQ(classifier, random_state=seed).cross_fit(table.rows[labelled], table.labels[labelled])
        fitting = time.perf_counter() - began
        for name, make in METHODS.items():
            measure(classifier, name, partial(make().fit_crossed, crossed), fitting)
    for name, make in ON_FEATURES.items():
        measure("none", name, partial(make().fit, table.rows[labelled], table.labels[labelled]))
    return found


def run_all(tables: Iterable[DevelopmentTable], splits: int, path: Path, say: Callable[[str], Any] = print) -> None:
    """Append the rows of all tables and splits to a CSV file; finished ones are not repeated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = list(tables)
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
            say(f"{table.name}, split {seed}")


def defaults_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return the mean AE of each method over tables and splits, and how often it beats the method's default."""
    kinds = np.where(found["classes"] > 2, "more", "two")
    errors = found.pivot_table("ae", ["table", "split", "classifier"], "method")
    means = found.assign(kind=kinds).pivot_table("ae", "method", "kind").reindex(columns=["two", "more"])
    return pd.DataFrame({
        "method": means.index, "AE, two classes": means["two"].to_numpy(), "AE, more": means["more"].to_numpy(),
        "better than the default": [_share_of_wins(errors, name) for name in means.index],
    })  # fmt: skip


def _share_of_wins(errors: pd.DataFrame, name: str) -> float:
    """Return how often a setting has a lower error than the default of its method; NaN for the default itself."""
    default = name.partition(",")[0]
    if name == default:
        return float("nan")
    both = errors[[name, default]].dropna()  # methods on features have no classifier
    return float((both[name] < both[default]).mean())
