"""Sketches of the bags in a long table, in one pass; memory holds the sketches and a few rows."""

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
    n_threads: int | None = None, weight_kind: str = "survey",
) -> BagSketch:  # fmt: skip
    """Sketch the bags of a table that has the model's columns, in the order of their first occurrence.

    The parameters are the same as in `read_bags`. By default there is one thread for each core, and at most 8.
    """
    table = open_table(source, "source")
    return name_bags(*sketch_numbered(model, table, bag, weight, missing, n_threads, weight_kind))


def sketch_numbered(
    model: SketchingModel,
    table: Table,
    bag: Sequence[str],
    weight: str | None,
    missing: str,
    n_threads: int | None,
    weight_kind: str = "survey",
) -> tuple[Codes, BagSketch | None]:
    """Return the bags of a table, and their sketches with the codes of the bags as ids; None if all weights are 0."""
    rows = _Rows(model, table, list(bag), weight, missing, weight_kind)
    try:
        found = model.sketch_stream(rows, n_threads=n_threads)
    except NoSketchError:
        return rows.bags, None
    release_memory()
    return rows.bags, replace(found, unseen=rows.unseen[found.ids])


def name_bags(bags: Codes, found: BagSketch | None) -> BagSketch:
    """Return the sketches with the names of their bags; raise an error for a bag without a sketch."""
    names = bags.values
    ids = np.empty(0, np.int64) if found is None else np.asarray(found.ids)
    if len(ids) < len(names):
        raise weightless(bags, int(np.setdiff1d(np.arange(len(names)), ids)[0]))
    assert found is not None
    return replace(found, ids=name_array(names)[ids], maker=replace(found.maker, keys=tuple(bags.columns)))


class _Rows:
    """An iterator over the rows of a table that counts the rows with unknown categories in each bag."""

    def __init__(
        self, model: SketchingModel, table: Table, keys: list[str], weight: str | None, missing: str, weight_kind: str
    ) -> None:
        self.table = LongTable(table, keys, model.reading(), weight=weight, missing=missing, weight_kind=weight_kind)
        self.bags, self.unseen = self.table.bags, np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[CheckedRows]:
        for piece in self.table:
            self.unseen = np.append(self.unseen, np.zeros(len(self.bags.place) - len(self.unseen), np.int64))
            self.unseen += np.bincount(piece.bags[piece.unseen], minlength=len(self.unseen))
            yield CheckedRows(piece.bags, piece.rows, piece.weights, self.table.plan.names)
