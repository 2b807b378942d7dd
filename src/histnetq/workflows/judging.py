"""Shares of classes from the verdicts of a judge and a few human labels: ``histnetq judge``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from histnetq.bags.checks import check_fraction, check_seed, shown
from histnetq.errors import InputError, Option
from histnetq.simplex import Ints
from histnetq.uncertainty.judging.checks import equal_mixes
from histnetq.uncertainty.judging.judged_rows import JudgedRows
from histnetq.uncertainty.judging.planning import sequential_level
from histnetq.workflows.judge_columns import JudgedColumns, as_frame, read_columns, require_columns
from histnetq.workflows.judge_tables import (
    System,
    agreement_table,
    compare,
    confusion_table,
    error_rate_table,
    estimate_table,
    ordered_table,
    plan_table,
    separate_table,
    worth_table,
)

__all__ = ["Judgement", "judge"]

Target = Literal["batch", "process"]
_LABELS, _TARGETS = ("random", "by-verdict", "other"), ("batch", "process")
_CLUSTER = re.compile(r"conversation|session|thread|chat|user|patient|document|prompt|question", re.IGNORECASE)
_REFUSED = 0.001  # p-value of equal verdict mixes below which labels are not called random
_FEW_CLUSTERS, _FEW_LABELS, _LOW_AGREEMENT, _UNEQUAL = 30, 30, 0.8, 0.01


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
    sequential : bool, default=False
        Whether the intervals hold although one looks after each batch of labels.
    n_rows, n_labels : int, default=0
        Numbers of rows and of human labels of this batch.

    Examples
    --------
    >>> import histnetq as hq
    >>> columns = {"verdict": ["yes", "no"] * 40, "label": ["yes", "no", "", ""] * 20}
    >>> found = hq.judge(columns, judge="verdict", human="label", labels="random")
    >>> found.classes, found.n_labels
    (['no', 'yes'], 40)
    >>> found.confusion[["verdict", "label", "n"]].values.tolist()
    [['no', 'no', 20], ['no', 'yes', 0], ['yes', 'no', 0], ['yes', 'yes', 20]]
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
    sequential: bool = False
    n_rows: int = 0
    n_labels: int = 0

    def to_frame(self) -> pd.DataFrame:
        """Return the table of estimates: one row per system and class.

        Returns
        -------
        DataFrame
            A copy of `table`.

        Examples
        --------
        >>> import histnetq as hq
        >>> columns = {"verdict": ["yes", "no"] * 40, "label": ["yes", "no", "", ""] * 20}
        >>> hq.judge(columns, judge="verdict", human="label", labels="random").to_frame()[["class", "raw", "estimate"]]
          class  raw  estimate
        0    no  0.5       0.5
        1   yes  0.5       0.5
        """
        return self.table.copy()


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
        Intended half-width of the intervals. The result then has the number of labels that are needed.
    sequential : bool, default=False
        Whether to widen intervals so that all of them hold if you look after every 10 labels, from 20 to 1,000.
    random_state : int, default=0
        Seed of simulated distributions.

    Returns
    -------
    Judgement
        Estimates with intervals, comparisons and warnings.

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
    level, random_state = check_fraction("level", level), check_seed(random_state) or 0
    _check_choice("target", target, _TARGETS)
    people = [human] if isinstance(human, str) else list(human or ())
    verdicts = list(judge.values()) if isinstance(judge, Mapping) else judge
    named = {
        "judge": verdicts, "human": people, "by": by, "pair": pair, "cluster": cluster, "probability": probability,
        "stratum": stratum,
    }  # fmt: skip
    frame = as_frame(frame, "frame")
    _check_options(frame, named, labels, learned_on, stable_judge, sequential, plan, ordered)
    earlier = None if learned_on is None else as_frame(learned_on, "learned_on")
    if earlier is not None:
        for name in ("judge", "human", "by"):
            require_columns(earlier, "learned_on" if name != "judge" else "judge", named[name])
    n_rows = len(frame)
    together = frame if earlier is None else pd.concat([frame, earlier], ignore_index=True)
    systems = _systems(together, by, n_rows)
    columns = read_columns(together, judge, people, ordered, len(systems))
    notes = list(columns.notes)
    if labels == "other":
        notes.append("Nothing is known about how rows were chosen to be labelled, so only bounds are given.")
    design = _Design(frame, labels, stratum, probability, cluster)
    found = []
    for name, rows in systems:
        now, before = rows[rows < n_rows], rows[rows >= n_rows]
        own, groups = design.rows(columns, now)
        past = JudgedRows(columns.verdicts[before], columns.labels[before], len(columns.verdict_names), own.n_classes)
        system = System(name, now, own, groups, past.counts, columns.votes[now], labels, bool(stable_judge))
        _check_system(system, columns, labels, earlier is not None, notes, random_state)
        found.append(system)
    used = sequential_level(level) if sequential else level
    for system in found:
        system.estimate(used, target)
    if cluster is None and target == "process":
        notes += _repeats(frame, by, pair, [*([verdicts] if isinstance(verdicts, str) else verdicts), *people])
    elif cluster is not None and target == "process":
        n_clusters = min(frame[cluster].iloc[system.rows_of_frame].nunique() for system in found)
        if n_clusters < _FEW_CLUSTERS:
            notes.append(f"There are only {n_clusters} clusters, so intervals use Student's distribution.")
    if cluster is not None and earlier is not None and (design.n_labels == 0 or stable_judge):
        notes.append("Intervals from labels of an earlier batch do not allow for clusters.")
    unit = pair if pair is not None else cluster
    units = None if unit is None else pd.factorize(frame[unit])[0]
    both = earlier is not None and design.n_labels > 0
    second = columns.second[:n_rows]
    agreements = agreement_table(found, columns.labels, second, by) if len(people) > 1 else None
    rates = error_rate_table(found, by, random_state) if both else None
    worths = None if labels == "other" else worth_table(found, used, target, by)
    _judge_results(notes, columns, agreements, rates, worths, stable_judge, by, cluster is not None)
    return Judgement(
        estimate_table(found, columns.classes, by, worths), columns.classes,
        None if by is None or labels == "other" else compare(found, units, columns.classes, used),
        confusion_table(found, columns, by), worths,
        separate_table(found, columns.classes, used, target, by) if both else None, rates,
        None if ordered is None else ordered_table(found, columns.classes, used, target, by),
        None if plan is None else plan_table(found, columns.verdict_names, plan, used, target, by), agreements, notes,
        level, target, labels, by, sequential, n_rows, design.n_labels,
    )  # fmt: skip


class _Design:
    """The design by which rows were chosen to be labelled."""

    def __init__(
        self, frame: pd.DataFrame, labels: str | None, stratum: str | None, probability: str | None, cluster: str | None
    ) -> None:
        self.pools, self.n_labels = labels == "random" or stratum is not None, 0
        self.strata = None if stratum is None else _codes_of(frame, "stratum", stratum)
        self.clusters = None if cluster is None else _codes_of(frame, "cluster", cluster)
        self.chances = None
        if probability is not None:
            self.chances = pd.to_numeric(frame[probability], errors="coerce").to_numpy(float)

    def rows(self, columns: JudgedColumns, rows: Ints) -> tuple[JudgedRows, Ints]:
        """Return the rows of a system in strata of verdicts, and the verdict of each stratum."""
        n_verdicts, verdicts, labels = len(columns.verdict_names), columns.verdicts[rows], columns.labels[rows]
        strata = np.zeros(len(rows), np.int64) if self.strata is None else self.strata[rows]
        n_strata = int(strata.max(initial=0)) + 1
        if self.chances is not None:
            chance = self.chances[rows]
            wrong = (labels >= 0) & ~((chance > 0) & (chance <= 1))
            if wrong.any():
                row = int(rows[np.argmax(wrong)])
                remedy = "give the probability with which each labelled row was drawn"
                raise InputError(
                    "probability", "numbers above 0, up to 1", f"{self.chances[row]:g} in row {row + 1}", remedy
                )
        self.n_labels += int((labels >= 0).sum())
        own = JudgedRows(
            strata * n_verdicts + verdicts, labels, n_strata * n_verdicts, len(columns.classes),
            np.repeat(np.arange(n_strata), n_verdicts) if self.pools else None,
            None if self.chances is None else self.chances[rows],
            None if self.clusters is None else self.clusters[rows],
        )  # fmt: skip
        return own, np.tile(np.arange(n_verdicts), n_strata)


def _codes_of(frame: pd.DataFrame, name: str, column: str) -> Ints:
    if frame[column].isna().any():
        row = int(np.argmax(frame[column].isna())) + 1
        thing = "system" if name == "by" else name
        raise InputError(name, f"the {thing} of each row", f"nothing in row {row}", "fill it in or drop the row")
    codes: Ints = pd.factorize(frame[column])[0]
    return codes


def _check_choice(name: str, given: Any, choices: Sequence[str]) -> None:
    if given not in choices:
        expected = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
        raise InputError(name, expected, repr(given), "choose one of them")


def _check_options(
    frame: pd.DataFrame,
    named: dict[str, Any],
    labels: Any,
    learned_on: Any,
    stable: Any,
    sequential: Any,
    plan: Any,
    ordered: Any,
) -> None:
    """Raise an error for options that do not fit together, or that the frame lacks the columns of."""
    for name, columns in named.items():
        require_columns(
            frame if name != "human" or learned_on is None else as_frame(learned_on, "learned_on"), name, columns
        )
    people = named["human"]
    if len(people) > 2:
        raise InputError("human", "one column, or two columns", f"{len(people)} columns", "name two of them")
    if not people:
        raise InputError(
            "human", "the column of human labels", "nothing", "name it, and leave cells empty without a label"
        )
    judges = [named["judge"]] if isinstance(named["judge"], str) else list(named["judge"])
    for name, columns in (("judge", judges), ("human", people)):
        if len(set(columns)) < len(columns):
            raise InputError(name, "different columns", f"{columns[0]!r} twice", "name each column once")
    if not judges:
        raise InputError("judge", "the column of verdicts", "nothing", "name it")
    if set(judges) & set(people):
        raise InputError("human", "another column than the judge", repr(people[0]), "name the column of human labels")
    now = any(column in frame.columns and (frame[column].notna() & (frame[column].astype(str).str.strip() != "")).any()
              for column in people)  # fmt: skip
    designs = [name for name in ("probability", "stratum") if named[name] is not None]
    if not now and learned_on is None:
        raise InputError("human", "human labels of some rows", "only empty cells", "label some rows")
    if labels is not None:
        _check_choice("labels", labels, _LABELS)
    elif now and not designs:
        expected = "'random', 'by-verdict' or 'other'"
        raise InputError("labels", expected, "nothing", "say how the labelled rows were chosen")
    if len(designs) == 2 or (designs and labels in ("by-verdict", "other")):
        got = " and ".join([*designs, *([] if labels is None else [f"labels={labels!r}"])])
        raise InputError(designs[0], "one way in which rows were chosen", got, "leave one of them out")
    if stable and (learned_on is None or not now or labels != "random"):
        expected = "random labels of this batch and labels of an earlier batch"
        raise InputError("stable_judge", expected, "only one of them", "leave it out")
    if sequential and labels != "random":
        raise InputError("sequential", "labels='random'", f"labels={labels!r}", "draw rows to label at random")
    if plan is not None:
        check_fraction("plan", plan)
    if not now and (plan is not None or ordered is not None):
        name = "plan" if plan is not None else "ordered"
        raise InputError(name, "labels of this batch", "only labels of an earlier batch", "label some rows")
    if named["pair"] is not None and named["by"] is None:
        raise InputError("pair", "a column of systems in by", "nothing", ("name it by ", Option("by")))


def _systems(frame: pd.DataFrame, by: str | None, n_rows: int) -> list[tuple[Any, Ints]]:
    """Return the name of each system of this batch, and its rows in both batches."""
    if by is None:
        return [(None, np.arange(len(frame)))]
    codes = _codes_of(frame, "by", by)
    names = frame[by].drop_duplicates().tolist()
    return [(names[i], np.flatnonzero(codes == i)) for i in np.unique(codes[:n_rows])]


def _check_system(
    system: System, columns: JudgedColumns, labels: Any, has_earlier: bool, notes: list[str], seed: int
) -> None:
    """Raise an error if the labels of a system do not suffice, and note what makes them doubtful."""
    of = "" if system.name is None else f" of {system.name!r}"
    rows, n_labels = system.rows, system.n_labels
    if n_labels < 2 and not (has_earlier and n_labels == 0):
        raise InputError("human", f"at least 2 labels{of}", f"{n_labels}", "label more rows")
    if has_earlier:
        seen = system.earlier.sum(0) > 0
        if not seen.all() and (n_labels == 0 or system.stable):
            missing = shown(np.array([name for name, ok in zip(columns.classes, seen, strict=True) if not ok]))
            remedy = "add earlier labels of these classes"
            raise InputError("learned_on", f"labelled rows of each class{of}", f"none of {missing}", remedy)
    if 0 < n_labels < _FEW_LABELS:
        notes.append(f"There are only {n_labels} labels{of}, so intervals are approximate.")
    has = rows.labels >= 0
    one = np.bincount(rows.verdicts[has], minlength=rows.n_verdicts)
    if labels == "random" and n_labels and (p := equal_mixes(one, rows.sizes - one, seed)) < _REFUSED:
        got = f"labelled rows{of} with another mix of verdicts than the other rows (p = {p:.1g})"
        way_out = ("use ", Option("labels", "by-verdict"), " if only the verdict decided who was labelled, or ",
                  Option("labels", "other"))  # fmt: skip
        raise InputError("labels", "rows that were drawn at random", got, way_out)
    if labels == "by-verdict" and n_labels:
        for v in np.flatnonzero((rows.sizes > 0) & (one == 0)):
            name = columns.verdict_names[int(system.verdict_of[v])]
            said = "the judge abstained" if name is None else f"the verdict is {name!r}"
            notes.append(f"No row{of} where {said} has a label, so intervals allow any class there.")


def _repeats(frame: pd.DataFrame, by: str | None, pair: str | None, used: Sequence[str]) -> list[str]:
    """Return a warning if rows seem to come in clusters that nobody named."""
    for name in frame.columns:
        if name in (by, *used) or not (name == pair or _CLUSTER.search(str(name))):
            continue
        known = frame[[name] if by is None else [by, name]].dropna()
        if len(known) and len(known) / len(known.drop_duplicates()) > 1.05:
            said = (
                f"Column {name!r} repeats values. If rows with the same value resemble each other, intervals are too "
            )
            return [f"{said}short; name it as the cluster."]
    return []


def _judge_results(
    notes: list[str],
    columns: JudgedColumns,
    agreements: Any,
    rates: Any,
    worths: Any,
    stable: bool,
    by: str | None,
    clustered: bool,
) -> None:
    """Note what speaks against the estimates."""
    if agreements is not None:
        for row in agreements.to_dict("records"):
            if row["agreement"] < _LOW_AGREEMENT:
                of = "" if by is None else f" of {row[by]!r}"
                share = f"{row['agreement']:.0%}"
                notes.append(f"Two people gave the same label to only {share} of {row['n_rows']} rows{of}.")
    if rates is not None:
        for row in rates.to_dict("records"):
            if row["p_value"] < _UNEQUAL:
                of = "" if by is None else f" of {row[by]!r}"
                end = "; do not assume a stable judge." if stable else "."
                notes.append(f"The judge's error rates{of} differ between the batches (p = {row['p_value']:.1g}){end}")
    if worths is not None and not clustered:
        for row in worths.to_dict("records"):
            if row["n_labels"] > 0 and row["worth"] < 1.05 * row["n_labels"]:
                of = "" if by is None else f" of {row[by]!r}"
                notes.append(f"The verdicts{of} add almost nothing to the labels.")
