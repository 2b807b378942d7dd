"""Long tables → `Bags`: one row per example, a column that says which bag it belongs to, read in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice, check_weights, drop_weightless, wrong
from histnetq.data.indexing import offsets_of
from histnetq.data.memmap import PoolFile
from histnetq.data.table_columns import Codes, plan_features, read_features, read_numbers
from histnetq.data.table_files import Table, open_table, release_memory
from histnetq.data.table_proportions import order_classes, read_prevalences

Names = str | Sequence[str] | None


def read_bags(
    source: Any,
    *,
    bag: Names = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    weight: str | None = None,
    weight_kind: str = "survey",
    prevalences: Any = None,
    counts: bool = False,
    classes: Sequence[Any] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> Bags:
    """Read bags from a long table.

    Parameters
    ----------
    source : path, glob, list of paths, or data frame
        Parquet or CSV files with the same columns; or a pandas, polars or arrow table.
    bag : str or sequence of str, optional
        The column that names a row's bag, or several. Rows with the same values form a bag, wherever they stand. A bag
        of several columns is named by their values with ``/`` between them; a table in which two different bags would
        get one name is refused. By default all rows are one bag, such as labelled rows that were not drawn in bags.
    features : sequence of str, optional
        Names of columns, by default of all columns of numbers that have no other use. A column of texts becomes one
        feature per value, named ``column=value``. Such names are understood too, so that the `feature_names_` of a
        model read the same features from another table, whatever the order of its columns.
    label : str, optional
        The column with the class of each row. Prevalences are counted from it.
    weight : str, optional
        The column with the weight of each row.
    weight_kind : {"survey", "count"}, default "survey"
        What the weights mean, as in `Bags`.
    prevalences : table, optional
        The proportions of the classes in each bag, in a table of any kind that `source` may have. Beside the columns of
        the bag it has one column per class, or the columns ``class`` and ``value``.
    counts : bool, default False
        Whether `prevalences` holds counts, which are divided by their sum.
    classes : sequence, optional
        Names and order of the classes, by default the sorted names in the table of prevalences or of labels.
    scratch : path, optional
        Directory for the rows of a table larger than memory. Their file there vanishes with the bags.

    Returns
    -------
    Bags
        The bags, in the order in which they first occur.

    Notes
    -----
    Names of bags and classes are the same from every kind of table. In a CSV file, where columns have no types, they
    are whole numbers or truth values if all of a column are, and else texts as they are written: "None" and "NA" are
    names, an empty cell is missing, and numbers with leading zeros are texts. In columns of numbers, "NA", "NaN",
    "null" and "None" are missing. Numbers may have decimal commas if no column of the file has decimal points.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0], "species": ["x", "x", "y"]})
    >>> read_bags(rows, bag="tow", label="species").prevalences
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    table = LongTable(open_table(source, "source"), bag, features, label, weight)
    return table.as_bags(table.read(scratch), weight_kind, prevalences, counts, classes)


def read_bags_and_unseen(
    source: Any, *, bag: Names, features: Any, label: Any = None, weight: Any = None, scratch: Any = None, **known: Any
) -> tuple[Bags, NDArray[np.float64]]:
    """What `read_bags` gives, and (n_bags,): the part of a bag's rows with a text that no feature stands for."""
    table = LongTable(open_table(source, "source"), bag, features, label, weight)
    read = table.read(scratch)
    return table.as_bags(read, **known), np.bincount(read.bags, read.unseen) / np.bincount(read.bags)


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
    bag : str or sequence of str, optional
        The columns that name a bag; without them all rows are one bag.
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
    >>> frame = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0]})
    >>> table = LongTable(open_table(frame, "source"), ["tow"], None)
    >>> [piece.bags.tolist() for piece in table], table.bags.values
    ([[0, 1, 0]], ['a', 'b'])
    """

    def __init__(
        self, table: Table, bag: Names, features: Sequence[str] | None, label: str | None = None, weight: Any = None
    ) -> None:
        self.table, self.weight = table, weight
        keys = [bag] if isinstance(bag, str) else list(bag or ())
        self.bags = Codes(table.name, keys, table.written)
        self.labels = None if label is None else Codes(table.name, [label], table.written)
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

    def read(self, scratch: Any = None) -> Piece:
        """Read all rows into memory, or into a file in the directory `scratch`."""
        shape = (len(self.plan.parts),)
        rows: Any = _Grown(np.float32, shape) if scratch is None else PoolFile(shape, np.float32, scratch)
        grown = [_Grown(np.int32), rows, _Grown(np.bool_), _Grown(np.int64), _Grown(np.float64)]
        for piece in self:
            for array, part in zip(grown, piece, strict=True):
                if part is not None:
                    array.add(part)
        release_memory()
        return Piece(*(array.all() for array in grown))

    def as_bags(
        self, read: Piece, weight_kind: str = "survey", prevalences: Any = None, counts: Any = None, classes: Any = None
    ) -> Bags:
        """Put the rows of each bag together, with proportions from another table or from the labels."""
        order, weights = np.argsort(read.bags, kind="stable"), None
        if self.weight is None:
            weight_kind = "count"
        else:
            check_choice("weight_kind", weight_kind, ("count", "survey"))
            weights = check_weights(read.weights[order], weight_kind, len(order))  # type: ignore[index]
        order, offsets, weights = drop_weightless(order, offsets_of(np.bincount(read.bags)), weights)
        # Without a further scan: the readers of columns have checked every number.
        bags = Bags.trusted(
            read.rows, order, offsets, weights=weights, weight_kind=weight_kind, ids=np.array(self.bags.values),
            feature_names=self.plan.names,
        )  # fmt: skip
        if prevalences is not None:
            if self.labels is not None:
                raise ValueError("prevalences: expected either label= or prevalences=, got both; leave one out.")
            if not self.bags.columns:
                raise wrong("bag", "the columns that name the bags of prevalences", "none", "name them")
            bags.prevalences, bags.classes = read_prevalences(prevalences, self.bags, counts, classes)
        elif self.labels is not None:
            bags.classes, places = order_classes(self.labels.values, classes)
            bags.labels = places[read.labels]
            bags.prevalences = bags.label_prevalences()
        return bags


class _Grown:
    """An array that grows by parts, in place: what is there is not copied."""

    def __init__(self, dtype: Any, shape: tuple[int, ...] = ()) -> None:
        self.array = np.empty((0, *shape), dtype)

    def add(self, part: NDArray) -> None:
        n = len(self.array)
        self.array.resize((n + len(part), *self.array.shape[1:]), refcheck=False)
        self.array[n:] = part

    def all(self) -> NDArray:
        return self.array
