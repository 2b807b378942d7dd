"""Files for `histnetq.judge`: tables of verdicts, rows drawn to be labelled, and their labels."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.checks import check_seed, check_whole, shown
from histnetq.errors import Command, InputError, InputWarning, Option
from histnetq.simplex import Ints
from histnetq.tables.columns import counted
from histnetq.tables.json_files import as_records
from histnetq.tables.names import of_one_type
from histnetq.tables.scores import read_proba
from histnetq.tables.table_files import read_frame
from histnetq.workflows.judging import Judgement, judge

__all__ = ["as_facts", "judge_table", "sample_judged"]

Judge = str | Sequence[str] | Mapping[Any, str]
LABEL = "label"  # column that a person fills in
_ROW, _CHECK = "audit_row", "audit_check"
_TELLING = re.compile(  # names of columns that show a verdict
    r"(?<![a-z])(verdicts?|judge[a-z]*|scores?|grad(es?|ing)|ratings?|reasons?|explanations?|critiques?|rationales?|"
    r"y_?hat|pred(s|icted|ictions?)?|prob(s|as?|abilit(y|ies))?|confidences?|human)(?![a-z])", re.I
)  # fmt: skip
_SAMPLE = Command("sample", "sample_judged")


def judge_table(
    source: Any, *, judge: Judge, human: str | Sequence[str] | None = None, learned_on: Any = None,
    labelled: Any = None, ordered: Sequence[Any] | None = None, **how: Any,
) -> Judgement:  # fmt: skip
    """Estimate the shares of classes from files of verdicts and labels; this is what ``histnetq judge`` does.

    Parameters
    ----------
    source : path, glob, list of paths, or data frame
        The verdicts.
    judge : str, list of str, or dict
        As in `histnetq.judge`. A text such as ``"p_*"`` or ``"bad=p_bad,good=p_good"`` names columns of scores.
    human : str or list of str, default=None
        Columns of human labels; by default the column ``label``, if there is one.
    learned_on : path, glob, list of paths, or data frame, default=None
        The verdicts and labels of an earlier batch.
    labelled : path or data frame, default=None
        Rows of `source` that `sample_judged` drew, with their labels in the column ``label``.
    ordered : sequence, default=None
        All classes in their order.
    **how
        Further arguments of `histnetq.judge`.

    Returns
    -------
    Judgement
        Estimates with intervals.

    Examples
    --------
    >>> rows = pd.DataFrame({"verdict": ["bad", "good", "good", "good"] * 50, "answer": [f"a{i}" for i in range(200)]})
    >>> drawn = sample_judged(rows, judge="verdict", n=80)
    >>> list(drawn.columns)
    ['label', 'answer', 'audit_row', 'audit_check']
    >>> drawn["label"] = ["bad", "good"] * 40
    >>> found = judge_table(rows, judge="verdict", labelled=drawn, labels="random")
    >>> found.to_frame()["estimate"].round(1).tolist()
    [0.5, 0.5]
    """
    from histnetq.workflows.judging import judge as estimate

    frame = read_frame(source, "source")
    earlier = None if learned_on is None else read_frame(learned_on, "learned_on")
    if labelled is not None:
        human = human or LABEL
        frame = _with_labels(frame, read_frame(labelled, "labelled"), human)
    elif human is None and LABEL in (frame if earlier is None else earlier):
        human = LABEL
    if ordered is not None:
        ordered = of_one_type(list(ordered), written=True)
    columns = _as_columns(judge, list(frame.columns))
    return estimate(frame, judge=columns, human=human, learned_on=earlier, ordered=ordered, **how)


def sample_judged(
    source: Any, *, judge: Judge, human: str | Sequence[str] | None = None, labels: Any = None, by: str | None = None,
    n: int = 200, plan: float | None = None, design: Literal["random", "by-verdict"] = "random", random_state: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Draw rows without a human label to be labelled; this is what ``histnetq sample --judge`` does.

    The rows come in random order, so that you may stop at any row. Columns that show the verdict, the system or earlier
    labels are left out, so that labels do not depend on them.

    Parameters
    ----------
    source : path, glob, list of paths, or data frame
        The verdicts.
    judge, human, labels, by : optional
        As in `histnetq.judge`.
    n : int, default=200
        Number of rows drawn at random from each system; ignored with `plan`.
    plan : float, default=None
        Half-width of the intervals; the rows that the plan of `histnetq.judge` needs are drawn.
    design : {"random", "by-verdict"}, default="random"
        Whether the planned rows are drawn at random, or with the shares of the verdicts that need the fewest labels.
    random_state : int, default=0
        Seed of the draw.

    Returns
    -------
    DataFrame
        The drawn rows: an empty column ``label``, the columns of the table, and the columns ``audit_…``, which find the
        rows again.

    Examples
    --------
    >>> rows = pd.DataFrame({"verdict": ["bad", "good"] * 50, "answer": range(100)})
    >>> len(sample_judged(rows, judge="verdict", n=10))
    10
    """
    frame, rng = read_frame(source, "source"), np.random.default_rng(check_seed(random_state))
    for name in (_ROW, _CHECK):
        if name in frame:
            raise InputError("source", problem=f"has a column {name!r}, which the drawn rows get", remedy="rename it")
    columns = _as_columns(judge, list(frame.columns))
    people = [human] if isinstance(human, str) else list(human or ())
    has_label = _filled(frame[[name for name in people if name in frame]]).any(axis=1).to_numpy()
    if plan is None:
        needed = [({}, check_whole("n", n))] if by is None else [({by: name}, n) for name in frame[by].unique()]
    else:
        needed = _planned(frame, columns, human, labels, by, plan, design, str(judge))
    drawn = [_draw(frame, where, more, has_label, rng) for where, more in needed]
    rows = rng.permutation(np.concatenate([np.zeros(0, np.int64), *drawn]))
    if not len(rows):
        raise InputError("plan", "a plan that needs more labels", "one that has enough", "plan shorter intervals")
    if len(rows) < (n_needed := sum(more for _, more in needed)):
        problem = f"expected {n_needed:,} rows without a label, got {len(rows):,}"
        warnings.warn(InputWarning("n", problem=problem, remedy="all of them are drawn"), stacklevel=2)
    listed = [*columns.values()] if isinstance(columns, Mapping) else [columns] if isinstance(columns, str) else columns
    hidden = _telling(frame, [*listed, *people, *([] if by is None else [by])])
    found = frame.drop(columns=[*hidden, *([LABEL] if LABEL in frame else [])]).iloc[rows].reset_index(drop=True)
    found.insert(0, LABEL, "")
    return found.assign(**{_ROW: rows + 1, _CHECK: _checks(frame, people, rows)})


def as_facts(found: Judgement) -> dict[str, Any]:
    """Return all results as values for JSON."""
    names = ("table", "comparisons", "confusion", "worth", "separate", "error_rates", "ordered", "plan", "agreement")
    frames = {name: getattr(found, name) for name in names}
    facts = {name: json.loads(as_records(frame)) for name, frame in frames.items() if frame is not None}
    about = {"level": found.level, "target": found.target, "labels": found.labels, "warnings": [*found.warnings]}
    return about | facts


def _as_columns(judge: Judge, columns: list[str]) -> Judge:
    """Return the columns of the judge; a pattern such as ``p_*`` names the column of the score of each class."""
    if isinstance(judge, str) and judge not in columns and re.search("[=*]", judge):
        return read_proba(judge, columns)
    return judge


def _filled(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.notna() & (cells.astype(str).apply(lambda column: column.str.strip()) != "")


def _planned(
    frame: pd.DataFrame, columns: Judge, human: Any, labels: Any, by: str | None, plan: float, design: str, name: str
) -> list[tuple[dict[str, Any], int]]:
    """Return how many more rows the plan needs, with the system and verdict of each number."""
    table = judge(frame, judge=columns, human=human, labels=labels, by=by, plan=plan).plan
    if table is None:
        raise InputError("plan", "labels of some rows", "none", ("draw a first sample by ", Option("n")))
    needed = []
    for row in table[table["design"] == design].to_dict("records"):
        where = {} if by is None else {by: row[by]}
        if design == "by-verdict":
            if not isinstance(columns, str):
                raise InputError("design", "'random' for scores or several judges", repr(design), "draw at random")
            where[columns] = row["verdict"]
        needed.append((where, int(row["n_more"])))
    return needed


def _draw(
    frame: pd.DataFrame, where: Mapping[str, Any], n: int, has_label: NDArray[np.bool_], rng: np.random.Generator
) -> Ints:
    """Return the numbers of `n` rows without a label, or of all of them; `where` are values that the rows have."""
    free = ~has_label
    for name, value in where.items():
        missing = value is None or value != value
        free &= (frame[name].isna() if missing else frame[name].astype(str) == str(value)).to_numpy()
    rows = np.flatnonzero(free)
    return rng.choice(rows, min(n, len(rows)), replace=False)


def _telling(frame: pd.DataFrame, special: Sequence[str]) -> list[str]:
    """Return the columns that would show the verdict to a person; warn of columns that the caller did not name."""
    named = set(special)
    found = [name for name in frame.columns if name not in named and _TELLING.search(str(name))]
    if found:
        left_out = f"left out of the drawn rows, so that labels do not depend on verdicts: {shown(np.array(found))}"
        warnings.warn(f"source: columns {left_out}.", UserWarning, stacklevel=3)
    return [*(name for name in frame.columns if name in named), *found]


def _checks(frame: pd.DataFrame, people: Sequence[str], rows: Ints) -> list[str]:
    """Return checksums of rows without their labels; they begin with a letter, so that they stay texts."""
    from pandas.util import hash_pandas_object

    kept = frame.drop(columns=[name for name in (*people, LABEL) if name in frame]).iloc[rows]
    found = hash_pandas_object(kept.astype(object).where(kept.notna(), "").astype(str), index=False)
    return found.map("c{:016x}".format).tolist()


def _with_labels(frame: pd.DataFrame, drawn: pd.DataFrame, human: str | Sequence[str]) -> pd.DataFrame:
    """Return the rows with the labels of drawn rows, which `_ROW` finds and `_CHECK` verifies."""
    if not isinstance(human, str):
        raise InputError("human", "one column with labelled rows from a file", "two", "name one")
    for name in (LABEL, _ROW, _CHECK):
        if name not in drawn:
            without = (f"has no column {name!r}, which ", _SAMPLE, " writes")
            raise InputError("labelled", problem=without, remedy="keep its columns")
    has_label = _filled(drawn[[LABEL]])[LABEL].to_numpy()
    if not has_label.any():
        raise InputError("labelled", problem=f"no row has a label in column {LABEL!r}", remedy="fill it in")
    last = int(np.flatnonzero(has_label)[-1])
    if not has_label[:last].all():
        problem = f"{counted(int(np.argmin(has_label)))} has nothing in column {LABEL!r}, but a later row has"
        raise InputError("labelled", problem=problem, remedy="label the rows in their order, and stop where you like")
    drawn = drawn[: last + 1]
    row = pd.to_numeric(drawn[_ROW], errors="coerce").fillna(0).to_numpy()
    rows = np.where((row >= 1) & (row <= len(frame)) & (row % 1 == 0), row, 0).astype(np.int64) - 1
    same = np.array(_checks(frame, [human], np.maximum(rows, 0))) == drawn[_CHECK].astype(str).to_numpy()
    known = (rows >= 0) & same
    if not known.all():
        foreign = (f"{counted(int(np.argmin(known)))} is not one that ", _SAMPLE, " drew from this table")
        remedy = "give the same table and leave the columns audit_... as they were"
        raise InputError("labelled", problem=foreign, remedy=remedy)
    twice = pd.Series(rows).duplicated().to_numpy()
    if twice.any():
        problem = f"{counted(int(np.argmax(twice)))} occurs twice"
        raise InputError("labelled", problem=problem, remedy="remove one of them")
    before = frame[human].astype(object) if human in frame else pd.Series([None] * len(frame), dtype=object)
    labels = before.where(before.notna(), None).reset_index(drop=True)
    labels.iloc[rows] = drawn[LABEL].to_numpy(object)
    return frame.assign(**{human: labels.to_numpy(object)})
