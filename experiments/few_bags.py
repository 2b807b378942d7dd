"""Intervals from few calibration bags: how often they hold the truth, and how wide they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import histnetq as hq

__all__ = ["BAGS", "CLASSES", "few_bags", "summary"]

BAGS, CLASSES = (20, 40, 80, 200), (3, 10, 26)
_COVERAGE, _ROWS, _TEST_BAGS = 0.9, (50, 150), 400
_LEARNED, _HELD = 150, 600  # rows of each class


def few_bags(draws: int) -> pd.DataFrame:
    """One row per number of classes, method, number of calibration bags and draw of them."""
    rows = []
    for n_classes in CLASSES:
        learned, pool = _simulated(n_classes)
        models = {"PACC": hq.PACC(random_state=0).fit(learned), "EMQ": hq.EMQ(random_state=0).fit(learned)}
        for draw, test in _drawn(pool, draws, _TEST_BAGS):
            assert test.prevalences is not None
            truth = test.prevalences
            for method, model in models.items():
                estimates = model.predict(test)
                for n in BAGS:
                    model.calibrate(_draw(pool, n, 1000 + draw))
                    assert model.calibration_ is not None
                    found = model.calibration_.intervals(estimates, test.sizes, _COVERAGE)
                    inside, width = found.contains(truth), found.upper - found.lower
                    by_class, at_zero = inside.mean(0), estimates < 1e-3
                    rows.append({
                        "classes": n_classes, "method": method, "calibration_bags": n, "draw": draw,
                        "coverage": inside.mean(), "lowest_class": by_class.min(), "highest_class": by_class.max(),
                        "at_zero": inside[at_zero].mean() if at_zero.any() else np.nan, "width": width.mean(),
                        "largest_width": width.max(), "empty": float((width == 0).mean()),
                    })  # fmt: skip
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the draws; the largest width of all, and the standard deviation of the coverage."""
    grouped = table.groupby(["classes", "method", "calibration_bags"], sort=False)
    means = grouped[["coverage", "lowest_class", "highest_class", "at_zero", "width"]].mean()
    means.insert(1, "coverage_sd", grouped["coverage"].std())
    return means.join(grouped[["largest_width", "empty"]].max()).reset_index()


def _simulated(n_classes: int) -> tuple[hq.Bags, hq.Bags]:
    """Labelled rows to learn from and others to draw bags from: normal classes that overlap, in 8 dimensions."""
    rng = np.random.default_rng(n_classes)
    centers, parts = rng.normal(size=(n_classes, 8)) * 1.2, []
    for n in (_LEARNED, _HELD):
        labels = np.repeat(np.arange(n_classes), n)
        parts.append(hq.Bags.from_labels(centers[labels] + rng.normal(size=(len(labels), 8)), labels))
    return parts[0], parts[1]


def _drawn(pool: hq.Bags, draws: int, n_bags: int) -> Iterator[tuple[int, hq.Bags]]:
    return ((draw, _draw(pool, n_bags, draw)) for draw in range(draws))


def _draw(pool: hq.Bags, n_bags: int, seed: int) -> hq.Bags:
    """Draw bags with mostly rare or absent classes."""
    return hq.Dirichlet(0.3, _ROWS).draw(pool, n_bags, random_state=seed)
