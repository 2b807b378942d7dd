"""Sentences about results, for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from histnetq.bags.text_features import TextFeatures
    from histnetq.quantifiers.base import Quantifier
    from histnetq.uncertainty.capabilities import Capabilities
    from histnetq.uncertainty.rogan_gladen import Prevalence
    from histnetq.workflows.estimating import Score
    from histnetq.workflows.judging import Judgement

_ABOUT_SCORES = (
    "The scores must come from rows that your classifier was not trained on: scores of training rows are "
    "overconfident, and all estimates would be wrong."
)


def describe_fit(model: Quantifier, facts: Mapping[str, Any], place: Path) -> list[str]:
    """Return lines about what a model has learned from, and the intervals that it gives.

    `facts` comes from `histnetq.workflows.model_cards.describe_fitted`, and `place` is the directory of the model.
    """
    known = model.provenance_
    rows_alone, images, side = known["bags"] == 1, len(model.input_shape_) > 1, model.input_shape_[-1]
    seen = f"images of {side} x {side} pixels" if images else count(len(facts["features"]), "feature")
    source = count(known["rows"], "row") if rows_alone else count(known["bags"], "bag")
    learned = (
        f"{facts['method']} learned {count(len(facts['classes']), 'class')} from {source} and {seen}; kept in {place}."
    )
    if model.learned_nothing_:
        learned = (
            f"{facts['method']} learned nothing from {source} and {seen}: it is kept in {place}, but its estimates "
            "are no better than one constant."
        )
    return [
        learned,
        f"Classes: {list_some(facts['classes'])}.",
        *([] if images else describe_columns(facts["features"], known, facts["scores"], model.text_)),
        f"Calibrated {known['calibrated']}{'' if rows_alone else ': predict gives intervals'}."
        if known["calibration_bags"]
        else f"{known['uncalibrated'].capitalize()}: predict gives {_uncalibrated_intervals(model.capabilities())}.",
    ]


def _uncalibrated_intervals(can: Capabilities) -> str:
    """Say which intervals `predict` gives without calibration."""
    if can.posterior is not None:
        return "intervals of the model's own posterior"
    return "estimates without intervals" if can.posteriors is None else "Bayesian intervals"


def describe_scores(found: Score) -> list[str]:
    """Return lines about the errors of a model on bags of known proportions, and about its intervals there."""
    means, floor, covered = found.means, found.floor, found.coverage
    sentence = f"{count(len(found.errors), 'bag')}: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}; "
    sentence += f"baseline (training mean): {floor['ae']:.4f} and {floor['rae']:.4f}."
    if means["ae"] >= floor["ae"]:
        sentence += " The model is no better than the baseline on these bags."
    lines = [sentence, *([found.learned_nothing] if found.learned_nothing else [])]
    if covered:
        lines.append(
            f"Of the {covered['nominal']:.0%} {found.interval} intervals, {covered['seen']:.1%} contain the truth; "
            f"their mean width is {covered['mean width']:.4f}."
        )
    if found.n_doubted:
        lines.append(f"Unlike the training data: {count(found.n_doubted, 'bag')}; predict names the doubts in trust.")
    return lines


def describe_columns(
    names: Sequence[str] | None, facts: Mapping[str, Any], scored: bool = False, text: TextFeatures | None = None
) -> list[str]:
    """Return lines about the columns that are learned from, the columns that are not, and missing values.

    For scores, one more line names the rows that they must come from. All features of texts come from one column.

    Examples
    --------
    >>> describe_columns(["length"], {"left_out": {"fish_no": "constant"}})
    ['Learns from length. Leaves out fish_no (constant); name it with --features to use it.']
    """
    left_out, dropped, filled = (facts.get(name) for name in ("left_out", "dropped_rows", "filled_cells"))
    if names is not None and text is not None:
        names = [*names[: -len(text.names)], f"the texts of {text.column}"]
    line = f"Learns from {', '.join(names or ['columns without names'])}."
    if left_out:
        them = "it" if len(left_out) == 1 else "them"
        line += f" Leaves out {list_left_out(left_out)}; name {them} with --features to use {them}."
    return [
        line,
        *([_ABOUT_SCORES] if scored else []),
        *([f"Rows with missing values that were dropped: {dropped:,}."] if dropped else []),
        *([f"Missing values that were filled with the mean of their column: {filled:,}."] if filled else []),
    ]


def list_left_out(left_out: Mapping[str, str]) -> str:
    """Return the names of columns with the reasons why they are left out."""
    return ", ".join(f"{column or 'a column without a name'} ({why})" for column, why in left_out.items())


def list_some(names: Sequence[object], most: int = 12) -> str:
    """Return the first names, and the number of remaining names.

    Examples
    --------
    >>> list_some(["cod", "eel", "tuna"], most=2)
    'cod, eel and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def count(n: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    Examples
    --------
    >>> count(1, "class"), count(2, "class"), count(1000, "bag")
    ('1 class', '2 classes', '1,000 bags')
    """
    ending = "" if n == 1 else "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{ending}"


def describe_judgement(found: Judgement, shares: bool = True) -> list[str]:
    """Return lines about the estimates of `histnetq.judge`: shares, differences, worth of the labels, and the plan."""
    rows = found.table.to_dict("records") if shares else []
    of_classes = [describe_share(row, found.by, found.level) for row in rows]
    return [*of_classes, *map(describe_difference, one_of_two(found)), *describe_worth(found), *describe_plan(found)]


def describe_share(row: Mapping[Any, Any], by: str | None, level: float) -> str:
    """Return a sentence about the share of one class.

    Examples
    --------
    >>> row = {"class": "bad", "raw": 0.224, "estimate": 0.281, "lower": 0.24, "upper": 0.325}
    >>> describe_share(row, None, 0.9)
    'bad: 28.1 % (90 % interval: 24.0 % to 32.5 %); the judge says 22.4 %.'
    """
    name = row["class"] if by is None else f"{row[by]}, {row['class']}"
    ends = f"{row['lower']:.1%} to {row['upper']:.1%}".replace("%", " %")
    if row["estimate"] != row["estimate"]:
        found = f"between {ends.replace(' to ', ' and ')}"
    else:
        found = f"{100 * row['estimate']:.1f} % ({100 * level:.3g} % interval: {ends})"
    raw = "" if row["raw"] != row["raw"] else f"; the judge says {100 * row['raw']:.1f} %"
    return f"{name}: {found}{raw}."


def describe_difference(row: Mapping[Any, Any]) -> str:
    """Return a sentence about the difference of two systems.

    Examples
    --------
    >>> row = {"system": "A", "other": "B", "class": "bad", "difference": 0.05, "lower": 0.01, "upper": 0.09}
    >>> describe_difference(row)
    'The share of bad is higher in B than in A: +5.0 points (+1.0 to +9.0).'
    >>> describe_difference({**row, "lower": -0.01})
    'The share of bad may be equal in B and A: +5.0 points (-1.0 to +9.0).'
    """
    a, b = row["system"], row["other"]
    told = f"may be equal in {b} and {a}"
    if row["lower"] > 0 or row["upper"] < 0:
        told = f"is {'higher' if row['lower'] > 0 else 'lower'} in {b} than in {a}"
    ends = f"{100 * row['lower']:+.1f} to {100 * row['upper']:+.1f}"
    return f"The share of {row['class']} {told}: {100 * row['difference']:+.1f} points ({ends})."


def one_of_two(found: Judgement) -> list[dict[Any, Any]]:
    """Return the differences between systems; of two classes, only those of the less common class."""
    if found.comparisons is None:
        return []
    rows = found.comparisons.to_dict("records")
    if len(found.classes) != 2:
        return rows
    return [row for row in rows if row["class"] == less_common(found)]


def less_common(found: Judgement) -> Any:
    """Return the class with the fewest verdicts."""
    return found.table.groupby("class", sort=False)["raw"].mean().idxmin()


def describe_worth(found: Judgement) -> list[str]:
    """Return sentences about the number of labels that would give equally short intervals without the judge."""
    rows = [] if found.worth is None else found.worth.to_dict("records")
    lines = []
    for row in rows:
        if row["worth"] == row["worth"] and row["n_labels"]:
            of = "" if found.by is None else f" of {row[found.by]}"
            lines.append(f"Your {row['n_labels']:,.0f} labels{of} are worth {row['worth']:,.0f} without the judge.")
    return lines


def describe_plan(found: Judgement) -> list[str]:
    """Return sentences about the labels that are needed for intervals of the planned width."""
    if found.plan is None:
        return []
    lines, keys = [], [name for name in (found.by, "design") if name is not None]
    for key, part in found.plan.groupby(keys, sort=False):
        of = "" if found.by is None else f"{key[0]}: "
        if part["n_labels"].isna().any():
            if key[-1] == "random":
                lines.append(f"{of}Even labels of all rows do not give the planned width, which needs more rows.")
            continue
        total, more = int(part["n_labels"].sum()), int(part["n_more"].sum())
        if key[-1] == "random":
            how = "drawn at random"
        else:
            split = ", ".join(f"{row['n_more']:,.0f} {row['verdict']}" for row in part.to_dict("records"))
            how = f"drawn by verdict ({split})"
        lines.append(f"{of}{more:,} more labels {how}, {total:,} in all, are needed for the planned width.")
    return lines


def describe_prevalence(found: Prevalence, raw: float, coverage: float) -> list[str]:
    """Return a line about a prevalence that was corrected for the errors of a test.

    Examples
    --------
    >>> from histnetq.uncertainty.rogan_gladen import Prevalence
    >>> describe_prevalence(Prevalence(0.143, 0.021, 0.248), 0.3, 0.9)
    ['Prevalence 14.3 % (90 % interval: 2.1 % to 24.8 %); 30.0 % of the tests are positive.']
    """
    ends = f"{100 * found.lower:.1f} % to {100 * found.upper:.1f} %"
    about = f"{100 * found.estimate:.1f} % ({100 * coverage:.3g} % interval: {ends})"
    return [f"Prevalence {about}; {100 * raw:.1f} % of the tests are positive."]
