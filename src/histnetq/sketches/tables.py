"""Long tables → sketches of their bags, in one pass: memory holds the bags' sketches and a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from histnetq.sketches.sketch import BagSketch, NoSketchError
from histnetq.sketches.sketcher import SketchingModel
from histnetq.sketches.streams import CheckedRows
from histnetq.tables.budget import name_array
from histnetq.tables.columns import Codes
from histnetq.tables.long_tables import LongTable, weightless
from histnetq.tables.table_files import Table, open_table, release_memory


def sketch_table(
    model: SketchingModel, source: Any, *, bag: Sequence[str], weight: str | None = None, missing: str = "refuse",
    n_threads: int | None = None,
) -> BagSketch:  # fmt: skip
    """Sketch the bags of a table that has the columns which the model learned from.

    Parameters
    ----------
    model : Quantifier
    source : path, glob, list of paths, or data frame
        As in `read_bags`.
    bag : column names
        As in `read_bags`.
    weight : column name, optional
        Of survey weights.
    missing : {"refuse", "drop", "mean"}, default "refuse"
        What is done about features without a value, as in `read_bags`.
    n_threads : int, optional
        Default: one for each core, at most 8.

    Returns
    -------
    BagSketch
        With the bags in the order in which they first occur.
    """
    table = open_table(source, "source")
    return name_bags(*sketch_numbered(model, table, bag, weight, missing, n_threads))


def sketch_numbered(
    model: SketchingModel, table: Table, bag: Sequence[str], weight: str | None, missing: str, n_threads: int | None
) -> tuple[Codes, BagSketch | None]:
    """The bags of a table, and their sketches, whose ids are the numbers of the bags; None if no row has any weight."""
    rows = _Rows(model, table, list(bag), weight, missing)
    try:
        found = model.sketch_stream(rows, n_threads=n_threads)
    except NoSketchError:
        return rows.bags, None
    release_memory()
    return rows.bags, replace(found, unseen=rows.unseen[found.ids])


def name_bags(bags: Codes, found: BagSketch | None) -> BagSketch:
    """Give the sketches the names of their bags; refuse a bag that has none."""
    names = bags.values
    ids = np.empty(0, np.int64) if found is None else np.asarray(found.ids)
    if len(ids) < len(names):
        raise weightless(bags, int(np.setdiff1d(np.arange(len(names)), ids)[0]))
    assert found is not None
    return replace(found, ids=name_array(names)[ids], maker=replace(found.maker, keys=tuple(bags.columns)))


class _Rows:
    """Iterates over the checked rows of a table, and counts those of each bag with texts not met in training."""

    def __init__(self, model: SketchingModel, table: Table, keys: list[str], weight: str | None, missing: str) -> None:
        self.table = LongTable(table, keys, model.reading(), weight=weight, missing=missing)
        self.bags, self.unseen = self.table.bags, np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[CheckedRows]:
        for piece in self.table:
            self.unseen = np.append(self.unseen, np.zeros(len(self.bags.place) - len(self.unseen), np.int64))
            self.unseen += np.bincount(piece.bags[piece.unseen], minlength=len(self.unseen))
            yield CheckedRows(piece.bags, piece.rows, piece.weights, self.table.plan.names)
