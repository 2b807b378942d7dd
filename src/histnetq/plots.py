"""Plots of estimates, errors, intervals and training; each draws into one matplotlib axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from histnetq.comparison import Comparison
    from histnetq.intervals import Intervals

__all__ = ["bias", "coverage", "error_by_shift", "estimates", "prevalences", "training"]

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]  # told apart by all readers
_MARKERS = "osv^Dxp"


def estimates(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Estimated against true prevalences, one colour per class, from what `histnetq.evaluate` gave."""
    ax = _axes(ax)
    classes = _classes(table)
    for i, name in enumerate(classes):
        ax.scatter(table[f"true_{name}"], table[f"estimated_{name}"], s=9, alpha=0.5, color=_color(i), label=name)
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    ax.set(xlabel="true prevalence", ylabel="estimate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    if len(classes) <= 12:
        ax.legend(frameon=False, fontsize=8)
    return ax


def bias(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Box plots of estimate − truth for each class, from what `histnetq.evaluate` gave."""
    ax = _axes(ax)
    classes = _classes(table)
    errors = [table[f"estimated_{name}"] - table[f"true_{name}"] for name in classes]
    boxes = ax.boxplot(errors, showfliers=False, patch_artist=True, medianprops={"color": "black"})
    for box in boxes["boxes"]:
        box.set(facecolor=COLORS[5], alpha=0.6)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xticks(range(1, len(classes) + 1), classes, rotation=45 if len(classes) > 4 else 0, ha="right")
    ax.set_ylabel("estimate − truth")
    return ax


def error_by_shift(
    comparison: Comparison,
    measure: str = "ae",
    methods: Sequence[str] | None = None,
    bins: int | ArrayLike = 8,
    ax: Axes | None = None,
) -> Axes:
    """Mean error by the amount of prior shift, one line per method, over a histogram of the bags."""
    ax = _axes(ax)
    table = comparison.by_shift(bins)
    middles = [interval.mid for interval in table.index]
    behind = ax.twinx()
    behind.bar(middles, table["n_bags"], width=[0.95 * i.length for i in table.index], color=COLORS[2], alpha=0.18)
    behind.set_ylabel("bags", color="#00664b")
    behind.spines["top"].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    for i, method in enumerate(comparison.table.index if methods is None else methods):
        style = {"color": _color(i), "marker": _MARKERS[i % len(_MARKERS)], "markersize": 4, "linewidth": 1.4}
        ax.plot(middles, table[method, measure], label=method, **style)
    ax.set(xlabel="prior shift (L1 distance)", ylabel=f"mean {measure.upper()}", yscale="log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
    ax.legend(frameon=False, fontsize=8, ncol=2, loc="upper center")
    return ax


def coverage(found: Mapping[float, tuple[float, float]], ax: Axes | None = None) -> Axes:
    """Observed against nominal coverage: nominal → (of the intervals, of the joint regions)."""
    ax = _axes(ax)
    nominal = sorted(found)
    for i, what in enumerate(("intervals", "joint regions")):
        observed = [found[level][i] for level in nominal]
        ax.plot(nominal, observed, color=_color(i), marker=_MARKERS[i], markersize=5, label=what)
    low = min([*nominal, *(value for pair in found.values() for value in pair)])
    ax.plot([low, 1], [low, 1], color="black", linewidth=0.8)
    ax.set(xlabel="nominal coverage", ylabel="observed coverage")
    ax.legend(frameon=False, fontsize=8)
    return ax


def training(history: Mapping[str, NDArray], ax: Axes | None = None) -> Axes:
    """Training and validation losses by epoch, from ``quantifier.history_``."""
    ax = _axes(ax)
    for i, name in enumerate(("train_loss", "validation_loss")):
        ax.plot(history["epoch"], history[name], color=_color(i), label=name.replace("_", " "), linewidth=1.4)
    best = int(np.argmin(history["validation_loss"]))
    ax.plot(history["epoch"][best], history["validation_loss"][best], "o", color=_color(1), label="best epoch")
    ax.set(xlabel="epoch", ylabel="loss", yscale="log")
    ax.legend(frameon=False, fontsize=8)
    return ax


def prevalences(
    found: Intervals, classes: Sequence[Any], ids: Sequence[Any] | None = None, ax: Axes | None = None
) -> Axes:
    """Estimates with intervals: bars for one bag, lines with bands over the bags in their order (time) for several."""
    ax = _axes(ax)
    p, lower, upper = (np.atleast_2d(a) for a in (found.estimates, found.lower, found.upper))
    if len(p) == 1:
        reach = np.maximum(np.stack([p[0] - lower[0], upper[0] - p[0]]), 0)
        ax.bar(range(len(classes)), p[0], yerr=reach, color=COLORS[5], capsize=3)
        ax.set_xticks(
            range(len(classes)), [str(c) for c in classes], rotation=45 if len(classes) > 4 else 0, ha="right"
        )
    else:
        x = np.arange(len(p))
        for j, name in enumerate(classes):
            ax.plot(x, p[:, j], color=_color(j), label=str(name), linewidth=1.4)
            ax.fill_between(x, lower[:, j], upper[:, j], color=_color(j), alpha=0.15, linewidth=0)
        names = [str(i) for i in (x if ids is None else ids)]
        step = -(-len(names) // 12)
        ax.set_xticks(x[::step], names[::step], rotation=45, ha="right")
        if len(classes) <= 12:
            ax.legend(frameon=False, fontsize=8)
    ax.set(ylabel="prevalence", ylim=(0, None))
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("plots need matplotlib; install it by pip install 'histnetq[report]'.") from None
        ax = plt.subplots()[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _classes(table: pd.DataFrame) -> list[str]:
    return [str(column).removeprefix("true_") for column in table if str(column).startswith("true_")]


def _color(i: int) -> Any:
    """Another colour for each of the first classes; then those of a wheel."""
    if i < len(COLORS):
        return COLORS[i]
    from matplotlib import colormaps

    return colormaps["hsv"]((i * 0.618) % 1)
