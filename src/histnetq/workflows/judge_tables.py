"""Tables of `judge`: estimates, comparisons, confusion, and what the labels are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from histnetq.simplex import Floats, Ints
from histnetq.uncertainty.judging.checks import agreement, equal_error_rates
from histnetq.uncertainty.judging.comparing import difference, holm
from histnetq.uncertainty.judging.joint_likelihood import joint_interval
from histnetq.uncertainty.judging.judged_rows import JudgedRows, ShareIntervals
from histnetq.uncertainty.judging.planning import labels_needed, worth
from histnetq.workflows.judge_columns import JudgedColumns

__all__ = [
    "System", "agreement_table", "compare", "confusion_table", "error_rate_table", "estimate_table", "ordered_table",
    "plan_table", "separate_table", "worth_table",
]  # fmt: skip

Target = Literal["batch", "process"]


@dataclass
class System:
    """The rows of one system, and its estimates.

    Parameters
    ----------
    name : object
        Name of the system, None if there is only one.
    rows_of_frame : array of int, shape (n_rows,)
        Number of each row in the frame.
    rows : JudgedRows
        Verdicts and labels of this batch.
    verdict_of : array of int, shape (n_strata,)
        Verdict of each stratum of `rows`.
    earlier : array of int, shape (n_verdicts, n_classes)
        Numbers of labels of the earlier batch.
    votes : array, shape (n_rows, n_classes)
        What the judge says of each row.
    labels : str or None
        How labelled rows were chosen.
    stable : bool
        Whether error rates are assumed to be equal in both batches.
    found : ShareIntervals
        The estimates.
    """

    name: Any
    rows_of_frame: Ints
    rows: JudgedRows
    verdict_of: Ints
    earlier: Ints
    votes: Floats
    labels: str | None
    stable: bool
    found: ShareIntervals = field(init=False)

    @property
    def n_labels(self) -> int:
        """Number of labels of this batch."""
        return int((self.rows.labels >= 0).sum())

    @property
    def method(self) -> str:
        """Where the estimates come from."""
        if self.labels == "other":
            return "bounds"
        if not self.n_labels:
            return "earlier batch"
        return "both batches" if self.stable else "this batch"

    @property
    def by_verdict(self) -> tuple[Ints, Ints]:
        """Numbers of labels by verdict and class, and of rows by verdict, whatever their stratum is."""
        n_verdicts = self.earlier.shape[0]
        counts = self.rows.counts.reshape(-1, n_verdicts, self.rows.n_classes).sum(0)
        return counts, self.rows.sizes.reshape(-1, n_verdicts).sum(0)

    def estimate(self, level: float, target: Target) -> None:
        """Estimate the shares."""
        self.found = self.shares(level, target)

    def shares(self, level: float, target: Target) -> ShareIntervals:
        """Return the shares by the method of this system."""
        if self.labels == "other":
            return self.rows.bounds()
        if self.n_labels and not self.stable:
            return self.rows.shares(level, target)
        return self.from_earlier(level, target, with_labels=self.stable)

    def from_earlier(self, level: float, target: Target, with_labels: bool) -> ShareIntervals:
        """Return the shares from the error rates of the earlier batch, and from random labels of this batch."""
        counts, sizes = self.by_verdict
        own = counts if with_labels else np.zeros_like(counts)
        used = (sizes + self.earlier.sum(1)) > 0
        z = float(ndtri((1 + level) / 2))
        ends = joint_interval((sizes - own.sum(1))[used], own[used], self.earlier[used], z, target == "batch")
        return ShareIntervals(*ends, np.zeros((len(self.rows.labels), self.rows.n_classes)))


def _named(system: System, by: str | None) -> dict[str, Any]:
    return {} if by is None else {by: system.name}


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(parts, ignore_index=True)


def estimate_table(
    systems: Sequence[System], classes: list[Any], by: str | None, worths: pd.DataFrame | None
) -> pd.DataFrame:
    """Return one row per system and class."""
    values = [np.nan] * len(systems) if worths is None else worths["worth"].tolist()
    parts = []
    for system, own in zip(systems, values, strict=True):
        total = system.votes.sum()
        found = system.found
        parts.append(pd.DataFrame({
            **{name: [value] * len(classes) for name, value in _named(system, by).items()}, "class": classes,
            "raw": system.votes.sum(0) / total if total > 0 else np.nan, "estimate": found.estimate,
            "lower": found.lower, "upper": found.upper, "n_rows": len(system.rows.labels), "n_labels": system.n_labels,
            "worth": own, "method": system.method,
        }))  # fmt: skip
    return _joined(parts)


def worth_table(systems: Sequence[System], level: float, target: Target, by: str | None) -> pd.DataFrame:
    """Return the number of labels of each system, and what they are worth with the judge."""
    parts = []
    for system in systems:
        found, n_rows = system.found, len(system.rows.labels) if target == "batch" else np.inf
        value = worth(found.upper - found.lower, found.estimate, level, n_rows)
        parts.append(pd.DataFrame([{**_named(system, by), "n_labels": system.n_labels, "worth": round(value)}]))
    return _joined(parts)


def confusion_table(systems: Sequence[System], columns: JudgedColumns, by: str | None) -> pd.DataFrame:
    """Return the numbers and shares of human labels for each verdict, from this batch if it has labels."""
    rows = []
    for system in systems:
        counts, sizes = system.by_verdict
        counts = counts if system.n_labels else system.earlier
        for v in np.flatnonzero(sizes):
            total = counts[v].sum()
            rows += [
                {**_named(system, by), "verdict": columns.verdict_names[v], "label": label, "n": int(counts[v, k]),
                 "share": counts[v, k] / total if total else np.nan, "n_rows": int(sizes[v])}
                for k, label in enumerate(columns.classes)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def separate_table(
    systems: Sequence[System], classes: list[Any], level: float, target: Target, by: str | None
) -> pd.DataFrame:
    """Return the estimates from the labels of each batch alone."""
    parts = []
    for system in systems:
        if not system.n_labels or not (system.earlier.sum(0) > 0).all():
            continue
        own, past = system.rows.shares(level, target), system.from_earlier(level, target, with_labels=False)
        for source, found in (("this batch", own), ("earlier batch", past)):
            parts.append(pd.DataFrame({
                **{name: [value] * len(classes) for name, value in _named(system, by).items()}, "source": source,
                "class": classes, "estimate": found.estimate, "lower": found.lower, "upper": found.upper,
            }))  # fmt: skip
    columns = [*([] if by is None else [by]), "source", "class", "estimate", "lower", "upper"]
    return _joined(parts) if parts else pd.DataFrame(columns=columns)


def error_rate_table(systems: Sequence[System], by: str | None, random_state: int) -> pd.DataFrame:
    """Return the p-value of equal error rates in both batches; NaN unless labels of this batch are random."""
    return pd.DataFrame([
        {**_named(system, by), "p_value": equal_error_rates(system.by_verdict[0], system.earlier, random_state)
         if system.labels == "random" else np.nan}
        for system in systems
    ])  # fmt: skip


def ordered_table(
    systems: Sequence[System], classes: list[Any], level: float, target: Target, by: str | None
) -> pd.DataFrame:
    """Return the shares of each class or a lower one, and the mean grade: the class itself, or its place from 1."""
    numbers = all(isinstance(name, int | float) and not isinstance(name, bool) for name in classes)
    grades = np.array(classes, float) if numbers else np.arange(1.0, len(classes) + 1)
    rows = []
    for system in systems:
        own = system.rows
        for k, name in enumerate(classes[:-1]):
            above = np.where(own.labels < 0, -1, own.labels > k)
            two = JudgedRows(own.verdicts, above, own.n_verdicts, 2, own.groups, own.probability, own.clusters)
            found = two.bounds() if system.labels == "other" else two.shares(level, target)
            ends = (float(each[0]) for each in (found.estimate, found.lower, found.upper))
            rows.append({**_named(system, by), "measure": f"≤ {name}", **dict(zip(_ENDS, ends, strict=True))})
        mean = float(system.found.estimate @ grades)
        influence = system.found.influence @ grades
        if target == "process" and own.clusters is not None:
            influence = np.bincount(own.clusters, influence)
        half = float(ndtri((1 + level) / 2) * np.sqrt((influence**2).sum()))
        limits = (mean, max(mean - half, grades.min()), min(mean + half, grades.max()))
        rows.append({**_named(system, by), "measure": "mean grade", **dict(zip(_ENDS, limits, strict=True))})
    return pd.DataFrame(rows)


_ENDS = ("estimate", "lower", "upper")


def plan_table(
    systems: Sequence[System], verdict_names: list[Any], plan: float, level: float, target: Target, by: str | None
) -> pd.DataFrame:
    """Return the labels that are needed for intervals of this half-width, drawn at random or by verdict."""
    rows = []
    for system in systems:
        counts, sizes = system.by_verdict
        at_random, by_verdict = labels_needed(counts, sizes, plan, level, target == "batch")
        needs = [("random", None, at_random, counts.sum())]
        needs += [("by-verdict", verdict_names[v], by_verdict[v], counts[v].sum()) for v in np.flatnonzero(sizes)]
        for design, verdict, n, have in needs:
            total = np.ceil(n)
            rows.append({
                **_named(system, by), "design": design, "verdict": verdict, "n_labels": total,
                "n_more": max(total - have, 0) if np.isfinite(n) else n,
            })  # fmt: skip
    return pd.DataFrame(rows)


def agreement_table(systems: Sequence[System], first: Ints, second: Ints, by: str | None) -> pd.DataFrame:
    """Return how often two humans gave a row the same label."""
    rows = []
    for system in systems:
        found = agreement(first[system.rows_of_frame], second[system.rows_of_frame])
        rows.append({**_named(system, by), **dict(zip(("n_rows", "agreement", "kappa"), found, strict=True))})
    return pd.DataFrame(rows)


def compare(systems: Sequence[System], units: Ints | None, classes: list[Any], level: float) -> pd.DataFrame:
    """Return the differences between all pairs of systems, with Bonferroni intervals and Holm's p-values.

    Comparisons are about the process. `units` (n_rows of the frame,) names rows that belong together, such as prompts.
    """
    pairs = list(combinations(range(len(systems)), 2))
    columns = ["system", "other", "class", "difference", "lower", "upper", "p_value", "differ"]
    if not pairs:
        return pd.DataFrame(columns=columns)
    n = len(pairs) * (len(classes) if len(classes) > 2 else 1)
    adjusted = 1 - (1 - level) / n
    shares = [system.shares(adjusted, "process") for system in systems]
    parts = []
    for i, j in pairs:
        own = None if units is None else (units[systems[i].rows_of_frame], units[systems[j].rows_of_frame])
        apart, lower, upper, p = difference(shares[i], shares[j], own, adjusted)
        values = systems[i].name, systems[j].name, classes, apart, lower, upper, p, (lower > 0) | (upper < 0)
        parts.append(pd.DataFrame(dict(zip(columns, values, strict=True))))
    table = _joined(parts)
    p = table["p_value"].to_numpy()
    table["p_value"] = np.repeat(holm(p[::2]), 2) if len(classes) == 2 else holm(p)  # two classes have the same p-value
    return table
