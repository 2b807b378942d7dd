"""`read_bags`: reads bags from long tables, which have one row per example and a column with its bag."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import MOST_FRACTIONS, check_choice, check_weights, drop_weightless, nearest_name
from histnetq.bags.indexing import offsets_of
from histnetq.bags.table_facts import TableFacts
from histnetq.bags.text_features import TextFeatures
from histnetq.errors import InputError, InputTypeError, InputWarning, Option, Way
from histnetq.registry import MISSING
from histnetq.tables.budget import current_budget, name_array
from histnetq.tables.column_inspection import Watch, find_copies
from histnetq.tables.columns import (
    MOST_COUNTED,
    Codes,
    FeatureSpec,
    Plan,
    counted,
    is_exact,
    plan_features,
    read_features,
    read_weights,
    refuse_nothing,
    refuse_out_of_range,
)
from histnetq.tables.names import are_fractions
from histnetq.tables.proportions import order_classes, read_prevalences
from histnetq.tables.row_buffers import Grown, copy_rows, grown_rows
from histnetq.tables.scores import Proba, check_scores, find_scores, warn_exchanged
from histnetq.tables.suspicious_columns import warn_of_class_names, warn_of_columns, warn_of_counts
from histnetq.tables.table_files import OTHER_FEATURES, NoRowsError, Table, open_table, release_memory
from histnetq.tables.text_columns import read_text_features, with_text

Names = str | Sequence[str] | None
_FEWEST_LABELS = 20  # with this number of rows, most labels and bags should repeat
_ALIKE = 0.8  # smallest similarity of a rare class to the class that it may be a typo of
_TYPOS = 2  # rows of a class that may be a typo


def read_bags(
    source: Any,
    *,
    bag: Names = None,
    features: Sequence[str] | FeatureSpec | None = None,
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
        CSV, Parquet or Excel files with the same columns; or a pandas, polars or arrow table.
    bag : str or sequence of str, optional
        One or several columns with the bag of each row. Rows with the same values form a bag, in any order. With
        several columns, the name of a bag is their values joined by ``/``; an error is raised if two different bags
        would get the same name. By default all rows are one bag, for example labelled rows that were not drawn in
        bags.
    features : sequence of str, optional
        Names of columns. By default, all numeric columns without another use, except constant columns, columns that
        are constant within each bag, copies of the label, keys (whole numbers of which 99 % are distinct, in at least
        50 rows) and counters (whole numbers that rise, or fall, from row to row in all bags of at least 5 rows). A text
        column becomes one feature per value, named ``column=value``. Such names are also accepted here, so that the
        `feature_names_` of a model read the same features from another table, in any order of its columns. Pass
        `q.reading()` to read the features, including scores and texts, the same way as for the model `q`.
    ignore : sequence of str, optional
        Exclude these columns; the remaining features are detected automatically. Cannot be combined with `features`.
    proba : str or mapping, optional
        Columns with class probabilities of your own model, instead of features. The model must not have been trained
        on these rows. Columns are given by class, as in ``{"cod": "p_cod", "eel": "p_eel"}`` or
        ``"cod=p_cod,eel=p_eel"``, or by a pattern such as ``"p_*"``, whose star is the class. One column is enough
        for two classes in a label column. Probabilities whose sum differs from 1 by rounding, at most 0.02, are
        divided by their sum.
    prediction : str, optional
        Column with the class that your own model predicts, instead of features.
    text : str or TextFeatures, optional
        A text column. Its words and pairs of words are hashed and reduced by an SVD to at most 100 features, which
        are added to `features` if these are given, and are the only features otherwise. To read the texts of another
        table the same way, pass the `q.reading()` of a model as `features`, or ``text=bags.text``.
    label : str, optional
        The column with the class of each row. Prevalences are counted from the classes.
    weight : str, optional
        The column with the weight of each row.
    weight_kind : {"survey", "count"}, default "survey"
        Meaning of the weights, as in `Bags`: a row with the count k is k equal rows, such as k votes.
    prevalences : table, optional
        The proportions of the classes in each bag, in any kind of table that `source` accepts. In addition to the bag
        columns, it has one column per class, or the columns ``class`` and ``value``.
    counts : bool, default False
        Whether `prevalences` contains counts, which are divided by their sum.
    classes : sequence, optional
        Names and order of the classes, by default the sorted names in the table of prevalences or in the labels.
    missing : {"refuse", "drop", "mean"}, default "refuse"
        Treatment of missing values in features: raise an error, drop the rows, or fill in the mean of the feature.
    scratch : path, optional
        Directory for a file with the rows of a table larger than memory. The file is deleted with the bags.

    Returns
    -------
    Bags
        The bags, in the order of their first occurrence. Rows are float32, or float64 if float32 is too coarse for a
        column, such as seconds since 1970. Their `facts` contain the excluded columns with the reasons (`left_out`),
        the `means` of the features, and the numbers of `dropped` rows and `filled` cells. With `proba` or
        `prediction`, the rows are probabilities, and `scores` has the class of each column.

    Notes
    -----
    Names of bags and classes are the same in every kind of table. A CSV file stores no types: the names in a column
    are whole numbers or truth values if all of them can be, and texts otherwise. "None" and "NA" are names, an empty
    cell is missing, and numbers with leading zeros are texts. In numeric columns, "NA", "NaN", "null" and "None" are
    missing values. Numbers may have decimal commas if no column of the file has decimal points.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0], "species": ["x", "x", "y"]})
    >>> read_bags(rows, bag="tow", label="species").prevalences
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    opened, scores, keys = open_table(source, "source"), None, _key_columns(bag)
    if ignore and any(given is not None for given in (features, proba, prediction, text)):
        raise ValueError("ignore: expected none beside features, texts, scores or predictions, got some; leave it out.")
    if proba is not None or prediction is not None:
        if features is not None:
            raise ValueError("features: expected none beside scores or predictions, got some; leave one out.")
        special = [*keys, *(name for name in (label, weight) if name)]
        features, scores = find_scores(opened, proba, prediction, label, special, classes)
        classes = scores
    if not isinstance(text, str | TextFeatures | None):
        raise InputTypeError("text", "the name of a column, or bags.text", type(text).__name__, "name a column")
    learned = read_text_features(opened, text) if isinstance(text, str) else text
    if learned is not None:
        if learned.column in (*keys, label, weight):
            raise InputError(
                "text", "a column that says nothing else", f"{learned.column!r}, the bag or label", "name another"
            )
        if scores is not None or isinstance(features, FeatureSpec):
            raise ValueError("text: expected none beside scores or the features of a model, got some; leave one out.")
        opened, features = with_text(opened, learned), [*(features or ()), *learned.names]
    table = LongTable(opened, bag, features, label, weight, missing, scores, ignore or (), weight_kind)
    bags = table.as_bags(table.read(scratch), prevalences, counts, classes)
    if learned is not None:
        bags = bags.replaced(text=learned)
    if scores is not None and bags.labels is not None and bags.feature_names is not None:
        warn_exchanged(bags.rows, bags.labels, scores, bags.feature_names, opened.name)
    return bags


def _key_columns(bag: Names) -> list[str]:
    return [bag] if isinstance(bag, str) else list(bag or ())


def read_bags_and_unseen(
    source: Any, *, bag: Names, features: Any, label: Any = None, weight: Any = None, missing: str = "refuse",
    scratch: Any = None, weight_kind: str = "survey", **known: Any,
) -> tuple[Bags, NDArray[np.float64]]:  # fmt: skip
    """Return the bags as `read_bags` does, and the fraction of rows with an unknown category in each bag, (n_bags,)."""
    table = LongTable(open_table(source, "source"), bag, features, label, weight, missing, weight_kind=weight_kind)
    read = table.read(scratch)
    return table.as_bags(read, **known), np.bincount(read.bags, read.unseen) / np.bincount(read.bags)


def weightless(bags: Codes, number: int) -> ValueError:
    """Return the error about a bag whose rows all have weight 0."""
    return ValueError(
        f"{bags.table}: the rows of bag {bags.values[number]!r} all have weight 0, expected at least one that has "
        "more; leave out the bag."
    )


class Piece(NamedTuple):
    """Some rows of a table, with the bag, the class and the weight of each; `unseen` rows have an unknown category."""

    bags: NDArray[np.int64]
    rows: NDArray
    unseen: NDArray[np.bool_]
    labels: NDArray[np.int64] | None
    weights: NDArray[np.float64] | None


class LongTable:
    """A table whose pieces of rows can be iterated over; iterating also numbers its bags and classes.

    Parameters
    ----------
    table : Table
        The opened table.
    bag : str or sequence of str, optional
        The columns that name a bag; without them all rows are one bag.
    features : sequence of str or FeatureSpec, optional
        The features as in `read_bags`, or the features of a model.
    label, weight : str, optional
        The columns with the class and the weight of each row.
    missing : {"refuse", "drop", "mean"}, default "refuse"
        Treatment of missing values, as in `read_bags`. Iterating fills in means only if `features` contains them;
        otherwise the cells are NaN until `read` has seen all rows.
    scores : sequence, optional
        The class of each feature, if the features are class probabilities.
    ignore : sequence of str, default ()
        Columns to exclude if no features are named.
    weight_kind : {"survey", "count"}, default "survey"
        Meaning of the weights.

    Attributes
    ----------
    bags, labels : Codes
        The bags and classes read so far, in the order of their first occurrence; `labels` is None without `label`.
    plan : Plan
        The features; after `read`, also the excluded columns.
    facts : TableFacts
        Facts about the table, known after `read`.
    dropped : int
        Number of rows dropped so far.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"tow": ["a", "b", "a"], "length": [1.0, 2.0, 3.0]})
    >>> table = LongTable(open_table(frame, "source"), ["tow"], None)
    >>> [piece.bags.tolist() for piece in table], table.bags.values
    ([[0, 1, 0]], ['a', 'b'])
    """

    def __init__(
        self, table: Table, bag: Names, features: Sequence[str] | FeatureSpec | None, label: str | None = None,
        weight: Any = None, missing: str = "refuse", scores: Sequence[Any] | None = None, ignore: Sequence[str] = (),
        weight_kind: str = "survey",
    ) -> None:  # fmt: skip
        if isinstance(features, FeatureSpec) and features.text is not None:
            table = with_text(table, features.text)
        self.table, self.weight, self.missing = table, weight, check_choice("missing", missing, MISSING)
        self.weight_kind, self._whole = check_choice("weight_kind", weight_kind, ("survey", "count")), True
        self._largest = 0.0
        keys = _key_columns(bag)
        self.bags, self._dropped_bags = (Codes(table.name, keys, table.written) for _ in range(2))
        self.labels = None if label is None else Codes(table.name, [label], table.written)
        self._names, self._numbers = [*keys, *([label] if label else [])], [weight] if weight else []
        special = [*self._names, *self._numbers]
        table.require([*special, *ignore])
        if twice := [name for name in special if special.count(name) > 1]:
            expected, got = "different columns", f"{twice[0]!r} twice"
            raise InputError("bag, label, weight", expected, got, "name another column for one of them")
        self.reading = features if isinstance(features, FeatureSpec) else None
        names = list(features.names) if isinstance(features, FeatureSpec) else features
        if self.reading is not None and self.reading.weight is not None and weight is None:
            warnings.warn(
                f"{table.name}: is read without weights, but the model was fitted with the weights in column "
                f"{self.reading.weight!r}; name the column of weights, or the estimates describe only the rows.",
                UserWarning, stacklevel=2,
            )  # fmt: skip
        self._warn_of_other_kind()
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
        self._empty: dict[str, list[int]] = {}  # columns with missing values: number of cells, and the first row

    def __iter__(self) -> Iterator[Piece]:
        table, plan = self.table, self.plan
        for n, batch in table.batches([*plan.numbers, *self._numbers], [*self._names, *plan.texts]):
            rows, unseen = read_features(batch, plan, table.name, n, self._dtype)
            weights = self._read_weights(batch, n)
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
                f"{table.name}: dropped {self.dropped:,} row{'s' * (self.dropped > 1)} with missing values.",
                UserWarning, stacklevel=2,
            )  # fmt: skip
        lost = ["/".join(map(str, key)) for key in self._dropped_bags.place if key not in self.bags.place]
        if lost:
            more = f" and of {len(lost) - 1:,} other bags" if len(lost) > 1 else ""
            warnings.warn(
                f"{table.name}: no row of bag {lost[0]!r}{more} has all features: left out.",
                UserWarning, stacklevel=2,
            )  # fmt: skip

    def _read_weights(self, batch: Any, first_row: int) -> NDArray | None:
        if self.weight is None:
            return None
        weights = read_weights(batch, self.weight, self.table.name, first_row, self.weight_kind)
        self._whole = self._whole and bool((weights == np.floor(weights)).all())
        self._largest = max(self._largest, float(weights.max(initial=0)))
        return weights

    def _warn_of_other_kind(self) -> None:
        """Warn if a model was fitted with counts and the table is read with survey weights, or the reverse."""
        kinds = {"survey": "survey weights", "count": "counts"}
        if self.reading is None or self.weight is None or self.reading.weight_kind not in kinds:
            return
        learned, other = kinds[self.reading.weight_kind], kinds[self.weight_kind]
        if learned == other:
            return
        problem = (
            f"column {self.weight!r} is read as {other}, but the model was fitted with the {learned} in column "
            f"{self.reading.weight!r}"
        )
        by_option = Option("weight" if self.reading.weight_kind == "survey" else "count_column")
        remedy = (
            Way("pass ", Option("weight_kind", self.reading.weight_kind), on=("python", "service")),
            Way("name the column by ", by_option, on=("command",)), f" if it holds {learned}, too",
        )  # fmt: skip
        warnings.warn(InputWarning(self.table.name, problem=problem, remedy=remedy), stacklevel=3)

    def _warn_of_counts(self) -> None:
        """Warn of survey weights that look like counts, when a model is fitted."""
        if self.reading is None and self.weight_kind == "survey" and self._whole and 1 < self._largest <= MOST_COUNTED:
            warnings.warn(
                f"{self.table.name}: the weights in column {self.weight!r} are whole numbers, and count as survey "
                "weights, where a row remains one row; use --count-column, or weight_kind='count' in Python, if a row "
                "with the weight k stands for k rows.", UserWarning, stacklevel=4,
            )  # fmt: skip

    def _complete(self, rows: NDArray, first_row: int) -> NDArray[np.bool_]:
        """Return whether each row is kept; count missing values, and fill them with the training means of a model."""
        empty = np.isnan(rows)
        if not empty.any():
            return np.ones(len(rows), bool)
        # All features of a text column are missing together, and count once.
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
                # Earlier rows are exact enough: rounding is measured relative to a column's range, which only grows.
                rows = copy_rows(rows.all(), grown_rows(np.float64, n_features, scratch))
            rows.add(piece.rows)
            for array, part in zip(others, (piece.bags, piece.unseen, piece.labels, piece.weights), strict=True):
                if part is not None:
                    array.add(part)
        release_memory()
        bags, unseen, labels, weights = (array.all() for array in others)
        known = None if self.labels is None else labels
        return Piece(bags, self._finished(rows.all(), bags, known, watch, scratch), unseen, labels, weights)

    def _finished(self, rows: NDArray, bags: NDArray, labels: NDArray | None, watch: Watch, scratch: Any) -> NDArray:
        """Exclude columns that are not features, fill in means, and record both in `facts`."""
        filled = 0 if self.missing == "drop" else sum(cells for cells, _ in self._empty.values())
        if self.reading is not None:
            self.facts = TableFacts(dropped=self.dropped, filled=filled)
            return rows
        no_features = watch.left_out(rows, bags, labels) if self._chosen else {}
        copies = [] if labels is None or self._chosen or self._scored else self._warn_of_copies(rows, labels)
        kept = np.array([j for j in range(len(self.plan.parts)) if j not in no_features], np.int64)
        left_out = {self.plan.names[j]: why for j, why in sorted(no_features.items())} | self.plan.left_out
        if not len(kept):
            listed = ", ".join(f"{column} ({why})" for column, why in left_out.items())
            raise ValueError(f"{self.table.name}: has no columns to learn from, only {listed}; name the features.")
        kind = None if self.weight is None else self.weight_kind
        self.facts = TableFacts(left_out, watch.means[kept], self.dropped, filled, self.weight, kind)
        if not self._scored:
            self._warn_of_columns(rows, labels, watch, [j for j in kept.tolist() if j not in copies])
        if no_features or filled:
            self.plan = Plan([self.plan.parts[j] for j in kept], left_out)
            rows = copy_rows(rows, grown_rows(rows.dtype, len(kept), scratch), kept, self.facts.means).all()
        return rows

    def _warn_of_columns(self, rows: NDArray, labels: NDArray | None, watch: Watch, checked: list[int]) -> None:
        """Warn of features that are likely to spoil estimates."""
        columns, is_alone = {j: self.plan.parts[j].column for j in checked}, not self.bags.columns
        label = "" if self.labels is None else self.labels.columns[0]
        ends, places = (watch.low, watch.high), self._chosen and is_alone
        warn_of_columns(self.table.name, columns, rows, ends, labels, label=label, places=places)
        if self._chosen and self.weight is None:
            whole = [columns[j] for j in checked if watch.whole[j] and watch.low[j] >= 0]
            warn_of_counts(self.table.name, list(dict.fromkeys(whole)))

    def _warn_of_copies(self, rows: NDArray, labels: NDArray) -> list[int]:
        """Warn of named features that repeat the label, and return them."""
        copies = find_copies(rows, labels, list(range(rows.shape[1])))
        if copies and self.labels is not None:
            column, label = self.plan.names[copies[0]], self.labels.columns[0]
            warnings.warn(
                f"{self.table.name}: column {column!r} has one value for each class in {label!r}; "
                "leave it out of the features if it is a copy of the label, which other tables lack.",
                UserWarning, stacklevel=2,
            )  # fmt: skip
        return copies

    def as_bags(self, read: Piece, prevalences: Any = None, counts: Any = None, classes: Any = None) -> Bags:
        """Group the rows by bag, with proportions from another table or from the labels."""
        order, weights = np.argsort(read.bags, kind="stable"), None
        weight_kind = "count" if self.weight is None else self.weight_kind
        if self.weight is not None:
            self._warn_of_counts()
            weights = check_weights(read.weights[order], weight_kind, len(order))  # type: ignore[index]
            lost = np.flatnonzero(np.bincount(read.bags, read.weights) == 0)
            if lost.size:
                raise weightless(self.bags, int(lost[0]))
        order, offsets, weights = drop_weightless(order, offsets_of(np.bincount(read.bags)), weights)
        # `Bags.trusted` skips the checks, as every number was checked when it was read.
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
            if self._chosen and self.scores is None:
                warn_of_class_names(self.table.name, self.plan.names, list(names))
            return bags.replaced(prevalences=known, classes=names)
        if self.labels is None:
            return bags
        if classes is None:
            self._check_classes(self.labels.columns[0], self.labels.values, len(read.rows))
            self._warn_of_typos(self.labels.columns[0], self.labels.values, np.bincount(read.labels))  # type: ignore
        names, places = order_classes(self.labels.values, classes, f"{self.table.name}, {self.labels.columns[0]}")
        bags = bags.replaced(classes=names, labels=places[read.labels])
        return bags.replaced(prevalences=bags.label_prevalences())

    def _check_classes(self, column: str, values: list[Any], n_rows: int) -> None:
        """Refuse labels that are no classes, and warn if label and bag may be exchanged."""
        remedy = ("name a column of classes as ", Option("label"))
        if len(values) == 1:
            problem = f"column {column!r} has only the class {values[0]!r}, expected at least 2"
            raise InputError(self.table.name, problem=problem, remedy=("add rows of others, or ", *remedy))
        n_classes, n_bags = len(values), len(self.bags.place)
        if n_classes > MOST_FRACTIONS and are_fractions(values):
            problem = f"column {column!r} has {n_classes:,} different numbers with fractions, expected classes"
            raise InputError(self.table.name, problem=problem, remedy=remedy)
        if n_rows >= _FEWEST_LABELS and n_classes > n_rows / 2:
            problem = f"column {column!r} has {n_classes:,} different values in {n_rows:,} rows, expected classes"
            raise InputError(self.table.name, problem=problem, remedy=remedy)
        if self.reading is None and 1 < n_bags < n_classes:
            keys = ", ".join(map(repr, self.bags.columns))
            warnings.warn(
                f"{self.table.name}: the label {column!r} has {n_classes:,} classes, but {keys} only {n_bags:,} bags; "
                "exchange label and bag if they are mixed up.", UserWarning, stacklevel=3,
            )  # fmt: skip
        if self.reading is None and n_rows == n_bags >= _FEWEST_LABELS:
            keys = ", ".join(map(repr, self.bags.columns))
            warnings.warn(
                f"{self.table.name}: {keys} names a different bag in each of {n_rows:,} rows; name the column that "
                "groups rows, or leave it out if there is none.", UserWarning, stacklevel=3,
            )  # fmt: skip

    def _warn_of_typos(self, column: str, values: list[Any], n_rows: NDArray) -> None:
        """Warn of a class with hardly any rows whose name resembles another class."""
        rare = np.flatnonzero((n_rows <= _TYPOS) & (n_rows * _FEWEST_LABELS <= n_rows.max()))
        common = [value for value, n in zip(values, n_rows.tolist(), strict=True) if n > _TYPOS]
        for i in rare[:1].tolist():
            near = nearest_name(str(values[i]), common, _ALIKE)
            if near is not None and str(values[i]).isalpha():  # names with digits may well differ in them only
                warnings.warn(
                    f"{self.table.name}: the class {values[i]!r} in column {column!r} has only {n_rows[i]} of "
                    f"{n_rows.sum():,} rows; correct it to {near!r} if it is a typo.", UserWarning, stacklevel=3,
                )  # fmt: skip
