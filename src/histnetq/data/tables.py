"""Long tables → `Bags`: one row per example, a column that says which bag it belongs to, read in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice, check_weights, drop_weightless
from histnetq.data.indexing import offsets_of
from histnetq.data.long_table import LongTable
from histnetq.data.memmap import PoolFile
from histnetq.data.table_files import open_table, release_memory
from histnetq.data.table_proportions import order_classes, read_prevalences

__all__ = ["read_bags", "read_bags_and_unseen"]

Names = str | Sequence[str]
_KINDS = {"bags": np.int32, "unseen": np.bool_, "labels": np.int64, "weights": np.float64}


def read_bags(
    source: Any,
    *,
    bag: Names,
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
    bag : str or sequence of str
        The column that names a row's bag, or several. Rows with the same values form a bag, wherever they stand. A bag
        of several columns is named by their values with ``/`` between them; a table in which two different bags would
        get one name is refused.
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

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0], "species": ["x", "x", "y"]})
    >>> read_bags(rows, bag="tow", label="species").prevalences
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    read = _read(source, bag, features, label, weight, scratch)
    return read.as_bags(weight_kind, prevalences, counts, classes)


def read_bags_and_unseen(
    source: Any, *, bag: Names, features: Sequence[str], label: str | None = None, weight: str | None = None,
    scratch: str | os.PathLike[str] | None = None, **options: Any,
) -> tuple[Bags, NDArray[np.float64]]:  # fmt: skip
    """What `read_bags` gives, and (n_bags,): the part of a bag's rows with a text that no feature stands for."""
    read = _read(source, bag, features, label, weight, scratch)
    n_bags = len(read.table.bags.place)
    n_rows, n_unseen = (np.bincount(codes, minlength=n_bags) for codes in (read.bags, read.bags[read.unseen]))
    return read.as_bags(**options), n_unseen / n_rows


@dataclass(frozen=True)
class _Rows:
    """All rows of a table."""

    table: LongTable
    rows: NDArray[np.float32]
    bags: NDArray[np.int32]
    unseen: NDArray[np.bool_]
    labels: NDArray[np.int64]
    weights: NDArray[np.float64]

    def as_bags(
        self, weight_kind: str = "survey", prevalences: Any = None, counts: bool = False,
        classes: Sequence[Any] | None = None,
    ) -> Bags:  # fmt: skip
        """The rows of each bag together, with proportions from a table or from the labels."""
        codes, label_codes = self.table.bags, self.table.labels
        order, weights = np.argsort(self.bags, kind="stable"), None
        if self.table.weight is not None:
            check_choice("weight_kind", weight_kind, ("count", "survey"))
            weights = check_weights(self.weights[order], weight_kind, len(order))
        offsets = offsets_of(np.bincount(self.bags, minlength=len(codes.place)))
        order, offsets, weights = drop_weightless(order, offsets, weights)
        # The readers of columns have checked every number.
        bags = Bags.trusted(
            self.rows, order, offsets, weights=weights, weight_kind="count" if weights is None else weight_kind,
            ids=np.array(codes.values), feature_names=self.table.plan.names,
        )  # fmt: skip
        if prevalences is not None:
            if label_codes is not None:
                raise ValueError("prevalences: expected either label= or prevalences=, got both; leave one out.")
            bags.prevalences, bags.classes = read_prevalences(prevalences, codes, counts, classes)
        elif label_codes is not None:
            bags.classes, places = order_classes(label_codes.values, classes)
            bags.labels = places[self.labels]
            bags.prevalences = bags.label_prevalences()
        return bags


def _read(
    source: Any, bag: Names, features: Sequence[str] | None, label: str | None, weight: str | None, scratch: Any
) -> _Rows:
    keys = [bag] if isinstance(bag, str) else list(bag)
    table = LongTable(open_table(source, "source"), keys, features, label, weight)
    n_rows, shape = table.table.n_rows, (len(table.plan.parts),)
    rows = _Grown(n_rows, np.float32, shape) if scratch is None else PoolFile(shape, np.float32, scratch)
    others = {name: _Grown(n_rows, kind) for name, kind in _KINDS.items()}
    for piece in table:
        rows.add(piece.rows)
        for name, array in others.items():
            part = getattr(piece, name)
            if part is not None:
                array.add(part)
    release_memory()
    return _Rows(table, rows.all(), **{name: array.all() for name, array in others.items()})


class _Grown:
    """An array that is filled in parts; made at once where its length is known."""

    def __init__(self, n_rows: int | None, dtype: Any, shape: tuple[int, ...] = ()) -> None:
        self.n, self.array = 0, np.empty((n_rows or 0, *shape), dtype)

    def add(self, part: NDArray) -> None:
        if self.n + len(part) > len(self.array):
            length = max(2 * len(self.array), self.n + len(part))
            grown = np.empty((length, *self.array.shape[1:]), self.array.dtype)
            grown[: self.n] = self.array[: self.n]
            self.array = grown
        self.array[self.n : self.n + len(part)] = part
        self.n += len(part)

    def all(self) -> NDArray:
        return self.array[: self.n]
