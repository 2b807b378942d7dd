"""The figures of the experiments; each function draws into one axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from histnetq.evaluation import plots
from histnetq.evaluation.comparison import Comparison
from histnetq.evaluation.plot_style import COLORS

__all__ = ["coverage_panels", "draw_by_shift", "draw_curves", "draw_errors", "draw_mixture", "draw_over_time", "save"]


def save(path: Path, panels: Sequence[Callable[[Axes], Any]], *, columns: int = 2, height: float = 3.4) -> None:
    """Draw each panel into its own axes and write the picture."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.8 * columns, height * rows), squeeze=False)
    for place, draw in zip(axes.flat, panels, strict=False):
        place.spines[["top", "right"]].set_visible(False)
        draw(place)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_curves(axes: Axes, title: str, curves: Mapping[str, NDArray[np.float64]], label: str, before: int) -> None:
    """Losses by epoch, one line per name; some epochs came before."""
    for color, (name, values) in zip(COLORS, curves.items(), strict=False):
        axes.plot(before + np.arange(1, len(values) + 1), values, color=color, label=name, linewidth=1.4)
    axes.set(title=title, xlabel="epoch", ylabel=label, yscale="log")
    axes.legend(frameon=False, fontsize=8)


def draw_over_time(axes: Axes, title: str, curves: Mapping[str, tuple[NDArray, NDArray]], label: str) -> None:
    """Losses by minutes of training, one line per name, which has its minutes and its losses."""
    for color, (name, (minutes, values)) in zip(COLORS, curves.items(), strict=False):
        axes.plot(minutes, values, color=color, label=name, linewidth=1.4)
    axes.set(title=title, xlabel="minutes of training", ylabel=label, yscale="log")
    axes.legend(frameon=False, fontsize=8)


def draw_errors(axes: Axes, title: str, errors: Mapping[str, NDArray[np.float64]], label: str) -> None:
    """Distributions of errors over bags, with their means."""
    top = max(float(np.quantile(values, 0.995)) for values in errors.values())
    edges = np.linspace(0, top, 21)  # wider than the steps of proportions that are multiples of 1 / bag size
    for color, (name, values) in zip(COLORS, errors.items(), strict=False):
        axes.hist(
            values, edges.tolist(), density=True, color=color, alpha=0.45, label=f"{name} (mean {values.mean():.4f})"
        )
        axes.axvline(values.mean(), color=color, linestyle="--", linewidth=1.2)
    axes.set(title=title, xlabel=label, ylabel="density", ylim=(0, 1.3 * axes.get_ylim()[1]))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.legend(frameon=False, fontsize=8)


def draw_by_shift(axes: Axes, title: str, comparison: Comparison, methods: Sequence[str], measure: str) -> None:
    """Mean error by the amount of prior shift, over a histogram of the bags."""
    plots.error_by_shift(comparison, measure, methods, ax=axes).set_title(title)


def coverage_panels(found: pd.DataFrame) -> list[Callable[[Axes], Any]]:
    """Observed against nominal coverage of conformal intervals, one panel for each data set and method."""
    parts = found[found["interval"] == "conformal"].groupby(["data", "method"], sort=False)

    def panel(title: str, part: pd.DataFrame) -> Callable[[Axes], Any]:
        observed = {level: (own, joint) for level, own, joint in part[["level", "coverage", "joint"]].to_numpy()}
        return lambda axes: plots.coverage(observed, axes).set_title(title)

    return [panel(f"{data}, {method}", part) for (data, method), part in parts]


def draw_mixture(
    axes: Axes, title: str, edges: NDArray, parts: Mapping[str, NDArray], bag: NDArray, mixture: NDArray
) -> None:
    """Histograms of both classes, of a bag, and of the mixture of the classes that is nearest to the bag."""
    axes.stairs(bag, edges, fill=True, color="#bbbbbb", label="bag")
    for color, (name, values) in zip(COLORS, parts.items(), strict=False):
        axes.stairs(values, edges, color=color, linewidth=1.2, linestyle="--", label=name)
    axes.stairs(mixture, edges, color="black", linewidth=1.8, label="mixture")
    axes.set(title=title, xlabel="posterior", ylabel="share")
    axes.legend(frameon=False, fontsize=8)
