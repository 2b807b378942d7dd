"""Intervals without calibration bags: how often they hold the truth, beside conformal ones of the same method."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

import histnetq as hq
from experiments.presets import PRESETS, read_labels, read_split
from histnetq.quantifiers.classical.cross_fitting import CrossFitted
from histnetq.uncertainty.conformal import Calibration

__all__ = ["DATA", "METHODS", "run_bayes", "summary"]

DATA = ("digits", "imdb", "imdb-500")
LEVELS = (0.8, 0.9, 0.95)
METHODS: dict[str, Any] = {"EMQ": hq.EMQ(rescaling="bcts"), "PACC": hq.PACC(), "ACC": hq.ACC(), "CC": hq.CC()}
_CALIBRATION_BAGS = 500


def run_bayes(name: str, data: Path | None, splits: int, n_bags: int) -> pd.DataFrame:
    """One row per method, split and level: coverage and width of Bayesian intervals, and of conformal ones."""
    rows = []
    for split, crossed, calibration, test in _splits(name, data, splits, n_bags):
        assert calibration.prevalences is not None
        for method, quantifier in METHODS.items():
            model = quantifier.fit_crossed(crossed)
            known = Calibration.of(calibration.prevalences, model.predict(calibration), calibration.sizes)
            for level in LEVELS:
                begin = time.process_time()
                bayes = model.predict_interval(test, level, method="bayes")
                seconds = time.process_time() - begin
                conformal = known.intervals(bayes.estimates, test.sizes, level)
                rows.append({
                    "data": name, "method": method, "level": level, "split": split, "n_bags": len(test),
                    **_measured(bayes, test, ""), **_measured(conformal, test, "conformal_"),
                    "ms_per_bag": 1000 * seconds / len(test),
                })  # fmt: skip
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the splits, how far single splits are from them, and the widths as parts of the conformal ones."""
    grouped = table.groupby(["data", "method", "level"], sort=False)
    columns = ["coverage", "joint", "width", "conformal_coverage", "conformal_width"]
    found = grouped[columns].mean()
    found.insert(1, "coverage_sd", grouped["coverage"].std().fillna(0.0))
    found["width_ratio"] = found["width"] / found["conformal_width"]
    return found.join(grouped["ms_per_bag"].median()).reset_index()


def _measured(found: hq.Intervals, test: hq.Bags, prefix: str) -> dict[str, float]:
    p = test.prevalences
    assert p is not None
    values = {
        "coverage": found.contains(p).mean(), "joint": found.region.contains(p).mean(),
        "width": (found.upper - found.lower).mean(),
    }  # fmt: skip
    return {f"{prefix}{key}": float(value) for key, value in values.items()}


def _splits(
    name: str, data: Path | None, splits: int, n_bags: int
) -> Iterator[tuple[int, CrossFitted, hq.Bags, hq.Bags]]:
    """Posteriors to learn from, and calibration and test bags from two halves of rows that were not learned from."""
    for split in range(splits):
        rows, labels, learned, held, C, sizes = _digits(split) if name == "digits" else _imdb(data, name, split)
        classifier = LogisticRegression(C=C, max_iter=1000)
        crossed = hq.EMQ(classifier, random_state=split).cross_fit(rows[learned], labels[learned])
        halves = train_test_split(held, stratify=labels[held], test_size=0.5, random_state=split)
        drawn = [
            hq.APP(sizes).draw(hq.Bags.from_labels(rows[half], labels[half]), n, random_state=split)
            for half, n in zip(halves, (_CALIBRATION_BAGS, n_bags), strict=True)
        ]
        yield split, crossed, drawn[0], drawn[1]


def _digits(split: int) -> tuple[Any, ...]:
    """Another half of the digits to learn from in each split."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    parts = train_test_split(np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=split)
    return rows, labels, *parts, 1.0, (20, 100)


def _imdb(data: Path | None, name: str, split: int) -> tuple[Any, ...]:
    """Return all labelled rows, or a part of them that differs between splits."""
    if data is None:
        raise ValueError(f"data: {name} needs the directory of the texts; name it by --data.")
    rows, labels, part = _read_imdb(data)
    learned = np.flatnonzero(part == 0)
    if name != "imdb":
        learned = np.random.default_rng(split).choice(learned, 500, replace=False)
    return rows, labels, learned, np.flatnonzero(part == 2), 0.01, (50, 250)


@functools.cache
def _read_imdb(data: Path) -> tuple[Any, Any, Any]:
    return PRESETS["imdb"].load(data).train.rows, read_labels("imdb", data), read_split("imdb", data)
