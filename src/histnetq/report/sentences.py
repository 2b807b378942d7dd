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
    return ", ".join(f"{column} ({why})" for column, why in left_out.items())


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
