"""Columns of judged rows: verdicts of one or several judges or scores, human labels, and how rows were drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.checks import nearest_name, shown
from histnetq.bags.indexing import natural_keys
from histnetq.errors import InputError
from histnetq.simplex import Floats, Ints
from histnetq.tables.names import are_fractions, name_of, of_one_type

__all__ = ["JudgedColumns", "as_frame", "read_columns", "require_columns"]

_LABELS_PER_BIN, _MOST_BINS = 15, 10  # of scores
_ALIKE = "name the classes alike"
_MOST_CLASSES = 1_000


@dataclass(frozen=True)
class JudgedColumns:
    """The columns of judged rows, as codes.

    Parameters
    ----------
    classes : list
        Names of the classes.
    verdict_names : list
        Name of each kind of verdict; None if the judge abstained.
    verdicts : array of int, shape (n_rows,)
        Kind of verdict of each row.
    votes : array, shape (n_rows, n_classes)
        What the judge says of each row: 1 for a class, scores, or 0 if it abstained.
    labels, second : array of int, shape (n_rows,)
        Codes of the first human label of each row, and of the second human's label; -1 means none.
    notes : list of str
        Warnings.
    """

    classes: list[Any]
    verdict_names: list[Any]
    verdicts: Ints
    votes: Floats
    labels: Ints
    second: Ints
    notes: list[str]


def as_frame(given: Any, name: str) -> pd.DataFrame:
    """Return a data frame of a frame or a dict of columns, with its rows numbered from 0."""
    if not isinstance(given, pd.DataFrame | Mapping):
        remedy = "read the table first, for example with pandas.read_csv"
        raise InputError(name, "a data frame or a dict of columns", type(given).__name__, remedy)
    try:
        frame = pd.DataFrame(given)
    except ValueError:
        remedy = "give each row a value in each column"
        raise InputError(name, "columns of the same length", "different lengths", remedy) from None
    if not len(frame):
        raise InputError(name, "at least one row", "none", "check the table")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(name, "different names of columns", f"{twice[0]!r} twice", "rename one of them")
    return frame.reset_index(drop=True)


def require_columns(frame: pd.DataFrame, name: str, columns: Any) -> None:
    """Raise an error if a column is missing."""
    for column in [columns] if isinstance(columns, str) else list(columns or ()):
        if column not in frame.columns:
            near = nearest_name(str(column), frame.columns)
            perhaps = "" if near is None else f", perhaps {near!r}"
            listed = shown(np.array(list(map(str, frame.columns))), 20)
            raise InputError(name, f"a column of the table, {listed}", repr(column), f"name one of them{perhaps}")


def read_columns(
    frame: pd.DataFrame,
    judge: str | Sequence[str] | Mapping[Any, str],
    human: Sequence[str],
    ordered: Sequence[Any] | None,
    n_systems: int,
) -> JudgedColumns:
    """Read the verdicts and labels of a frame.

    Examples
    --------
    >>> frame = pd.DataFrame({"verdict": ["yes", "no", None], "label": [None, "no", ""]})
    >>> found = read_columns(frame, "verdict", ["label"], None, 1)
    >>> found.classes, found.verdicts.tolist(), found.labels.tolist()
    (['no', 'yes'], [1, 0, 2], [-1, 0, -1])
    """
    people = [_names(frame[column]) for column in human]
    labelled = {name for column in people for name in column.tolist() if name is not None}
    judges = [judge] if isinstance(judge, str) else list(judge)
    scores = judge if isinstance(judge, Mapping) else _score_of_second(frame, judges, labelled)
    notes: list[str] = []
    if scores is not None:
        named = list(scores)
        said = set(named) | (labelled if len(named) == 1 else set())
        classes = _classes(said, labelled, ordered, notes)
        votes = _score_votes(frame, scores, classes)
        n_labels = sum(pd.notna(column).sum() for column in people[:1])
        verdicts, names = _bins(votes, classes, int(n_labels) // n_systems)
    else:
        verdict = [_names(frame[column]) for column in judges]
        said = {name for column in verdict for name in column.tolist() if name is not None}
        classes = _classes(said, labelled, ordered, notes)
        each = [_codes(column, classes) for column in verdict]
        hot = np.eye(len(classes) + 1)[:, :-1]  # the code -1 takes the last row, without a vote
        votes = sum(hot[codes] for codes in each) / np.maximum(sum((codes >= 0) for codes in each), 1)[:, None]
        kinds, verdicts = np.unique(np.stack(each, 1), axis=0, return_inverse=True)
        shown_names = [*classes, None]
        names = [
            shown_names[kind[0]] if len(kind) == 1 else " / ".join(str(shown_names[k] if k >= 0 else "–") for k in kind)
            for kind in kinds
        ]
        if len(judges) == 1:  # one kind for each class, and one for abstaining
            verdicts, names = np.where(each[0] < 0, len(classes), each[0]), shown_names
    codes = [_codes(column, classes) for column in people]
    none = np.full(len(frame), -1)
    first = none if not codes else codes[0] if len(codes) == 1 else np.where(codes[0] >= 0, codes[0], codes[1])
    both = codes[1] if len(codes) > 1 else none
    second = np.where((codes[0] >= 0) & (both >= 0), both, -1) if codes else none
    return JudgedColumns(classes, names, np.asarray(verdicts).reshape(-1), votes, first, second, notes)


def _names(column: pd.Series) -> NDArray:
    """(n_rows,): names of verdicts or labels; None in empty cells."""
    codes, values = pd.factorize(column, use_na_sentinel=True)
    names = [value.strip() if isinstance(value, str) else name_of(value) for value in np.asarray(values).tolist()]
    kept = [each for each in names if each != ""]
    typed = dict(zip(kept, of_one_type(kept, written=False), strict=True))
    return np.array([*(typed.get(each) for each in names), None], object)[codes]


def _codes(values: NDArray, classes: list[Any]) -> Ints:
    place = {name: code for code, name in enumerate(classes)}
    codes, different = pd.factorize(pd.Series(values, dtype=object), use_na_sentinel=True)
    found = np.array([*(place[name] for name in different), -1], np.int64)
    return found[codes]


def _classes(said: set[Any], labelled: set[Any], ordered: Sequence[Any] | None, notes: list[str]) -> list[Any]:
    """Return the classes that verdicts or labels name, in their order or in natural order."""
    names = said | labelled
    if len(names) > _MOST_CLASSES:
        expected = f"at most {_MOST_CLASSES:,} classes"
        raise InputError("judge", expected, f"{len(names):,}", "name a column of classes, or round the scores")
    verdicts, people = (shown(np.array(sorted(map(str, each)))) for each in (said, labelled))
    folded = {str(name).casefold(): name for name in said}
    for name in sorted(labelled - said, key=str):
        near = folded.get(str(name).casefold())
        if near is not None:
            raise InputError("human", f"{near!r}, as in the verdicts", repr(name), "use the same letters")
        notes.append(f"The judge never says {name!r}, but people do.")
    if labelled and (len({type(name) for name in names}) > 1 or not labelled & said):
        raise InputError("human", f"classes as in the verdicts, {verdicts}", people, _ALIKE)
    if len(names) < 2:
        got = f"only {next(iter(names))!r}" if names else "only empty cells"
        raise InputError("judge", "at least 2 classes", got, "check the column")
    if ordered is None:
        listed = sorted(names, key=str)
        return [listed[i] for i in np.argsort(natural_keys(listed), kind="stable")]
    given = [name_of(name) for name in ordered]
    if len(set(given)) < len(given) or not names <= set(given):
        missing = shown(np.array(sorted(map(str, names - set(given))))) if names - set(given) else "a class twice"
        got = f"{shown(np.array(list(map(str, given))))} without {missing}" if names - set(given) else missing
        raise InputError("ordered", "each class once, from the lowest to the highest", got, "name all classes")
    return given


def _score_of_second(frame: pd.DataFrame, judges: list[str], labelled: set[Any]) -> dict[Any, str] | None:
    """Return the second of two classes with the only score column, or None if the verdicts are classes."""
    column = frame[judges[0]]
    if len(judges) > 1 or not pd.api.types.is_float_dtype(column) or not are_fractions(column.dropna().unique()[:1000]):
        return None
    if len(labelled) != 2:
        got = f"scores and {len(labelled)} classes of labels"
        remedy = "pass a dict of the score column of each class"
        raise InputError("judge", "verdicts, or scores of the second of two classes", got, remedy)
    listed = sorted(labelled, key=str)
    return {listed[int(np.argsort(natural_keys(listed), kind="stable")[-1])]: judges[0]}


def _score_votes(frame: pd.DataFrame, scores: Mapping[Any, str], classes: list[Any]) -> Floats:
    """(n_rows, n_classes): scores of the classes, which add up to 1, or 0 if a score is missing."""
    votes = np.zeros((len(frame), len(classes)))
    for name, column in scores.items():
        values = pd.to_numeric(frame[column], errors="coerce").to_numpy(float)
        wrong = (frame[column].notna() & ~((values >= 0) & (values <= 1))).to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"{frame[column].iloc[row]!s} in row {row + 1} of column {column!r}"
            raise InputError("judge", "scores from 0 to 1", got, "rescale the scores")
        votes[:, classes.index(name)] = values
    if len(scores) == 1:
        if len(classes) != 2:
            raise InputError("judge", "a score column of each class", "one column", "name the others")
        only = classes.index(next(iter(scores)))
        votes[:, 1 - only] = 1 - votes[:, only]
    votes[np.isnan(votes).any(1)] = 0
    total = votes.sum(1, keepdims=True)
    return votes / np.where(total > 0, total, 1)


def _bins(votes: Floats, classes: list[Any], n_labels: int) -> tuple[Ints, list[Any]]:
    """Return groups of rows with similar scores, and their names; rows without scores are the last group."""
    answered = votes.sum(1) > 0
    n_bins = int(np.clip(n_labels // _LABELS_PER_BIN, 2, _MOST_BINS))
    if len(classes) == 2:
        values, start = votes[:, 1], np.zeros(len(votes), np.int64)
    else:
        values, start, n_bins = votes.max(1), votes.argmax(1), 2
    codes = np.full(len(votes), -1)
    names: list[Any] = []
    for k in np.unique(start[answered]):
        own = answered & (start == k)
        edges = np.unique(np.quantile(values[own], np.linspace(0, 1, n_bins + 1)[1:-1]))
        codes[own] = len(names) + np.searchsorted(edges, values[own], side="left")
        ends = [0.0, *edges.tolist(), 1.0]
        of = f"{classes[1] if len(classes) == 2 else classes[k]}: "
        names += [f"{of}{low:.2g} to {high:.2g}" for low, high in pairwise(ends)]
    codes[~answered] = len(names)
    return codes, [*names, None]
