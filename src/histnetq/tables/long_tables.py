"""Long tables → `Bags`: one row per example, a column that says which bag it belongs to, read in bounded memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice, check_weights, drop_weightless
from histnetq.bags.indexing import offsets_of
from histnetq.bags.table_facts import TableFacts
from histnetq.bags.text_features import TextFeatures
from histnetq.errors import InputError, InputTypeError, Option, Way
from histnetq.registry import MISSING
from histnetq.tables.budget import current_budget, name_array
from histnetq.tables.column_inspection import Watch
from histnetq.tables.columns import (
    Codes,
    Plan,
    Reading,
    counted,
    is_exact,
    plan_features,
    read_features,
    read_numbers,
    refuse_nothing,
    refuse_out_of_range,
)
from histnetq.tables.proportions import order_classes, read_prevalences
from histnetq.tables.row_buffers import Grown, copy_rows, grown_rows
from histnetq.tables.scores import Proba, check_scores, find_scores, warn_exchanged
from histnetq.tables.table_files import OTHER_FEATURES, Table, open_table, release_memory
from histnetq.tables.text_columns import read_text_features, with_text

Names = str | Sequence[str] | None


def read_bags(
    source: Any,
    *,
    bag: Names = None,
    features: Sequence[str] | Reading | None = None,
    ignore: Sequence[str] | None = None,
    proba: Proba | None = None,
    prediction: str | None = None,
    text: str | TextFeatures | None = None,
    label: str | None = None,
    weight: str | None = None,
    weight_kind: str = "survey",
    prevalences: Any = None,
    counts: bool = False,
    classes: Sequence[Any] | None = None,
    missing: str = "refuse",
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
        Names of columns, by default of all columns of numbers that have no other use and look like measurements:
        constant columns, keys (whole numbers that 99 % of at least 50 rows have for themselves) and counters (whole
        numbers that rise, or fall, from row to row in all bags of 5 and more rows) are left out. A column of texts
        becomes one feature per value, named ``column=value``. Such names are understood too, so that the
        `feature_names_` of a model read the same features from another table, whatever the order of its columns. What
        `q.reading()` gives has the features read as the model `q` needs them, scores included.
    ignore : sequence of str, optional
        In place of `features`, names of columns that are none; which of the others are is found out as by default.
    proba : str or mapping, optional
        In place of features, the columns with the scores of a model of your own, which was not trained on these rows:
        probabilities of the classes. They are named by class, as ``{"cod": "p_cod", "eel": "p_eel"}`` or
        ``"cod=p_cod,eel=p_eel"``, or by a pattern such as ``"p_*"``, whose star stands for the class. Of two classes
        in a label column, one column is enough. Scores whose sum is rounded, within 0.02 of 1, are divided by it.
    prediction : str, optional
        In place of features, the column with the class that a model of your own predicts.
    text : str or TextFeatures, optional
        A column of texts. Hashed words and pairs of words are reduced to at most 100 features by an SVD, which stand
        beside `features` if these are named, and else alone. A model keeps what is needed to read other texts alike,
        by `q.reading()`; and so do bags: ``text=bags.text`` reads the texts of other tables as those of `bags`.
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
    missing : {"refuse", "drop", "mean"}, default "refuse"
        What is done about features without a value: the table is refused, such rows are left out, or the mean of the
        feature stands in.
    scratch : path, optional
        Directory for the rows of a table larger than memory. Their file there vanishes with the bags.

    Returns
    -------
    Bags
        The bags, in the order in which they first occur. Rows are float32, or float64 where that is too coarse for some
        column, such as seconds since 1970. Their `facts` have the columns that were left out, with the reasons, as
        `left_out`, the `means` of the features, and how many rows were `dropped` and cells `filled` as missing. With
        `proba` or `prediction` the rows are probabilities, and `scores` has the class of each column.

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
    opened, scores = open_table(source, "source"), None
    if ignore and any(given is not None for given in (features, proba, prediction, text)):
        raise ValueError("ignore: expected none beside features, texts, scores or predictions, got some; leave it out.")
    if proba is not None or prediction is not None:
        if features is not None:
            raise ValueError("features: expected none beside scores or predictions, got some; leave one out.")
        special = [*([bag] if isinstance(bag, str) else bag or ()), *(name for name in (label, weight) if name)]
        features, scores = find_scores(opened, proba, prediction, label, special, classes)
        classes = scores
    if not isinstance(text, str | TextFeatures | None):
        raise InputTypeError("text", "the name of a column, or bags.text", type(text).__name__, "name a column")
    learned = read_text_features(opened, text) if isinstance(text, str) else text
    if learned is not None and learned.column in (*([bag] if isinstance(bag, str) else bag or ()), label, weight):
        raise InputError(
            "text", "a column that says nothing else", f"{learned.column!r}, the bag or label", "name another"
        )
    if learned is not None:
        if scores is not None or isinstance(features, Reading):
            raise ValueError("text: expected none beside scores or the features of a model, got some; leave one out.")
        opened, features = with_text(opened, learned), [*(features or ()), *learned.names]
    table = LongTable(opened, bag, features, label, weight, missing, scores, ignore or ())
    bags = table.as_bags(table.read(scratch), weight_kind, prevalences, counts, classes)
    if learned is not None:
        bags = bags.replaced(text=learned)
    if scores is not None and bags.labels is not None and bags.feature_names is not None:
        warn_exchanged(bags.rows, bags.labels, scores, bags.feature_names, opened.name)
    return bags


def read_bags_and_unseen(
    source: Any, *, bag: Names, features: Any, label: Any = None, weight: Any = None, missing: str = "refuse",
    scratch: Any = None, **known: Any,
) -> tuple[Bags, NDArray[np.float64]]:  # fmt: skip
    """What `read_bags` gives, and (n_bags,): the part of a bag's rows with a text that no feature stands for."""
    table = LongTable(open_table(source, "source"), bag, features, label, weight, missing)
    read = table.read(scratch)
    return table.as_bags(read, **known), np.bincount(read.bags, read.unseen) / np.bincount(read.bags)


def weightless(bags: Codes, number: int) -> ValueError:
    """Give the error of a bag of which nothing counts."""
    return ValueError(
        f"{bags.table}: the rows of bag {bags.values[number]!r} all have weight 0, expected at least one that has "
        "more; leave out the bag."
    )


class NoRowsError(ValueError):
    """No row of a table is left after those without a value."""


class Piece(NamedTuple):
    """Some rows: finite numbers, with the number of each row's bag and class, and its weight."""

    bags: NDArray[np.int64]
    rows: NDArray
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
    features : sequence of str or Reading, optional
        The features as in `read_bags`, or how a model has them read.
    label, weight : str, optional
        The columns of the rows' classes and weights.
    missing : {"refuse", "drop", "mean"}, default "refuse"
        What is done about features without a value, as in `read_bags`. Only a model's `Reading` fills in means here;
        without one, such cells are NaN until `read` has seen all rows.
    scores : sequence, optional
        The class that each of the features is the probability of, if they are scores.
    ignore : sequence of str, default ()
        Columns that are no features, where none are named.

    Attributes
    ----------
    bags, labels : Codes
        The bags and classes met so far, in the order in which they first occur; `labels` is None without `label`.
    plan : Plan
        The features, and in the end the columns that are none.
    facts : TableFacts
        What is known of the table after `read`.
    dropped : int
        Number of rows left out so far.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0]})
    >>> table = LongTable(open_table(frame, "source"), ["tow"], None)
    >>> [piece.bags.tolist() for piece in table], table.bags.values
    ([[0, 1, 0]], ['a', 'b'])
    """

    def __init__(
        self, table: Table, bag: Names, features: Sequence[str] | Reading | None, label: str | None = None,
        weight: Any = None, missing: str = "refuse", scores: Sequence[Any] | None = None, ignore: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if isinstance(features, Reading) and features.text is not None:
            table = with_text(table, features.text)
        self.table, self.weight, self.missing = table, weight, check_choice("missing", missing, MISSING)
        keys = [bag] if isinstance(bag, str) else list(bag or ())
        self.bags, self._dropped_bags = (Codes(table.name, keys, table.written) for _ in range(2))
        self.labels = None if label is None else Codes(table.name, [label], table.written)
        self._names, self._numbers = [*keys, *([label] if label else [])], [weight] if weight else []
        special = [*self._names, *self._numbers]
        table.require([*special, *ignore])
        self.reading = features if isinstance(features, Reading) else None
        names = list(features.names) if isinstance(features, Reading) else features
        self.scores, self._scored = scores, scores is not None or (self.reading is not None and self.reading.scores)
        if self._scored and missing == "mean":
            raise ValueError("missing: expected 'refuse' or 'drop' for scores, got 'mean'; leave out rows without any.")
        if self.reading is not None and missing == "mean" and self.reading.means is None:
            raise ValueError("missing: the model does not know the means of training; fit it to a table again.")
        learned, self._chosen = self.reading is not None, names is None
        self.plan = plan_features(table, [*special, *ignore], names, self._scored, learned)
        exact = all(is_exact(table.types[column]) for column in self.plan.numbers)
        double = not exact if self.reading is None else self.reading.double
        self._dtype: Any = np.float64 if double else np.float32
        self.facts, self.dropped = TableFacts(), 0
        self._empty: dict[str, list[int]] = {}  # features without a value: number of cells, and the first row

    def __iter__(self) -> Iterator[Piece]:
        table, plan = self.table, self.plan
        for n, batch in table.batches([*plan.numbers, *self._numbers], [*self._names, *plan.texts]):
            rows, unseen = read_features(batch, plan, table.name, n, self._dtype)
            weights = None if self.weight is None else read_numbers(batch, self.weight, table.name, n)
            refuse_nothing(batch, self._names, table.name, n)
            kept = self._complete(rows, n)
            if self._scored:
                check_scores(rows, unseen, plan, table.name, n)
            if self.reading is not None and self.reading.low is not None:
                low, high = np.array(self.reading.low), np.array(self.reading.high)
                refuse_out_of_range(rows, plan, low, high, table.name, n)
            if not kept.all():
                if self.missing == "drop":
                    self._dropped_bags.of(batch.filter(~kept), n)
                batch, rows, unseen = batch.filter(kept), rows[kept], unseen[kept]
                weights = None if weights is None else weights[kept]
            if len(rows) and not (self._empty and self.missing == "refuse"):
                labels = None if self.labels is None else self.labels.of(batch, n)
                if self.labels is not None and (budget := current_budget()) is not None:
                    budget.check_classes(len(self.labels.place), self.labels.columns[0])
                yield Piece(self.bags.of(batch, n), rows, unseen, labels, weights)
        if self.missing == "refuse":
            self._refuse_empty()
        if not self.bags.place:
            raise NoRowsError(f"{table.name}: every row lacks some feature; name the features that have values.")
        if self.reading is not None and self.dropped:
            warnings.warn(
                f"{table.name}: left out {self.dropped:,} rows without some feature.", UserWarning, stacklevel=2
            )
        lost = ["/".join(map(str, key)) for key in self._dropped_bags.place if key not in self.bags.place]
        if lost:
            more = f" and of {len(lost) - 1:,} other bags" if len(lost) > 1 else ""
            warnings.warn(
                f"{table.name}: no row of bag {lost[0]!r}{more} has all features: left out.",
                UserWarning, stacklevel=2,
            )  # fmt: skip

    def _complete(self, rows: NDArray, first_row: int) -> NDArray[np.bool_]:
        """Whether each row is used; fill in what a model knows, and count what is missing."""
        empty = np.isnan(rows)
        if not empty.any():
            return np.ones(len(rows), bool)
        # A column of texts has several features, which lack a value together.
        for column, j in {self.plan.parts[j].column: j for j in np.flatnonzero(empty.any(0)).tolist()}.items():
            found = self._empty.setdefault(column, [0, first_row + int(np.argmax(empty[:, j]))])
            found[0] += int(empty[:, j].sum())
        if self.missing == "mean":
            if self.reading is not None:
                rows[empty] = np.broadcast_to(np.array(self.reading.means), rows.shape)[empty]
            return np.ones(len(rows), bool)
        self.dropped += int(empty.any(1).sum())
        return ~empty.any(1)

    def _refuse_empty(self) -> None:
        for column, (cells, row) in self._empty.items():
            more = " has" if cells == 1 else f" and {cells - 1:,} other row{'s' if cells > 2 else ''} have"
            others = f" ({len(self._empty) - 1} other columns lack some too)" if len(self._empty) > 1 else ""
            problem = f"{counted(row)}{more} nothing in column {column!r}{others}, expected "
            drop = ("pass ", Option("missing", "drop"), " to leave out such rows")
            if self._scored:
                remedy = ("fill it in", Way(", or ", *drop))
                raise InputError(self.table.name, problem=f"{problem}the score of a model", remedy=remedy)
            mean = Way(" or ", Option("missing", "mean"), " to put in the mean of training")
            features = OTHER_FEATURES if self.reading is None else ()
            remedy = ("fill it in", Way(", ", *drop), mean, *features)
            raise InputError(self.table.name, problem=f"{problem}a value", remedy=remedy)

    def read(self, scratch: Any = None) -> Piece:
        """Read all rows into memory, or into a file in the directory `scratch`."""
        watch, n_features = Watch(len(self.plan.parts)), len(self.plan.parts)
        rows = grown_rows(np.float32 if self.reading is None else self._dtype, n_features, scratch)
        others = [Grown(np.int32), Grown(np.bool_), Grown(np.int64), Grown(np.float64)]
        for piece in self:
            if self.reading is None:
                watch.add(piece.rows)
            if rows.dtype == np.float32 and watch.loses_digits():
                # What came before is exact enough: the range of a column, which rounding is measured by, only grows.
                rows = copy_rows(rows.all(), grown_rows(np.float64, n_features, scratch))
            rows.add(piece.rows)
            for array, part in zip(others, (piece.bags, piece.unseen, piece.labels, piece.weights), strict=True):
                if part is not None:
                    array.add(part)
        release_memory()
        bags, unseen, labels, weights = (array.all() for array in others)
        return Piece(bags, self._finished(rows.all(), bags, watch, scratch), unseen, labels, weights)

    def _finished(self, rows: NDArray, bags: NDArray, watch: Watch, scratch: Any) -> NDArray:
        """Leave out the columns that are no features, fill in means, and note both."""
        filled = 0 if self.missing == "drop" else sum(cells for cells, _ in self._empty.values())
        if self.reading is not None:
            self.facts = TableFacts(dropped=self.dropped, filled=filled)
            return rows
        no_features = watch.left_out(rows, bags) if self._chosen else {}
        kept = np.array([j for j in range(len(self.plan.parts)) if j not in no_features], np.int64)
        left_out = {self.plan.names[j]: why for j, why in sorted(no_features.items())} | self.plan.left_out
        if not len(kept):
            listed = ", ".join(f"{column} ({why})" for column, why in left_out.items())
            raise ValueError(f"{self.table.name}: has no columns to learn from, only {listed}; name the features.")
        self.facts = TableFacts(left_out, watch.means[kept], self.dropped, filled)
        if no_features or filled:
            self.plan = Plan([self.plan.parts[j] for j in kept], left_out)
            rows = copy_rows(rows, grown_rows(rows.dtype, len(kept), scratch), kept, self.facts.means).all()
        return rows

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
            lost = np.flatnonzero(np.bincount(read.bags, read.weights) == 0)
            if lost.size:
                raise weightless(self.bags, int(lost[0]))
        order, offsets, weights = drop_weightless(order, offsets_of(np.bincount(read.bags)), weights)
        # Without a further scan: the readers of columns have checked every number.
        bags = Bags.trusted(
            read.rows, order, offsets, weights=weights, weight_kind=weight_kind, ids=name_array(self.bags.values),
            feature_names=self.plan.names, facts=self.facts,
            scores=None if self.scores is None else np.array(self.scores),
            text=None if self.reading is None else self.reading.text,
        )  # fmt: skip
        if prevalences is not None:
            if self.labels is not None:
                either = ("either ", Option("label"), " or ", Option("prevalences"))
                raise InputError("prevalences", either, "both", "leave one out")
            if not self.bags.columns:
                raise InputError("bag", "the columns that name the bags of prevalences", "none", "name them")
            known, names = read_prevalences(prevalences, self.bags, counts, classes)
            return bags.replaced(prevalences=known, classes=names)
        if self.labels is None:
            return bags
        names, places = order_classes(self.labels.values, classes)
        bags = bags.replaced(classes=names, labels=places[read.labels])
        return bags.replaced(prevalences=bags.label_prevalences())
