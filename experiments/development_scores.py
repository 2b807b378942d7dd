"""Posteriors of development tables: few to many labelled rows, three classifiers, and rows for bags; kept on disk.

Fitting classifiers takes most of the time of a comparison. A file has the posteriors of one table, redraw, number of
labelled rows and classifier. Existing files are kept, so an interrupted run resumes.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import histnetq as hq
from experiments.defaults import CLASSIFIERS, split_rows
from experiments.development_tables import DevelopmentTable

Floats = NDArray[np.float64]
LABELS = (50, 200, 1000, 0)  # labelled rows; 0 stands for all
_FEWEST, _FEWEST_IN_POOL = 3, 5  # rows of a class: labelled, and for bags


@dataclass(frozen=True)
class Scored:
    """Posteriors of labelled rows and of rows for bags.

    Attributes
    ----------
    table, classifier : str
    redraw, n_labels : int
        Number of the redraw, and labelled rows; 0 stands for all.
    posteriors : (n_labelled, n_classes)
        Out-of-fold posteriors.
    labels : (n_labelled,)
    pool : (n_pool, n_classes)
    pool_labels : (n_pool,)
    """

    table: str
    classifier: str
    redraw: int
    n_labels: int
    posteriors: Floats
    labels: NDArray[np.int64]
    pool: Floats
    pool_labels: NDArray[np.int64]

    @property
    def name(self) -> str:
        """Name of the file without its ending."""
        return f"{self.table}-{self.redraw}-{self.n_labels}-{self.classifier}"

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.pool.shape[1]

    @property
    def seed(self) -> int:
        """Seed of the bags; other redraws and numbers of labels have other bags, and all classifiers the same."""
        return zlib.crc32(f"{self.table}-{self.redraw}-{self.n_labels}".encode())

    @property
    def training(self) -> Floats:
        """Shares of the classes among the labelled rows."""
        found: Floats = np.bincount(self.labels, minlength=self.n_classes) / len(self.labels)
        return found


def choose_labelled(table: DevelopmentTable, n_labels: int, seed: int) -> tuple[NDArray, NDArray] | None:
    """Return labelled rows, with at least three of each class, and rows for bags; None if there are too few."""
    labelled, test = split_rows(table, seed)
    if n_labels:
        if n_labels >= len(labelled) or n_labels < _FEWEST * table.n_classes:
            return None
        order = np.random.default_rng((seed, n_labels)).permutation(labelled)
        codes = table.labels[order]
        first = np.concatenate([np.flatnonzero(codes == k)[:_FEWEST] for k in range(table.n_classes)])
        others = np.setdiff1d(np.arange(len(order)), first)[: n_labels - len(first)]
        labelled = np.sort(order[np.concatenate([first, others])])
    counts = [np.bincount(table.labels[rows], minlength=table.n_classes).min() for rows in (labelled, test)]
    return (labelled, test) if counts[0] >= 2 and counts[1] >= _FEWEST_IN_POOL else None


def write_scores(
    tables: Sequence[DevelopmentTable], redraws: int, place: Path, say: Callable[[str], Any] = print
) -> None:
    """Fit classifiers and write their posteriors, one redraw of all tables after the other."""
    place.mkdir(parents=True, exist_ok=True)
    for redraw, n_labels in product(range(redraws), LABELS):
        for table, classifier in product(tables, CLASSIFIERS):
            path = place / f"{table.name}-{redraw}-{n_labels}-{classifier}.npz"
            chosen = None if path.exists() else choose_labelled(table, n_labels, redraw)
            if chosen is None:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    arrays = _scored(table, *chosen, classifier, redraw)
                except ValueError:  # such as a class with fewer rows than boosting needs
                    continue
            unfinished = path.with_suffix(f".{os.getpid()}.part")
            with open(unfinished, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            os.replace(unfinished, path)
        say(f"redraw {redraw}, {n_labels or 'all'} labelled rows: scored")


def _scored(
    table: DevelopmentTable, labelled: NDArray, test: NDArray, classifier: str, seed: int
) -> dict[str, NDArray]:
    crossed = hq.EMQ(classifier, random_state=seed).cross_fit(table.rows[labelled], table.labels[labelled])
    pool = np.zeros((len(test), table.n_classes))
    pool[:, crossed.columns] = crossed.classifier.predict_proba(table.rows[test])
    return {
        "posteriors": crossed.posteriors.astype(np.float32), "labels": crossed.labels.astype(np.uint8),
        "pool": pool.astype(np.float32), "pool_labels": table.labels[test].astype(np.uint8),
    }  # fmt: skip


def read_scores(place: Path, redraws: int | None = None) -> Iterator[Scored]:
    """Yield what `write_scores` wrote, redraw by redraw."""
    found = []
    for path in place.glob("*.npz"):
        table, redraw, n_labels, classifier = path.stem.rsplit("-", 3)
        if redraws is None or int(redraw) < redraws:
            found.append((int(redraw), int(n_labels), table, classifier, path))
    for number, n_rows, name, kind, file in sorted(found):
        with np.load(file, allow_pickle=False) as arrays:
            p, pool = (arrays[part].astype(np.float64) for part in ("posteriors", "pool"))
            codes = [arrays[part].astype(np.int64) for part in ("labels", "pool_labels")]
        p, pool = (values / values.sum(1, keepdims=True) for values in (p, pool))
        yield Scored(name, kind, number, n_rows, p, codes[0], pool, codes[1])
