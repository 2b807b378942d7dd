"""Score columns: matching them to classes, and checking that their numbers are probabilities."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import shown
from histnetq.simplex import row_sums
from histnetq.tables.columns import OTHER, Codes, Plan, counted
from histnetq.tables.names import of_one_type
from histnetq.tables.table_files import Table, is_number

Proba = str | Mapping[Any, str]
TOLERANCE = 0.02  # largest difference of the sum of rounded scores from 1
ROUNDING = 1e-6  # largest rounding error of scores outside [0, 1]
_FEWEST = 10  # rows of a class needed to compare its mean scores
_CLEARLY = 5.0  # standard errors between clearly different means


def find_scores(
    table: Table, proba: Proba | None, prediction: str | None, label: str | None, special: Sequence[str],
    classes: Sequence[Any] | None = None,
) -> tuple[list[str], list[Any]]:  # fmt: skip
    """Return the feature with the probability of each class, and the classes in their order (sorted by default).

    `special` are the columns with another use; the remaining arguments are as in `read_bags`.

    Examples
    --------
    >>> import pandas as pd
    >>> from histnetq.tables.table_files import open_table
    >>> frame = pd.DataFrame({"y": ["ham", "spam"], "score": [0.2, 0.9]})
    >>> find_scores(open_table(frame, "source"), "spam=score", None, "y", ["y"])
    (['1 - score', 'score'], ['ham', 'spam'])
    """
    if proba is not None and prediction is not None:
        raise ValueError("proba, prediction: expected one of them, got both; leave out the predictions.")
    if not isinstance(prediction, str | None):
        raise TypeError(f"prediction: expected the name of a column, got {type(prediction).__name__}; name one.")
    table.require([column for column in (label, prediction) if column is not None])
    found = None if label is None else sorted(_values(table, label)) if classes is None else list(classes)
    if found is not None and len(found) < 2:
        raise ValueError(f"label: expected at least 2 classes, got only {found}; add rows of others.")
    if prediction is not None:
        _refuse_special("prediction", prediction, special)
        if found is None:
            raise ValueError("prediction: expected beside the column of true classes, got no label; name it.")
        return [f"{prediction}={name}" for name in found], found
    assert proba is not None
    columns = read_proba(proba, [name for name in table.columns if name not in special])
    table.require(list(columns.values()))
    for column in columns.values():
        _refuse_special("proba", column, special)
        if not is_number(table.types[column]):
            raise ValueError(
                f"{table.name}: column {column!r} holds {table.types[column]}, expected probabilities; correct its "
                "cells, or name another column."
            )
    if found is None:
        found = sorted(of_one_type(list(columns), written=True)) if classes is None else list(classes)
    return _by_class(columns, found, label), found


def check_scores(rows: NDArray, unseen: NDArray[np.bool_], plan: Plan, table: str, first_row: int) -> None:
    """Raise an error for rows that are not class probabilities; divide rows by their sum, in place, otherwise.

    Rows with missing values (NaN) are not checked.

    Examples
    --------
    >>> from histnetq.tables.columns import Feature
    >>> rows = np.array([[0.33, 0.66]])
    >>> check_scores(rows, np.zeros(1, bool), Plan([Feature("p_a"), Feature("p_b")]), "rows.csv", 0)
    >>> rows.round(3)
    array([[0.333, 0.667]])
    """
    if unseen.any():
        where, column = counted(first_row + int(np.argmax(unseen))), plan.texts[0]
        known = shown(np.array([feature.value for feature in plan.parts]))
        raise ValueError(
            f"{table}: {where} has a class in column {column!r} that is none of {known}; use the same class names in "
            "labels and predictions, or leave out the row."
        )
    wrong = np.argwhere((rows < -ROUNDING) | (rows > 1 + ROUNDING))
    if wrong.size:
        i, j = wrong[0]
        feature = plan.parts[j]
        value = 1 - rows[i, j] if feature.complement else rows[i, j]
        raise ValueError(
            f"{table}: {counted(first_row + int(i))} has {value:g} in column {feature.column!r}, expected a "
            "probability from 0 to 1; turn logits into probabilities by a softmax (of two classes, one column by "
            "1 / (1 + exp(-x))), log-probabilities by exp, and percentages by a division by 100."
        )
    sums = row_sums(rows)
    far = np.flatnonzero(np.abs(sums - 1) > TOLERANCE)
    if far.size:
        raise ValueError(
            f"{table}: the scores of {counted(first_row + int(far[0]))} sum to {sums[far[0]]:.3g}, expected 1; name "
            "the columns of all classes, turn logits into probabilities by a softmax, and divide scores that were "
            "made for each class alone by their sum."
        )
    np.clip(rows, 0, 1, out=rows)
    rows /= sums[:, None]


def warn_exchanged(rows: NDArray, labels: NDArray, classes: Sequence[Any], columns: Sequence[str], table: str) -> None:
    """Warn if rows of another class have clearly higher scores for a class than the rows of this class.

    Examples
    --------
    >>> import warnings
    >>> rows, labels = np.tile([[0.9, 0.1], [0.2, 0.8]], (20, 1)), np.tile([1, 0], 20)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warn_exchanged(rows, labels, ["a", "b"], ["p_a", "p_b"], "rows.csv")
    >>> print(caught[0].message)
    rows.csv: rows of class 'a' have 0.2 on average in column 'p_a', and rows of class 'b' 0.9, expected more for its \
own class; see whether columns or names of classes are exchanged.
    """
    some = np.flatnonzero(np.bincount(labels, minlength=len(classes)) >= _FEWEST)
    if len(some) < 2:
        return
    own = [rows[labels == c].astype(np.float64) for c in some]
    means = np.stack([part.mean(0) for part in own])[:, some]
    errors = np.stack([part.var(0) / len(part) for part in own])[:, some]  # squared standard errors
    above = (means - np.diag(means)) ** 2 > _CLEARLY**2 * (errors + np.diag(errors))
    above &= means > np.diag(means) + TOLERANCE
    if above.any():
        j = int(np.argmax(above.any(0)))
        c = int(np.argmax(np.where(above[:, j], means[:, j], -1)))
        warnings.warn(
            f"{table}: rows of class {str(classes[some[j]])!r} have {means[j, j]:.2g} on average in column "
            f"{columns[some[j]]!r}, and rows of class {str(classes[some[c]])!r} {means[c, j]:.2g}, expected more for "
            "its own class; see whether columns or names of classes are exchanged.",
            UserWarning,
            stacklevel=3,
        )


def _values(table: Table, column: str) -> list[Any]:
    codes = Codes(table.name, [column], table.written)
    for n, batch in table.batches([], [column]):
        codes.of(batch, n)
    return codes.values


def _refuse_special(argument: str, column: str, special: Sequence[str]) -> None:
    if column in special:
        raise ValueError(
            f"{argument}: {column!r} is the bag, label or weight column; name a column with scores of a model."
        )


def read_proba(proba: Proba, columns: Sequence[str]) -> dict[str, str]:
    """Return a dictionary from the name of each class, as a text, to its column."""
    if not isinstance(proba, str | Mapping):
        raise TypeError(f"proba: expected a text or a mapping from classes to columns, got {type(proba).__name__}.")
    if isinstance(proba, Mapping):
        pairs = [(str(name), column) for name, column in proba.items()]
    elif "=" in proba:
        line = proba.replace("\n", " ").replace("\r", " ")
        parts = [part.partition("=") for part in next(csv.reader([line], skipinitialspace=True))]
        pairs = [(name.strip(), column.strip()) for name, _, column in parts]
    else:
        pairs = _matched(proba, columns)
    for name, column in pairs:
        if not name or not isinstance(column, str) or not column:
            raise ValueError(
                f"proba: expected CLASS=COLUMN, got {name}={column}; give such a pair for each class, separated by "
                "commas."
            )
    for what, names in (("the class", [name for name, _ in pairs]), ("the column", [column for _, column in pairs])):
        again = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if again is not None:
            raise ValueError(f"proba: {what} {again!r} is named twice; name each once.")
    return dict(pairs)


def _matched(pattern: str, columns: Sequence[str]) -> list[tuple[str, str]]:
    before, star, after = pattern.partition("*")
    if not star or "*" in after:
        raise ValueError(
            f"proba: expected CLASS=COLUMN pairs separated by commas, or a pattern with one star such as 'p_*', got "
            f"{pattern!r}; correct it."
        )
    found = [name for name in columns if name.startswith(before) and name.endswith(after)]
    pairs = [(name[len(before) : len(name) - len(after)], name) for name in found if len(name) >= len(pattern)]
    if not pairs:
        raise ValueError(
            f"proba: no column is like {pattern!r}, the columns are {shown(np.array(columns))}; correct it."
        )
    return pairs


def _by_class(columns: dict[str, str], classes: Sequence[Any], label: str | None) -> list[str]:
    names = [str(name) for name in classes]
    stray = next((name for name in columns if name not in names), None)
    if stray is not None:
        source = "" if label is None else f" of column {label!r}"
        raise ValueError(
            f"proba: expected one of the classes {shown(np.array(names))}{source}, got {stray!r}; correct the name, or "
            "leave out the class and divide the remaining scores by their sum."
        )
    if len(names) == 2 and len(columns) == 1:
        (column,) = columns.values()
        return [column if name in columns else f"{OTHER}{column}" for name in names]
    lacking = next((name for name in names if name not in columns), None)
    if lacking is not None or len(names) < 2:
        raise ValueError(
            f"proba: expected a column for each class, got none for {lacking or 'a second one'!r}; name it too (of two "
            "classes in a label column, one is enough)."
        )
    return [columns[name] for name in names]
