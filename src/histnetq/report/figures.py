"""The plots of a report, each as an image with a caption that says how to read it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.evaluation import plots
from histnetq.uncertainty.intervals import Intervals, Region

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from histnetq.report.page import Facts

_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of coverage
_MOST_BAGS_IN_LINES, _MOST_BAGS_IN_HISTOGRAMS = 60, 500
_MOST_LINES, _MOST_PANELS = 4, 12  # classes in one plot of estimates by bag, and in a panel each
_FEWEST_BAGS = 10  # for plots of how errors are distributed
_CAPTIONS = {
    "Estimates against the truth": "One dot for each bag and class: the nearer to the diagonal, the better.",
    "Bias": "A box holds the middle half of the bags: above zero the class is estimated too common, below too rare.",
    "Coverage": "How many intervals hold the truth against how many should: below the diagonal they promise too much, "
    "above it they are wider than need be.",
    "Error by shift": "Mean error by how far the true shares are from those in training: the flatter a line, the "
    "better the method copes with change; pale bars count the bags.",
    "Training": "Loss by epoch on bags that were learned from and on bags held out: the weights of the best epoch, "
    "where the second is lowest, are kept.",
    "Learned histograms": "What the network sees of the bags in one feature that it learned: grey bars are its bins "
    "with the mean of all bags, lines are bags with much of one class, or single bags if they are few; where lines "
    "part, the classes can be told apart.",
}


def figures(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield the plots that apply: title, image and caption."""
    model, table, comparison, n_bags = facts.model, facts.table, facts.comparison, len(facts.bags)
    if table is not None:
        yield _figure("Estimates against the truth", lambda f: plots.estimates(table, f.subplots()))
    if table is not None and comparison is not None and n_bags >= _FEWEST_BAGS:
        yield _figure("Bias", lambda f: plots.bias(table, f.subplots()))
        if facts.intervals is not None:
            found = _coverages(facts, facts.intervals)
            yield _figure("Coverage", lambda f: plots.coverage(found, f.subplots()))
        n_bins = min(8, n_bags // 5)
        yield _figure("Error by shift", lambda f: plots.error_by_shift(comparison, bins=n_bins, ax=f.subplots()))
    yield _figure("Estimates by bag", lambda f: _draw_bags(facts, f), _told_of_bags(facts))
    if hasattr(model, "history_"):
        yield _figure("Training", lambda f: plots.training(model.history_, f.subplots()))
    if hasattr(getattr(getattr(model, "network_", None), "pooling", None), "bins"):
        some = facts.bags[_spread(n_bags, _MOST_BAGS_IN_HISTOGRAMS)]
        yield _figure("Learned histograms", lambda f: plots.histograms(model, some, ax=f.subplots()))


def _coverages(facts: Facts, found: Intervals) -> dict[float, tuple[float, float]]:
    """Return the observed coverage, also at those other levels for which there are enough calibration bags."""
    made = {found.coverage: found}
    if hasattr(facts.model, "calibration_"):
        calibration = facts.model.calibration_
        n_scores = len(calibration.joint_scores)
        levels = [level for level in _LEVELS if level * (n_scores + 1) <= n_scores]
        made = {level: calibration.intervals(facts.estimates, facts.bags.sizes, level) for level in levels} | made
    return {level: facts.observed(other) for level, other in made.items()}


def _draw_bags(facts: Facts, figure: Figure) -> None:
    """Draw the estimates over the bags: few classes in one plot; of more, the most common in a panel each."""
    p, classes = facts.estimates, facts.model.classes_
    some = _spread(len(p), _MOST_BAGS_IN_LINES)
    names = [name if len(name) <= 16 else f"{name[:15]}…" for name in map(str, facts.bags.ids[some])]
    found = facts.intervals or Intervals(p, p, p, facts.bags.sizes, 0.0, Region(p, np.zeros(len(p))))
    panels = np.arange(len(classes))[None]
    if len(some) > 1 and len(classes) > _MOST_LINES:
        panels = np.sort(np.argsort(-p.mean(0), kind="stable")[:_MOST_PANELS])[:, None]
    n_rows = -(-len(panels) // 2)
    figure.set_figheight(max(4, 1.5 * n_rows))
    grid = figure.subplots(n_rows, min(2, len(panels)), sharex=True, sharey=True, squeeze=False)
    for ax, panel in zip(grid.flat, panels, strict=False):
        own = np.ix_(some, panel)
        part = replace(found, estimates=p[own], lower=found.lower[own], upper=found.upper[own])
        plots.prevalences(part, classes[panel].tolist(), names, ax)
        if len(panels) > 1:
            ax.set_title(ax.get_legend().get_texts()[0].get_text(), fontsize=9, loc="left")
            ax.get_legend().remove()
            ax.set(xticks=[], ylabel="", ylim=(0, 1.05 * found.upper[some].max()))
    for ax in grid.flat[len(panels) :]:
        ax.set_visible(False)


def _told_of_bags(facts: Facts) -> str:
    n_bags, n_classes = len(facts.bags), len(facts.model.classes_)
    if n_bags == 1:
        return f"A bar for each class{'' if facts.intervals is None else ', with its interval'}."
    which = f"{_MOST_BAGS_IN_LINES} of the {n_bags:,} bags" if n_bags > _MOST_BAGS_IN_LINES else "the bags"
    classes = f"each of the {_MOST_PANELS} most common classes" if n_classes > _MOST_PANELS else "each class"
    bands = "" if facts.intervals is None else f", with its {facts.intervals.coverage:.0%} interval as a band"
    return f"The estimated share of {classes} in {which}, from left to right in their order{bands}."


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Return at most so many numbers below n, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)


def _figure(title: str, draw: Callable[[Figure], Any], caption: str = "") -> tuple[str, str, str]:
    """Return the title, the image as text in base 64, and the caption."""
    from matplotlib import style
    from matplotlib.figure import Figure

    data = io.BytesIO()
    with style.context("default"):
        figure = Figure(figsize=(5.5, 4), layout="constrained")
        draw(figure)
        figure.savefig(data, format="png", dpi=180)
    return title, base64.b64encode(data.getvalue()).decode(), caption or _CAPTIONS[title]
