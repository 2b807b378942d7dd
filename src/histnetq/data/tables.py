"""Long tables → `Bags`: one row per example, a column that says which bag it belongs to, read in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.memmap import PoolFile
from histnetq.data.table_columns import Codes, Plan, plan_features, read_features, read_numbers
from histnetq.data.table_files import Table, open_table, release_memory
from histnetq.data.table_proportions import order_classes, read_prevalences

__all__ = ["read_bags", "read_bags_and_unseen"]

Names = str | Sequence[str]


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
    bag : column name, or several
        Rows with the same value form a bag, wherever they stand. With several columns a bag is named by their values,
        with ``/`` between.
    features : column names, optional
        Default: all columns of numbers that have no other use. A column of texts becomes one feature per value, named
        ``column=value``; such names are understood too, so that the `feature_names_` of a model read the same features
        from another table, whatever the order of its columns.
    label : column name, optional
        Class of each row; prevalences are counted from it.
    weight : column name, optional
        Weight of each row.
    weight_kind : "survey" or "count"
    prevalences : table, optional
        Proportions of the classes in each bag: the bag column and one column per class, or the bag column, ``class``
        and ``value``. Read like `source`.
    counts : bool
        `prevalences` holds counts, to be divided by their sum.
    classes : sequence, optional
        Names and order of the classes. Default: as in the table of prevalences, or the sorted labels.
    scratch : path, optional
        Directory for the rows of a table larger than memory; their file there vanishes with the bags.

    Returns
    -------
    Bags
        In the order in which they first occur.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0], "species": ["x", "x", "y"]})
    >>> read_bags(rows, bag="tow", label="species").prevalences
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    return read_bags_and_unseen(
        source, bag=bag, features=features, label=label, weight=weight, weight_kind=weight_kind,
        prevalences=prevalences, counts=counts, classes=classes, scratch=scratch,
    )[0]  # fmt: skip


def read_bags_and_unseen(
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
) -> tuple[Bags, NDArray[np.float64]]:
    """What `read_bags` gives, and (n_bags,): the part of a bag's rows with a text that no feature stands for."""
    table = open_table(source, "source")
    keys = [bag] if isinstance(bag, str) else list(bag)
    special = [*keys, *(name for name in (label, weight) if name is not None)]
    table.require(special)
    plan = plan_features(table, special, features)
    read = _read(table, keys, plan, label, weight, scratch)
    order = np.argsort(read.codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(read.codes, minlength=len(read.ids)))])
    unseen = np.bincount(read.codes[read.unseen], minlength=len(read.ids)) / np.diff(offsets)
    common: dict[str, Any] = {"ids": read.ids, "feature_names": plan.names}
    if read.weights is not None:
        common |= {"weights": read.weights[order], "weight_kind": weight_kind}
    if prevalences is not None:
        if label is not None:
            raise ValueError("prevalences: expected either label= or prevalences=, got both; leave one out.")
        p, names = read_prevalences(prevalences, keys, read.ids, counts, classes)
        return Bags(read.rows, order, offsets, prevalences=p, classes=names, **common), unseen
    if read.labels is None:
        return Bags(read.rows, order, offsets, **common), unseen
    names = order_classes(read.label_names, classes)
    place = {name: i for i, name in enumerate(names)}
    labels = np.array([place[name] for name in read.label_names])[read.labels]
    bags = Bags(read.rows, order, offsets, labels=labels, classes=names, **common)
    return bags.with_prevalences(bags.label_prevalences()), unseen


@dataclass(frozen=True)
class _Read:
    rows: NDArray[np.float32]
    unseen: NDArray[np.bool_]
    codes: NDArray[np.int32]
    ids: NDArray
    labels: NDArray[np.int64] | None
    label_names: list[Any]
    weights: NDArray[np.float64] | None


def _read(
    table: Table, keys: list[str], plan: Plan, label: str | None, weight: str | None, scratch: Any = None
) -> _Read:
    bags, labels = Codes(table.name, keys), None if label is None else Codes(table.name, [label])
    texts = {column for column, value in plan.parts if value is not None}
    numbers = [column for column in [*plan.columns, weight] if column is not None and column not in texts]
    names = [*keys, *([] if label is None else [label]), *sorted(texts)]
    width = len(plan.parts)
    rows = _Grown(table.n_rows, width, np.float32) if scratch is None else PoolFile((width,), np.float32, scratch)
    unseen = _Grown(table.n_rows, None, np.bool_)
    codes = _Grown(table.n_rows, None, np.int32)
    marks = _Grown(table.n_rows if label else 0, None, np.int64)
    weights = _Grown(table.n_rows if weight else 0, None, np.float64)
    n = 0
    for batch in table.batches(numbers, names):
        if batch.num_rows == 0:
            continue
        codes.add(bags.of(batch, n))
        features, other = read_features(batch, plan, table.name, n)
        rows.add(features)
        unseen.add(other)
        if labels is not None:
            marks.add(labels.of(batch, n))
        if weight is not None:
            weights.add(read_numbers(batch, weight, table.name, n))
        n += batch.num_rows
    if n == 0:
        raise ValueError(f"{table.name}: has no rows; check the file.")
    release_memory()
    return _Read(
        rows.all(), unseen.all(), codes.all(), np.array(bags.values), None if labels is None else marks.all(),
        [] if labels is None else labels.values, None if weight is None else weights.all(),
    )  # fmt: skip


class _Grown:
    """An array that is filled in parts; made at once where its length is known."""

    def __init__(self, n_rows: int | None, width: int | None, dtype: Any) -> None:
        self.shape, self.dtype, self.n = () if width is None else (width,), dtype, 0
        self.array = np.empty((n_rows or 0, *self.shape), dtype)

    def add(self, part: NDArray) -> None:
        if self.n + len(part) > len(self.array):
            grown = np.empty((max(2 * len(self.array), self.n + len(part)), *self.shape), self.dtype)
            grown[: self.n] = self.array[: self.n]
            self.array = grown
        self.array[self.n : self.n + len(part)] = part
        self.n += len(part)

    def all(self) -> NDArray:
        return self.array[: self.n]
