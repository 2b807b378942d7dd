"""Plots of a mix over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.evaluation.plot_style import COLORS, MOST_NAMES, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CLASSES = 30  # that have a panel each
_ALERT, _LIMIT, _DOUBT = "#b3261e", "#8a939c", "#E69F00"


def draw_all(table: pd.DataFrame) -> Figure:
    """Draw the mix of one segment over time, and below it a panel for each class."""
    require_matplotlib()
    from matplotlib.figure import Figure

    names = shown_classes(table)
    figure = Figure(figsize=(8, 3 + 1.9 * len(names)), layout="constrained")
    axes = figure.subplots(1 + len(names), 1, height_ratios=[1.5] + [1] * len(names))
    draw_mix(table, axes[0])
    for name, ax in zip(names, axes[1:], strict=True):
        draw_class(table, name, ax)
    return figure


def shown_classes(table: pd.DataFrame) -> list[Any]:
    """The classes that have a panel: all, or the most common."""
    common = table.groupby("class", sort=False)["estimate"].mean()
    chosen = set(common.sort_values(ascending=False).index[:_MOST_CLASSES])
    return [name for name in common.index if name in chosen]


def draw_mix(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the estimates of all classes as stacked areas."""
    names = table["class"].drop_duplicates().tolist()
    wide = np.stack([table.loc[table["class"] == name, "estimate"].to_numpy() for name in names])
    one = table[table["class"] == names[0]]
    times, place = _with_gaps(one)
    shares = np.where(place < 0, np.nan, wide[:, place])
    top = np.cumsum(shares, axis=0)
    for j, name in enumerate(names):
        label = str(name) if j < MOST_NAMES - 1 or len(names) <= MOST_NAMES else None
        ax.fill_between(
            times, top[j] - shares[j], top[j], color=COLORS[j % len(COLORS)], label=label,
            alpha=1 - 0.3 * (j // len(COLORS) % 3), linewidth=0.3, edgecolor="white",
        )  # fmt: skip
    _mark_reference(one, ax)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6, fontsize=8, frameon=False, borderaxespad=0)
    return _dated(ax)


def draw_class(table: pd.DataFrame, name: Any, ax: Axes) -> Axes:
    """Draw the estimates of a class, with intervals, the reference, thresholds and alerts."""
    one = table[table["class"] == name]
    times, place = _with_gaps(one)
    lines = {c: np.where(place < 0, np.nan, one[c].to_numpy(float)[place]) for c in
             ("estimate", "lower", "upper", "reference", "threshold_lower", "threshold_upper")}  # fmt: skip
    color = COLORS[0]
    ax.fill_between(times, lines["lower"], lines["upper"], color=color, alpha=0.2, linewidth=0)
    ax.plot(times, lines["reference"], color=_LIMIT, linewidth=1)
    for end in ("threshold_lower", "threshold_upper"):
        ax.plot(times, lines[end], color=_LIMIT, linewidth=1, linestyle="--")
    ax.plot(times, lines["estimate"], color=color, linewidth=1.3, marker=".", markersize=3)
    middle = _middle(one)
    doubted = (one["verdict"] == "rows look different").to_numpy()
    for marked, sign, paint in ((doubted, "s", _DOUBT), (one["alert"].to_numpy(bool), "o", _ALERT)):
        ax.plot(middle[marked], one["estimate"].to_numpy()[marked], sign, color=paint, markersize=6, fillstyle="none",
                markeredgewidth=1.5)  # fmt: skip
    _mark_reference(one, ax)
    ax.set_title(str(name), fontsize=10, loc="left")
    high = np.nanmax([np.nanmax(values) for values in lines.values() if np.isfinite(values).any()])
    ax.set_ylim(0, min(1.02, 1.08 * high))
    return _dated(ax)


def _mark_reference(one: pd.DataFrame, ax: Axes) -> None:
    """Shade the time of the reference."""
    held = one[one["period"] == "reference"]
    ax.axvspan(_plain(held["start"]).min(), _plain(held["end"]).max(), color="#000000", alpha=0.06, linewidth=0)


def _dated(ax: Axes) -> Axes:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _with_gaps(one: pd.DataFrame) -> tuple[NDArray, NDArray[np.int64]]:
    """Times to draw at, and which chunk is at each; −1 where chunks are missing, so that lines break."""
    middle, starts = _middle(one), _plain(one["start"])
    steps = np.diff(starts).astype(np.int64)
    gaps = 1 + np.flatnonzero(steps > 1.5 * np.median(steps)) if len(steps) else np.empty(0, np.int64)
    return np.insert(middle, gaps, middle[gaps]), np.insert(np.arange(len(middle)), gaps, -1)


def _middle(one: pd.DataFrame) -> NDArray:
    starts, ends = _plain(one["start"]), _plain(one["end"])
    return starts + (ends - starts) // 2


def _plain(times: pd.Series) -> NDArray:
    return times.dt.tz_localize(None).to_numpy("datetime64[us]")
