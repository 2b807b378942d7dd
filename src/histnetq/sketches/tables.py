"""Long tables → sketches of their bags, in one pass: memory holds the bags' sketches and a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.table_columns import Codes, plan_features, read_features, read_numbers
from histnetq.data.table_files import Part, Table, open_part, open_table, release_memory
from histnetq.sketches.sketch import BagSketch

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier

__all__ = ["sketch_table"]


def sketch_table(
    model: Quantifier, source: Any, *, bag: Sequence[str], weight: str | None = None, n_threads: int | None = None
) -> BagSketch:
    """Sketch the bags of a table that has the columns which the model learned from.

    Parameters
    ----------
    model : Quantifier
    source : path, glob, list of paths, data frame, or Part
        As in `read_bags`.
    bag : column names
        As in `read_bags`.
    weight : column name, optional
        Of survey weights.
    n_threads : int, optional
        Default: one for each core, at most 8.

    Returns
    -------
    BagSketch
        With the bags in the order in which they first occur.
    """
    table = open_part(source) if isinstance(source, Part) else open_table(source, "source")
    rows = _Rows(model, table, list(bag), weight)
    found = model.sketch_stream(rows, n_threads=n_threads)
    assert found.ids is not None
    if len(found) < len(rows.bags.values) and not isinstance(source, Part):
        lost = np.setdiff1d(np.arange(len(rows.bags.values)), found.ids)[0]
        raise ValueError(
            f"{table.name}: the rows of bag {rows.bags.values[lost]!r} all have weight 0, expected at least one that "
            "has more; leave out the bag."
        )
    release_memory()
    return replace(
        found, ids=np.array(rows.bags.values)[found.ids], unseen=rows.unseen[found.ids],
        maker=replace(found.maker, keys=tuple(bag)),
    )  # fmt: skip


class _Rows:
    """Iterates over numbers of bags, rows and weights; knows in the end which bags have which numbers."""

    def __init__(self, model: Quantifier, table: Table, keys: list[str], weight: str | None) -> None:
        if model.feature_names_ is None:
            raise ValueError("model: was fitted without column names, which tables are matched by; fit it to a table.")
        special = [*keys, *([] if weight is None else [weight])]
        table.require(special)
        self.table, self.keys, self.weight = table, keys, weight
        self.plan = plan_features(table, special, model.feature_names_)
        self.bags = Codes(table.name, keys)
        self.unseen = np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[tuple[NDArray, ...]]:
        table, weight, n = self.table, self.weight, 0
        texts = {column for column, value in self.plan.parts if value is not None}
        numbers = [column for column in [*self.plan.columns, weight] if column is not None and column not in texts]
        for batch in table.batches(numbers, [*self.keys, *sorted(texts)]):
            if batch.num_rows == 0:
                continue
            codes = self.bags.of(batch, n)
            rows, other = read_features(batch, self.plan, table.name, n)
            self.unseen = np.append(self.unseen, np.zeros(len(self.bags.place) - len(self.unseen), np.int64))
            self.unseen += np.bincount(codes[other], minlength=len(self.unseen))
            yield (codes, rows) if weight is None else (codes, rows, read_numbers(batch, weight, table.name, n))
            n += batch.num_rows
        if n == 0:
            raise ValueError(f"{table.name}: has no rows; check the file.")
