"""A long table: one row per example, and columns that say which bag it belongs to; read in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.data.table_columns import Codes, plan_features, read_features, read_numbers
from histnetq.data.table_files import Table

__all__ = ["LongTable", "Piece"]


class Piece(NamedTuple):
    """Some rows: finite numbers, with the number of each row's bag and class, and its weight."""

    bags: NDArray[np.int64]
    rows: NDArray[np.float32]
    unseen: NDArray[np.bool_]
    labels: NDArray[np.int64] | None
    weights: NDArray[np.float64] | None


class LongTable:
    """Iterates over the pieces of a table; knows in the end which bags and classes have which numbers.

    Parameters
    ----------
    table : Table
        The opened table.
    keys : list of str
        The columns that name a bag.
    features : sequence of str, optional
        The features as in `read_bags`.
    label, weight : str, optional
        The columns of the rows' classes and weights.

    Attributes
    ----------
    bags, labels : Codes
        The bags and classes met so far, in the order in which they first occur; `labels` is None without `label`.
    plan : Plan
        The features.

    Examples
    --------
    >>> import pandas as pd
    >>> from histnetq.data.table_files import open_table
    >>> frame = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0]})
    >>> table = LongTable(open_table(frame, "source"), ["tow"], None)
    >>> [piece.bags.tolist() for piece in table], table.bags.values
    ([[0, 1, 0]], ['a', 'b'])
    """

    def __init__(
        self, table: Table, keys: list[str], features: Sequence[str] | None, label: str | None = None,
        weight: str | None = None,
    ) -> None:  # fmt: skip
        self.table, self.weight = table, weight
        self.bags, self.labels = Codes(table.name, keys), None if label is None else Codes(table.name, [label])
        self._names, self._numbers = [*keys, *([label] if label else [])], [weight] if weight else []
        special = [*self._names, *self._numbers]
        table.require(special)
        self.plan = plan_features(table, special, features)

    def __iter__(self) -> Iterator[Piece]:
        table, plan = self.table, self.plan
        for n, batch in table.batches([*plan.numbers, *self._numbers], [*self._names, *plan.texts]):
            bags = self.bags.of(batch, n)
            rows, unseen = read_features(batch, plan, table.name, n)
            labels = None if self.labels is None else self.labels.of(batch, n)
            weights = None if self.weight is None else read_numbers(batch, self.weight, table.name, n)
            yield Piece(bags, rows, unseen, labels, weights)
