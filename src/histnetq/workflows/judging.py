"""Shares of classes from the verdicts of a judge and a few human labels: ``histnetq judge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.bags.checks import check_fraction, nearest_name, shown
from histnetq.bags.indexing import natural_keys
from histnetq.errors import InputError, Option
from histnetq.simplex import Floats, Ints
from histnetq.tables.names import name_of, of_one_type
from histnetq.uncertainty.judging.checks import equal_mixes
from histnetq.uncertainty.judging.comparing import difference, holm
from histnetq.uncertainty.judging.judged_rows import JudgedRows, ShareIntervals

__all__ = ["Judgement", "judge"]

Target = Literal["batch", "process"]
_LABELS, _TARGETS = ("random", "by-verdict", "other"), ("batch", "process")
_REFUSED = 0.001  # p-value of equal verdict mixes below which labels are not called random
_FEW_CLUSTERS = 30


@dataclass(frozen=True)
class Judgement:
    """Shares of classes from verdicts and human labels; the result of `judge`.

    Parameters
    ----------
    table : DataFrame
        One row per system and class: the judge's share ``raw``, the ``estimate`` with ``lower`` and ``upper`` ends, the
        numbers of rows and labels, the ``worth`` of the labels, and the ``method``.
    classes : list
        Names of the classes.
    comparisons : DataFrame, default=None
        Differences between systems, with intervals for all comparisons together.
    confusion : DataFrame, default=None
        Numbers and shares of human labels for each verdict.
    worth : DataFrame, default=None
        Number of labels that would give equally short intervals without a judge, by system.
    separate : DataFrame, default=None
        Estimates from the labels of this batch alone and of the earlier batch alone.
    error_rates : DataFrame, default=None
        Test whether the judge has the same error rates in both batches.
    ordered : DataFrame, default=None
        Shares of a class or a lower one, and the mean grade, for ordered classes.
    plan : DataFrame, default=None
        Labels that are needed for intervals of the planned width.
    agreement : DataFrame, default=None
        Agreement of two human labels.
    warnings : list of str, default=()
        Reasons not to trust the estimates.
    level : float, default=0.9
        Intended coverage of the intervals.
    target : {"batch", "process"}, default="batch"
        What the estimates are about.
    labels : str, default=None
        How labelled rows were chosen.
    by : str, default=None
        Column that names the systems.
    """

    table: pd.DataFrame
    classes: list[Any]
    comparisons: pd.DataFrame | None = None
    confusion: pd.DataFrame | None = None
    worth: pd.DataFrame | None = None
    separate: pd.DataFrame | None = None
    error_rates: pd.DataFrame | None = None
    ordered: pd.DataFrame | None = None
    plan: pd.DataFrame | None = None
    agreement: pd.DataFrame | None = None
    warnings: Sequence[str] = ()
    level: float = 0.9
    target: str = "batch"
    labels: str | None = None
    by: str | None = None

    def to_frame(self) -> pd.DataFrame:
        """Return the table of estimates: one row per system and class."""
        return self.table.copy()


@dataclass
class _System:
    """The rows of one system, and what was found about them."""

    name: Any
    rows: JudgedRows
    raw: Floats
    units: Ints | None
    found: ShareIntervals | None = None
    about: dict[str, Any] = field(default_factory=dict)


def judge(
    frame: Any,
    *,
    judge: str | Sequence[str] | Mapping[Any, str],
    human: str | Sequence[str] | None = None,
    labels: Literal["random", "by-verdict", "other"] | None = None,
    by: str | None = None,
    pair: str | None = None,
    cluster: str | None = None,
    target: Target = "batch",
    probability: str | None = None,
    stratum: str | None = None,
    learned_on: Any = None,
    stable_judge: bool = False,
    ordered: Sequence[Any] | None = None,
    level: float = 0.9,
    plan: float | None = None,
    sequential: bool = False,
    random_state: int = 0,
) -> Judgement:
    """Estimate the shares of classes from the verdicts of an imperfect judge and some human labels.

    The judge may be a language model, a rule or a test. Its error rates are estimated from the labels, separately for
    each system. This is what ``histnetq judge`` does.

    Parameters
    ----------
    frame : DataFrame or dict of columns
        One row per judged item.
    judge : str, list of str, or dict
        Column with the verdict. A list names the columns of several judges, and a dict the column of the score of each
        class. An empty cell means that the judge abstained.
    human : str or list of str, default=None
        Column with the human label, or two columns if two humans labelled. An empty cell means that no human looked.
    labels : {"random", "by-verdict", "other"}, default=None
        How the labelled rows were chosen: at random, with probabilities that depend on the verdict only, or otherwise.
        `probability` and `stratum` replace it.
    by : str, default=None
        Column that names the system of each row.
    pair : str, default=None
        Column that names, for example, the prompt that several systems answered.
    cluster : str, default=None
        Column that names the cluster of each row, such as a conversation.
    target : {"batch", "process"}, default="batch"
        Whether estimates are about these rows, or about the process that made them.
    probability : str, default=None
        Column with the probability with which each row was drawn to be labelled.
    stratum : str, default=None
        Column with the stratum in which rows to label were drawn at random.
    learned_on : DataFrame or dict of columns, default=None
        An earlier batch with the same columns and human labels.
    stable_judge : bool, default=False
        Whether the error rates of the judge are the same in both batches; only used with labels from both.
    ordered : sequence, default=None
        All classes in their order, which adds cumulative shares and the mean grade.
    level : float, default=0.9
        Intended coverage of the intervals.
    plan : float, default=None
        Intended half-width of the intervals, for which the needed number of labels is computed.
    sequential : bool, default=False
        Whether to widen intervals so that all of them hold, although you look after each batch of labels.
    random_state : int, default=0
        Seed of simulated distributions.

    Returns
    -------
    Judgement
        Estimates with intervals, and what they rest on.

    Examples
    --------
    >>> import histnetq as hq
    >>> verdicts = ["bad", "good", "good", "good"] * 50
    >>> people = ["bad", "good", "good", "good", "good", "good", "good", "good", *[None] * 12] * 10
    >>> found = hq.judge({"verdict": verdicts, "label": people}, judge="verdict", human="label", labels="random")
    >>> found.to_frame()[["class", "raw", "estimate", "n_labels"]].round(2)
      class   raw  estimate  n_labels
    0   bad  0.25      0.12        80
    1  good  0.75      0.88        80
    """
    frame = _as_frame(frame, "frame")
    level = check_fraction("level", level)
    _check_choice("target", target, _TARGETS)
    human_columns = [human] if isinstance(human, str) else list(human or ())
    for name, column in (("judge", judge), ("human", human_columns), ("by", by), ("pair", pair), ("cluster", cluster)):
        _require(frame, name, column)
    verdict = _texts(frame[judge], "judge")
    people = [_texts(frame[column], "human") for column in human_columns]
    _check_labels(labels, people, None)
    notes: list[str] = []
    classes = _classes(verdict, people, notes)
    label = _first(people, len(frame))
    systems = _systems(frame, by)
    code = pd.Index(classes, dtype=object)
    label_codes, verdict_codes = _codes(label, code), _codes(verdict, code)
    verdict_codes = np.where(verdict_codes < 0, len(classes), verdict_codes)  # the judge abstained
    found: list[_System] = []
    for name, rows in systems:
        own = JudgedRows(
            verdict_codes[rows], label_codes[rows], len(classes) + 1, len(classes),
            np.zeros(len(classes) + 1, int) if labels == "random" else None,
            clusters=None if cluster is None else pd.factorize(frame[cluster].to_numpy()[rows])[0],
        )  # fmt: skip
        raw = own.sizes[:-1] / max(own.sizes[:-1].sum(), 1)
        system = _System(name, own, raw, None)
        _check_random(own, labels, name, notes, random_state)
        system.found = own.shares(level, target)
        found.append(system)
    table = pd.concat([_rows_of(system, classes, by) for system in found], ignore_index=True)
    comparisons = None
    if by is not None:
        unit = pair if pair is not None else cluster
        units = None if unit is None else pd.factorize(frame[unit].to_numpy())[0]
        comparisons = _compare(found, systems, units, classes, level)
    confusion = pd.concat([_confusion(system, classes, by) for system in found], ignore_index=True)
    return Judgement(
        table, classes, comparisons, confusion, warnings=notes, level=level, target=target, labels=labels, by=by
    )


def _as_frame(given: Any, name: str) -> pd.DataFrame:
    if not isinstance(given, pd.DataFrame | Mapping):
        problem = "a data frame or a dict of columns"
        raise InputError(name, problem, type(given).__name__, "read the table first, for example with pandas.read_csv")
    try:
        frame = pd.DataFrame(given)
    except ValueError as error:
        raise InputError(
            name, "columns of the same length", str(error), "give each row a value in each column"
        ) from None
    if not len(frame):
        raise InputError(name, "at least one row", "none", "check the table")
    return frame.reset_index(drop=True)


def _check_choice(name: str, given: Any, choices: Sequence[str]) -> None:
    if given not in choices:
        expected = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise InputError(name, expected, repr(given), "choose one of them")


def _require(frame: pd.DataFrame, name: str, columns: Any) -> None:
    listed = [columns] if isinstance(columns, str) else list(columns or ())
    for column in listed:
        if column not in frame.columns:
            near = nearest_name(str(column), frame.columns)
            perhaps = "" if near is None else f", perhaps {near!r}"
            columns_shown = shown(np.array(list(map(str, frame.columns))), 20)
            raise InputError(
                name, f"a column of the table, {columns_shown}", repr(column), f"name one of them{perhaps}"
            )


def _texts(column: pd.Series, name: str) -> NDArray:
    """(n_rows,): names of verdicts or labels; None in empty cells."""
    codes, values = pd.factorize(column, use_na_sentinel=True)
    names = [value.strip() if isinstance(value, str) else name_of(value) for value in np.asarray(values).tolist()]
    kept = [each for each in names if each != ""]
    typed = dict(zip(kept, of_one_type(kept, written=False), strict=True))
    return np.array([*(typed.get(each) for each in names), None], object)[codes]


def _first(people: Sequence[NDArray], n_rows: int) -> NDArray:
    """(n_rows,): the first label of each row that has one."""
    found = np.full(n_rows, None, object)
    for column in reversed(people):
        found = np.where(pd.notna(column), column, found)
    return found


def _check_labels(labels: Any, people: Sequence[NDArray], design: Any) -> None:
    if not people:
        remedy = (
            "name the column of human labels by ",
            Option("human"),
            ", or an earlier batch by ",
            Option("learned_on"),
        )
        raise InputError("human", "human labels of some rows", "none", remedy)
    if not any(pd.notna(column).any() for column in people):
        raise InputError("human", "human labels of some rows", "only empty cells", "label some rows")
    if labels is None and design is None:
        expected = "'random', 'by-verdict' or 'other'"
        raise InputError("labels", expected, "nothing", "say how the labelled rows were chosen")
    if labels is not None:
        _check_choice("labels", labels, _LABELS)


def _classes(verdict: NDArray, people: Sequence[NDArray], notes: list[str]) -> list[Any]:
    """Return the classes that verdicts or labels name, in natural order."""
    said = {name for name in verdict.tolist() if name is not None}
    labelled = {name for column in people for name in column.tolist() if name is not None}
    names = said | labelled
    if len({type(name) for name in names}) > 1:
        raise InputError("human", f"classes as in the verdicts, {shown(np.array(sorted(map(str, said))))}",
                         shown(np.array(sorted(map(str, labelled)))), "name the classes alike")  # fmt: skip
    folded = {str(name).casefold(): name for name in said}
    for name in labelled - said:
        near = folded.get(str(name).casefold())
        if near is not None:
            raise InputError("human", f"{near!r}, as in the verdicts", repr(name), "use the same letters")
    if labelled and not labelled & said:
        raise InputError("human", f"classes as in the verdicts, {shown(np.array(sorted(map(str, said))))}",
                         shown(np.array(sorted(map(str, labelled)))), "name the classes alike")  # fmt: skip
    if len(names) < 2:
        raise InputError("judge", "at least 2 classes", f"only {next(iter(names))!r}" if names else "only empty cells",
                         "check the column")  # fmt: skip
    listed = sorted(names, key=lambda name: str(natural_keys([name])[0]))
    for name in sorted(map(str, labelled - said)):
        notes.append(f"The judge never says {name!r}, which some human labels are.")
    return listed


def _codes(values: NDArray, classes: pd.Index) -> Ints:
    found: Ints = classes.get_indexer(pd.Index(values, dtype=object)).astype(np.int64)
    return np.where(pd.isna(values), -1, found)


def _systems(frame: pd.DataFrame, by: str | None) -> list[tuple[Any, Ints]]:
    if by is None:
        return [(None, np.arange(len(frame)))]
    if frame[by].isna().any():
        row = int(np.argmax(frame[by].isna())) + 1
        raise InputError("by", "the system of each row", f"nothing in row {row}", "fill it in or drop the row")
    codes, names = pd.factorize(frame[by], sort=False)
    return [(name, np.flatnonzero(codes == i)) for i, name in enumerate(names)]


def _check_random(rows: JudgedRows, labels: Any, name: Any, notes: list[str], seed: int) -> None:
    of = "" if name is None else f" of {name!r}"
    n_labels = int((rows.labels >= 0).sum())
    if n_labels < 2:
        raise InputError("human", f"at least 2 labels{of}", f"{n_labels}", "label more rows")
    if labels != "random":
        return
    has = rows.labels >= 0
    one = np.bincount(rows.verdicts[has], minlength=rows.n_verdicts)
    p = equal_mixes(one, rows.sizes - one, seed)
    if p < _REFUSED:
        got = f"labelled rows{of} with another mix of verdicts than the other rows (p = {p:.1g})"
        remedy = ("use ", Option("labels", "by-verdict"), " if only the verdict decided who was labelled, or ",
                  Option("labels", "other"))  # fmt: skip
        raise InputError("labels", "rows that were drawn at random", got, remedy)


def _rows_of(system: _System, classes: list[Any], by: str | None) -> pd.DataFrame:
    assert system.found is not None
    names = {} if by is None else {by: [system.name] * len(classes)}
    return pd.DataFrame({
        **names, "class": classes, "raw": system.raw, "estimate": system.found.estimate, "lower": system.found.lower,
        "upper": system.found.upper, "n_rows": len(system.rows.labels),
        "n_labels": int((system.rows.labels >= 0).sum()),
    })  # fmt: skip


def _confusion(system: _System, classes: list[Any], by: str | None) -> pd.DataFrame:
    counts, sizes = system.rows.counts, system.rows.sizes
    verdicts = [*classes, None]
    names = {} if by is None else {by: system.name}
    total = counts.sum(1)
    return pd.DataFrame([
        {**names, "verdict": verdicts[v], "label": label, "n": int(counts[v, k]),
         "share": counts[v, k] / total[v] if total[v] else np.nan, "n_rows": int(sizes[v])}
        for v in np.flatnonzero(sizes) for k, label in enumerate(classes)
    ])  # fmt: skip


def _compare(
    found: list[_System], systems: list[tuple[Any, Ints]], units: Ints | None, classes: list[Any], level: float
) -> pd.DataFrame:
    """Return the differences between all pairs of systems, with Bonferroni intervals and Holm's p-values."""
    pairs = list(combinations(range(len(found)), 2))
    n = max(len(pairs) * (len(classes) if len(classes) > 2 else 1), 1)
    adjusted = 1 - (1 - level) / n
    shares = [system.rows.shares(adjusted, "process") for system in found]
    parts = []
    for i, j in pairs:
        own = None if units is None else (units[systems[i][1]], units[systems[j][1]])
        apart, lower, upper, p = difference(shares[i], shares[j], own, adjusted)
        parts.append(pd.DataFrame({
            "system": found[i].name, "other": found[j].name, "class": classes, "difference": apart, "lower": lower,
            "upper": upper, "p_value": p, "differ": (lower > 0) | (upper < 0),
        }))  # fmt: skip
    if not parts:
        return pd.DataFrame(columns=["system", "other", "class", "difference", "lower", "upper", "p_value", "differ"])
    table = pd.concat(parts, ignore_index=True)
    if len(classes) == 2:  # both classes have the same p-value
        table["p_value"] = np.repeat(holm(table["p_value"].to_numpy()[::2]), 2)
    else:
        table["p_value"] = holm(table["p_value"].to_numpy())
    return table
