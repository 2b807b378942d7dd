"""`write_report`: write one HTML file, which needs no network, about a quantifier and the bags it estimated."""

from __future__ import annotations

import html
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.data.bags import Bags
from histnetq.data.files import refuse_existing, whole_file
from histnetq.evaluation import plots
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.errors import align, compare, evaluate
from histnetq.quantifiers.base import Quantifier
from histnetq.report.figures import figures
from histnetq.uncertainty.conformal import Intervals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Facts", "write_report"]

_BASELINE = "mean of training"
_NO_WARNING = ("ok", "unchecked")
_MOST_NAMES = 40  # features whose names are shown at once; more of them are folded


@dataclass(frozen=True)
class Facts:
    """What the sections of a report are made from. `table` and `comparison` hold errors where the truth is known."""

    model: Quantifier
    bags: Bags
    estimates: NDArray[np.float64]
    intervals: Intervals | None
    trust: pd.DataFrame | None
    command: str
    sources: Sequence[Any]
    table: pd.DataFrame | None = None
    comparison: Comparison | None = None

    @property
    def method(self) -> str:
        return type(self.model).__name__

    @property
    def provenance(self) -> Mapping[str, Any]:
        return getattr(self.model, "provenance_", None) or {}

    @property
    def warnings(self) -> int | None:
        """Number of bags with a trust warning, or None if no bag could be checked."""
        if self.trust is None or (self.trust["trust"] == "unchecked").all():
            return None
        return int((~self.trust["trust"].isin(_NO_WARNING)).sum())

    def observed(self, found: Intervals) -> tuple[float, float]:
        """Return the fractions of the intervals and of the joint regions that hold the truth."""
        p: Any = self.bags.prevalences
        return float(found.contains(p).mean()), float(found.region.contains(p).mean())


def write_report(
    path: str | os.PathLike[str],
    *,
    model: Quantifier,
    bags: Bags,
    intervals: Intervals | None = None,
    trust: pd.DataFrame | None = None,
    rivals: Mapping[str, ArrayLike | pd.DataFrame] | None = None,
    command: str = "",
    sources: Sequence[Any] = (),
    force: bool = False,
) -> None:
    """Write one HTML file about a quantifier: what it learned, what it found, and how far that can be trusted.

    Parameters
    ----------
    path : path
        The file to write. It is written as a whole or not at all.
    model : Quantifier
        A fitted quantifier. Its ``provenance_``, if it has one, tells how it came about.
    bags : Bags
        The bags that the report is about. The report shows errors where their prevalences are known.
    intervals : Intervals, optional
        The result of ``model.predict_interval`` for the bags. Default: the report shows estimates alone.
    trust : pandas.DataFrame, optional
        The result of ``model.trust`` for the bags, with one row per bag: `p_value`, NaN where there is none, and
        `trust`, which is "ok", "unchecked" or what speaks against the bag. Other columns are not shown.
    rivals : dict, optional
        Estimates of other methods by their names, for the table of errors: (n_bags, n_classes) in the order of
        ``model.classes_``, or data frames with the classes as columns.
    command : str, default=""
        The command that makes this report again.
    sources : sequence, default=()
        The names of the files that the bags came from.
    force : bool, default=False
        Whether an existing file is replaced.
    """
    path = Path(path)
    refuse_existing(path, force)
    plots.require_matplotlib()
    if trust is not None and (len(trust) != len(bags) or not {"p_value", "trust"} <= set(trust)):
        raise ValueError(
            f"trust: expected {len(bags)} rows with p_value and trust, got {len(trust)} with {', '.join(trust)}."
        )
    expected = len(bags), len(model.classes_)
    if intervals is not None and np.shape(intervals.estimates) != expected:
        got = np.shape(intervals.estimates)
        raise ValueError(
            f"intervals: expected shape (n_bags, n_classes) = {expected}, got {got}; make them of these bags."
        )
    estimates = model.predict(bags) if intervals is None else intervals.estimates
    facts = Facts(model, bags, estimates, intervals, trust, command, sources)
    text = _page(facts if bags.prevalences is None else _with_errors(facts, rivals or {}))
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def _with_errors(facts: Facts, rivals: Mapping[str, Any]) -> Facts:
    prior, p, name = facts.model.train_prevalences_, facts.estimates, facts.method
    bags = align(facts.bags, [str(c) for c in facts.model.classes_])
    estimates: dict[str, Any] = {f"{name} (reported)" if name in rivals else name: p, **rivals}
    estimates.setdefault(_BASELINE, np.tile(prior, (len(bags), 1)))
    table = evaluate(p, bags, measures="ae", train_prevalences=prior)
    return replace(facts, bags=bags, table=table, comparison=compare(estimates, bags, train_prevalences=prior))


def _page(facts: Facts) -> str:
    sections = {
        "learned": ("What was learned from what", _learned(facts)),
        "errors": ("Errors", _errors(facts)),
        "plots": ("Plots", f'<div class="plots">\n{"".join(figures(facts))}</div>'),
        "bags": ("Bags", _bag_table(facts)),
        "trust": ("Trust", "" if facts.trust is None else _template("trust.html").substitute()),
        "repeat": ("How to repeat this", _repeat(facts)),
    }
    kept = {key: (title, content) for key, (title, content) in sections.items() if content}
    return _template("page.html").substitute(
        title=f"Class shares in {_count(len(facts.bags), 'bag')}, estimated by {_text(facts.method)}",
        summary=" ".join(_summary(facts)),
        tiles=_tiles(facts),
        links=" ".join(f'<a href="#{key}">{title}</a>' for key, (title, _) in kept.items()),
        sections="\n".join(f'<section id="{k}">\n<h2>{t}</h2>\n{c}\n</section>' for k, (t, c) in kept.items()),
        date=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
    )


def _template(name: str) -> Template:
    return Template(resources.files("histnetq.report").joinpath(name).read_text("utf-8").rstrip("\n"))


def _summary(facts: Facts) -> Iterator[str]:
    """Yield sentences for readers who do not know the method."""
    low, high = f"{facts.bags.sizes.min():.0f}", f"{facts.bags.sizes.max():.0f}"
    classes, bags = len(facts.model.classes_), _count(len(facts.bags), "bag")
    rows = low if low == high else f"{low} to {high}"
    yield f"{_text(facts.method)} estimated how common each of {classes} classes is in {bags} of {rows} rows."
    if facts.comparison is None:
        yield "The true shares are not known, so nothing here measures how good the estimates are."
    else:
        means = 100 * facts.comparison.table["ae", "mean"]
        own, baseline, others = means.iloc[0], means[_BASELINE], means.drop([means.index[0], _BASELINE])
        nearer = others.size > 0 and others.min() < own
        yield (
            f"On average an estimated share is <b>{own:.2f} percentage points</b> away from the truth; "
            f"giving every bag the shares of the training data would be {baseline:.2f} points away"
            + (f", and {_text(others.idxmin())} comes nearer with {others.min():.2f}." if nearer else ".")
        )
        if own >= baseline:
            yield "<b>The estimates are no better than that.</b>"
    told = []
    if facts.intervals is not None and facts.table is not None:
        inside = facts.observed(facts.intervals)[0]
        told.append(f"of its {facts.intervals.coverage:.0%} intervals, {inside:.1%} hold the truth")
    if (n := facts.warnings) is not None:
        told.append(f"{n or 'no'} bag{'s carry' if n > 1 else ' carries'} a trust warning")
    sentence = "; ".join(told)
    yield f"{sentence[:1].upper()}{sentence[1:]}." if told else ""


def _tiles(facts: Facts) -> str:
    """Return the headline numbers, each with its name and a note."""
    n_bags, n_classes = len(facts.bags), len(facts.model.classes_)
    tiles = [("", "bags", f"{n_bags:,}", f"{facts.bags.sizes.sum():,.0f} rows, {n_classes} classes")]
    if facts.comparison is not None:
        means = facts.comparison.table["ae", "mean"]
        tiles.append(("", "mean absolute error", f"{means.iloc[0]:.4f}", f"{_BASELINE}: {means[_BASELINE]:.4f}"))
    if facts.intervals is not None:
        promised, note = f"{facts.intervals.coverage:.0%}", "of the intervals hold the truth"
        if facts.table is None:
            tiles.append(("", "promised coverage", promised, note))
        else:
            found = f"{facts.observed(facts.intervals)[0]:.1%}"
            tiles.append(("", "coverage", found, f"{note}; promised: {promised}"))
    if (n := facts.warnings) is not None:
        tiles.append(("warn" if n else "", "trust warnings", f"{n:,}", f"{n / n_bags:.1%} of the bags"))
    cells = (f'<div class="{c}"><dt>{t}</dt><dd>{v}<small>{s}</small></dd></div>' for c, t, v, s in tiles)
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _learned(facts: Facts) -> str:
    model, known = facts.model, facts.provenance
    most = model.train_prevalences_.max()
    classes = (
        f'<li>{_text(name)} <span>{p:.1%}</span><i style="--share:{p / most:.1%}"></i></li>'
        for name, p in zip(model.classes_, model.train_prevalences_, strict=True)
    )
    calibrated = _count(known["calibration_bags"], "other bag") if known.get("calibration_bags") else "other bags"
    took = {"seconds": f"{known.get('seconds', 0):.1f} s", "date": known.get("date")}
    names, shape = model.feature_names_, model.input_shape_
    features = f"{' × '.join(map(str, shape))} numbers in each row, not named" if shape else "texts"
    if names is not None:
        features = _listed(names)
        if len(names) > _MOST_NAMES:
            features = f"<details><summary>{len(names):,} columns</summary>{features}</details>"
    pairs = {
        "Method": f"<b>{_text(facts.method)}</b>",
        "Why this method": _text(known.get("why", "")),
        "Learned from": _listed(_count(known[key], key[:-1]) for key in ("bags", "rows") if key in known),
        "Sources": _listed(known.get("sources", ())),
        "Training": _listed(value for key, value in took.items() if key in known),
        "Intervals": f"calibrated by {calibrated}" if hasattr(model, "calibration_") else "not calibrated",
        "Shares in training": f'<ul class="classes">{"".join(classes)}</ul>',
        "Features": features,
        "Parameters": f"<code>{_text(' '.join(repr(model).split()))}</code>",
    }
    return _pairs(pairs)


def _errors(facts: Facts) -> str:
    if facts.comparison is None:
        return ""
    parts = [_template("errors.html").substitute(baseline=_BASELINE)]
    parts.append(f'<div class="errors scroll">{facts.comparison._repr_html_()}</div>')
    if facts.intervals is not None:
        single, joint = facts.observed(facts.intervals)
        parts.append(
            f"<p>Of the {facts.intervals.coverage:.0%} intervals, <b>{single:.1%}</b> hold the true share of their "
            f"class; <b>{joint:.1%}</b> of the bags have all their true shares in their joint region.</p>"
        )
    return "\n".join(parts)


def _bag_table(facts: Facts) -> str:
    heads, columns = zip(*_columns(facts), strict=True)
    reasons = ["ok"] * len(facts.bags) if facts.trust is None else facts.trust["trust"]
    head = "".join(
        f'<th scope="col" class="{"number" if number else "text"}"><button>{_text(name)}</button></th>'
        for name, number in heads
    )
    opened = ("<tr>" if why in _NO_WARNING else f'<tr class="warn" title="{_text(why)}">' for why in reasons)
    body = "\n".join("".join(cells) + "</tr>" for cells in zip(opened, *columns, strict=True))
    small = [] if facts.intervals is None else [f"the {facts.intervals.coverage:.0%} interval"]
    small += [] if facts.table is None else ["the true share"]
    note = f", in small print {' and '.join(small)}" if small else ""
    warned = " Bags with a trust warning are coloured, and the last column says why." if facts.warnings else ""
    # The style sheet computes the width of the columns from these.
    name = min(14, 4.4 + 0.6 * max(len(str(bag)) for bag in facts.bags.ids))
    text = 0 if facts.trust is None else 11
    numbers = len(heads) - 2 - bool(text)
    sizes = f"--name:{name:.1f}rem;--numbers:{numbers};--text:{text}rem;--height:{2.3 + len(small):.1f}rem"
    return (
        f"<p>Each class’s estimated share in percent{note}; n is the number of rows.{warned} "
        '<span class="hint">Click on a header to sort by it, again for the other direction.</span></p>\n'
        f'<div class="bags" style="{sizes}" tabindex="0" role="region" aria-label="Table of bags">'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _columns(facts: Facts) -> Iterator[tuple[tuple[str, bool], Iterable[str]]]:
    """Yield the columns of the table of bags: the name, whether the column holds numbers, and the cells."""
    ids, sizes, p_true = facts.bags.ids, facts.bags.sizes, facts.bags.prevalences
    yield ("bag", ids.dtype.kind in "iuf"), (f'<th scope="row">{_text(bag)}</th>' for bag in ids)
    yield ("n", True), (f"<td>{n:.{int(sizes.dtype.kind == 'f')}f}</td>" for n in sizes)
    for j, name in enumerate(facts.model.classes_):
        parts = [[f"<td>{100 * p:.1f}" for p in facts.estimates[:, j]]]
        if facts.intervals is not None:
            ends = 100 * facts.intervals.lower[:, j], 100 * facts.intervals.upper[:, j]
            parts.append([f"<small>{low:.1f}–{high:.1f}</small>" for low, high in zip(*ends, strict=True)])
        if p_true is not None:
            parts.append([f"<small>true {100 * p:.1f}</small>" for p in p_true[:, j]])
        yield (str(name), True), ("".join(cell) + "</td>" for cell in zip(*parts, strict=True))
    if facts.table is not None:
        yield ("AE", True), (f"<td>{error:.4f}</td>" for error in facts.table["ae"])
    if facts.trust is not None:
        yield ("p-value", True), (f"<td>{'–' if p != p else f'{p:.3f}'}</td>" for p in facts.trust["p_value"])
        yield ("trust", False), (f'<td class="text">{_text(said)}</td>' for said in facts.trust["trust"])


def _repeat(facts: Facts) -> str:
    known = facts.provenance
    commands = [str(c) for c in (known.get("command"), facts.command) if c]
    names = ["histnetq", "numpy", *(["torch"] if "torch" in sys.modules else [])]
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in names}
    pairs = {
        "Sources of the model": _listed(known.get("sources", ())),
        "Sources of the bags": _listed(facts.sources),
        "Versions": _listed(f"{name} {version}" for name, version in versions.items()),
        "Versions in training": _listed(f"{name} {version}" for name, version in known.get("versions", {}).items()),
    }
    shown = f"<pre>{_text(chr(10).join(commands))}</pre>" if commands else "<p>No command was given.</p>"
    return f"{shown}\n{_pairs(pairs)}"


def _pairs(pairs: Mapping[str, str]) -> str:
    """Return terms with their descriptions; terms without one are left out."""
    return f'<dl class="facts">{"".join(f"<dt>{t}</dt><dd>{d}</dd>" for t, d in pairs.items() if d)}</dl>'


def _listed(items: Iterable[Any]) -> str:
    return _text(", ".join(map(str, items)))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _text(value: Any) -> str:
    return html.escape(str(value))
