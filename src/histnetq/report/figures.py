"""The plots of a report, each as an image with a caption."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.class_names import add_columns
from histnetq.bags.indexing import have_order
from histnetq.evaluation import plots
from histnetq.evaluation.plot_style import MOST_NAMES
from histnetq.uncertainty.intervals import Intervals, Region

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from histnetq.report.page import ReportContent

Plot = tuple[str, list[str], str]  # title, one or several images, caption
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # nominal coverages
_MOST_BAGS_IN_LINES, _MOST_BAGS_IN_HISTOGRAMS = 200, 500
_MOST_TOGETHER, _MOST_PANELS = 2, 30  # largest numbers of classes in one plot of estimates, and of such plots
_FEWEST_BAGS = 10  # smallest number of bags for plots of errors
_CAPTIONS = {
    "Estimates against the truth": "One dot for each bag and class: the nearer to the diagonal, the better.",
    "Bias": "A box holds the middle half of the bags: above zero the class is estimated too common, below too rare.",
    "Coverage": "Observed against nominal coverage of the intervals: below the diagonal, intervals are too narrow; "
    "above it, they are wider than necessary.",
    "Error by shift": "Mean error by the distance of the true shares from the training shares: the flatter a line, the "
    "better the method copes with change; pale bars count the bags.",
    "Training": "Loss by epoch on training bags and on validation bags: the weights of the best epoch, where the "
    "validation loss is lowest, are kept.",
    "Learned histograms": "Histograms of the bags in one learned feature: grey bars are the mean of all bags, lines "
    "are bags with much of one class, or single bags if there are few; where lines differ, the feature separates the "
    "classes.",
}


def figures(content: ReportContent) -> Iterator[Plot]:
    """Yield the plots that the content allow."""
    model, table, comparison, n_bags = content.model, content.table, content.comparison, len(content.bags)
    if table is not None:
        many = " The classes with the largest errors are coloured." if len(content.classes) > MOST_NAMES else ""
        yield _figure("Estimates against the truth", lambda f: plots.estimates(table, f.subplots()), many)
    if table is not None and comparison is not None and n_bags >= _FEWEST_BAGS:
        yield _figure("Bias", lambda f: plots.bias(table, f.subplots()))
        if content.intervals is not None:
            found = _coverages(content, content.intervals)
            yield _figure("Coverage", lambda f: plots.coverage(found, f.subplots()))
        n_bins = min(8, n_bags // 5)
        yield _figure("Error by shift", lambda f: plots.error_by_shift(comparison, bins=n_bins, ax=f.subplots()))
    yield _estimates_by_bag(content)
    if model.history_:
        yield _figure("Training", lambda f: plots.training(model.history_, f.subplots()))
    if plots.has_histograms(model):
        some = content.bags[_spread(n_bags, _MOST_BAGS_IN_HISTOGRAMS)]
        yield _figure("Learned histograms", lambda f: plots.histograms(model, some, ax=f.subplots()))


def _coverages(content: ReportContent, found: Intervals) -> dict[float, tuple[float, float]]:
    """Return the observed coverage of intervals at each level that has enough calibration bags."""
    made = {found.coverage: found}
    calibration = content.model.calibration_
    if calibration is not None:
        n_scores = len(calibration.joint_scores)
        levels = [level for level in _LEVELS if level * (n_scores + 1) <= n_scores]
        made = {level: calibration.intervals(found.estimates, content.bags.sizes, level) for level in levels} | made
    return {level: content.observed(other) for level, other in made.items()}


def _estimates_by_bag(content: ReportContent) -> Plot:
    """Draw the estimates by bag: one plot for up to two classes or a single bag, else one plot per class."""
    p, classes, p_true = content.estimates, content.classes, content.bags.prevalences
    some = content.order[_spread(len(p), _MOST_BAGS_IN_LINES)]
    found = content.intervals or Intervals(p, p, p, content.bags.sizes, 0.0, Region(p, np.zeros(len(p))))
    lower, upper = (add_columns(ends, len(classes)) for ends in (found.lower, found.upper))
    # All panels share one scale, so that classes can be compared.
    top = max(p[some].max(), upper[some].max(), 0.0 if p_true is None else p_true[some].max())

    def draw(figure: Figure, shown: NDArray[np.int64]) -> Axes:
        own = np.ix_(some, shown)
        part = replace(found, estimates=p[own], lower=lower[own], upper=upper[own])
        truth = None if p_true is None else p_true[own]
        ax = plots.prevalences(
            part, classes[shown].tolist(), content.bags.ids[some].tolist(), figure.subplots(), truth=truth
        )
        ax.set_ylim(0, min(1.02, 1.08 * top))
        return ax

    def draw_class(figure: Figure, j: int) -> None:
        ax = draw(figure, np.array([j]))
        legend: Any = ax.get_legend()
        ax.set_title(legend.get_texts()[0].get_text(), fontsize=10, loc="left")
        ax.set_ylabel("")
        legend.remove()

    title, caption = "Estimates by bag", _bags_caption(content)
    if len(some) == 1 or len(classes) <= _MOST_TOGETHER:
        return title, [image(lambda figure: draw(figure, np.arange(len(classes))))], caption
    common = np.maximum(p.mean(0), 0 if p_true is None else p_true.mean(0))
    chosen = np.sort(np.argsort(-common, kind="stable")[:_MOST_PANELS])
    return title, [image(functools.partial(draw_class, j=j), (4.8, 2.0)) for j in chosen.tolist()], caption


def _bags_caption(content: ReportContent) -> str:
    n_bags, n_classes = len(content.bags), len(content.classes)
    truth = "" if content.bags.prevalences is None else " Black dashes are the true shares."
    if n_bags == 1:
        return f"A bar for each class{'' if content.intervals is None else ', with its interval'}.{truth}"
    which = f"{_MOST_BAGS_IN_LINES} of the {n_bags:,} bags" if n_bags > _MOST_BAGS_IN_LINES else "the bags"
    classes = f"each of the {_MOST_PANELS} most common classes" if n_classes > _MOST_PANELS else "each class"
    joined = have_order(content.bags.ids)
    bars = "" if content.intervals is None else f", with its {content.intervals.coverage:.0%} interval as a "
    bars += "" if content.intervals is None else "band" if joined else "bar"
    dots = "" if joined else " Dots are not joined, because the names of the bags have no order."
    scale = " All plots have the same scale." if n_classes > _MOST_TOGETHER else ""
    return f"The estimated share of {classes} in {which}, sorted by name{bars}.{truth}{dots}{scale}"


def _spread(n: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` evenly spaced numbers below n."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)


def _figure(title: str, draw: Callable[[Figure], Any], more: str = "") -> Plot:
    return title, [image(draw)], _CAPTIONS[title] + more


def image(draw: Callable[[Figure], Any], inches: tuple[float, float] = (5.5, 4)) -> str:
    """Return a PNG image in base 64."""
    from matplotlib import style
    from matplotlib.figure import Figure

    data = io.BytesIO()
    with style.context("default"):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        figure.savefig(data, format="png", dpi=180)
    return base64.b64encode(data.getvalue()).decode()
