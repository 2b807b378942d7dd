"""Plots of class prevalences over time, for `monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histnetq.evaluation.plot_style import COLORS, MOST_NAMES, as_label, color_of, require_matplotlib, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CLASSES = 30  # largest number of classes with a panel
_LONGEST_NAME = 48  # letters shown of the name of a class
_ALERT, _LIMIT, _DOUBT = "#b3261e", "#8a939c", "#E69F00"


def draw_all(table: pd.DataFrame) -> Figure:
    """Draw the mix of one segment over time, and below it a panel for each class."""
    require_matplotlib()
    from matplotlib.figure import Figure

    names, rated = shown_classes(table), int("accuracy" in table)
    n_panels = len(names) + rated
    figure = Figure(figsize=(8, 3 + 1.9 * n_panels), layout="constrained")
    axes = figure.subplots(1 + n_panels, 1, height_ratios=[1.5] + [1] * n_panels)
    draw_mix(table, axes[0])
    for name, ax in zip(names, axes[1:], strict=False):
        draw_class(table, name, ax)
    if rated:
        draw_performance(table, axes[-1])
    return figure


def shown_classes(table: pd.DataFrame) -> list[Any]:
    """Return the classes that get a panel, those with an alert first, then the most common ones."""
    about = table.groupby("class", sort=False).agg({"alert": "any", "estimate": "mean"})
    chosen = about.sort_values(["alert", "estimate"], ascending=False, kind="stable").index[:_MOST_CLASSES]
    return about[about.index.isin(chosen)].sort_values("alert", ascending=False, kind="stable").index.tolist()


def draw_mix(table: pd.DataFrame, ax: Axes, legend: bool = True) -> Axes:
    """Draw the estimates of all classes as stacked areas, where a chunk extends from its start to its end."""
    names = class_names(table)
    one = table[table["class"] == names[0]]
    shares = table["estimate"].to_numpy().reshape(len(one), len(names))
    times, place = _edges(one)
    shares = np.where(place[:, None] < 0, np.nan, shares[place])
    top = np.cumsum(shares, axis=1)
    for j, name in enumerate(names):
        label = _label(name) if len(names) <= MOST_NAMES or j < MOST_NAMES - 1 else None
        style: dict[str, Any] = {"color": color_of(j), "label": label, "linewidth": 0.3, "edgecolor": "white"}
        ax.fill_between(times, top[:, j] - shares[:, j], top[:, j], **style)
    held = one[one["period"] == "reference"]
    if len(held):
        ends = [_plain(held["start"]).min(), _plain(held["end"]).max()]
        ax.plot(ends, [1.03, 1.03], color=_LIMIT, linewidth=4, solid_capstyle="butt", clip_on=False)
        ax.annotate("reference", (ends[0], 1.03), (0, 4), textcoords="offset points", fontsize=8, annotation_clip=False)
    ax.set_ylim(0, 1)
    ax.set_ylabel("share", fontsize=8)
    if legend:
        n_columns = max(1, min(6, 90 // (6 + max(len(_label(name)) for name in names))))
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1.12), ncols=n_columns, fontsize=8, frameon=False)
    return _dated(ax)


def _label(name: Any) -> str:
    return as_label(shortened(str(name), _LONGEST_NAME))


def class_names(table: pd.DataFrame) -> list[Any]:
    """Return the classes in the order of the table."""
    return table["class"].drop_duplicates().tolist()


def draw_class(table: pd.DataFrame, name: Any, ax: Axes) -> Axes:
    """Draw the estimates of a class, with intervals, the reference, thresholds and alerts."""
    one = table[table["class"] == name]
    times, place = _with_gaps(one)
    lines = {c: np.where(place < 0, np.nan, one[c].to_numpy(float)[place]) for c in
             ("estimate", "lower", "upper", "reference", "threshold_lower", "threshold_upper")}  # fmt: skip
    color, middle, size = COLORS[0], _middle(one), min(6.0, max(2.5, 400 / len(one)))
    ax.fill_between(times, lines["lower"], lines["upper"], color=color, alpha=0.2, linewidth=0)
    ax.plot(times, lines["reference"], color=_LIMIT, linewidth=1)
    for end in ("threshold_lower", "threshold_upper"):
        ax.plot(times, lines[end], color=_LIMIT, linewidth=1, linestyle="--")
    ax.plot(times, lines["estimate"], color=color, linewidth=1.3, marker=".", markersize=size / 2)
    doubted = (one["verdict"] == "rows look different").to_numpy()
    for marked, sign, paint in ((doubted, "s", _DOUBT), (one["alert"].to_numpy(bool), "o", _ALERT)):
        if marked.any():  # an empty line without clipping would take space in the figure
            ax.plot(middle[marked], one["estimate"].to_numpy()[marked], sign, color=paint, markersize=size,
                    fillstyle="none", markeredgewidth=size / 4, clip_on=False)  # fmt: skip
    held = one[one["period"] == "reference"]
    if len(held):
        ax.axvspan(_plain(held["start"]).min(), _plain(held["end"]).max(), color="#000000", alpha=0.06, linewidth=0)
    ax.set_title(_label(name), fontsize=10, loc="left")
    high = np.nanmax([np.nanmax(values) for values in lines.values() if np.isfinite(values).any()])
    ax.set_ylim(0, min(1.02, 1.08 * high))
    return _dated(ax)


def draw_performance(table: pd.DataFrame, ax: Axes) -> Axes:
    """Draw the expected accuracy and F1 of the classifier over time."""
    one = table[table["class"] == table["class"].iloc[0]]
    times, place = _with_gaps(one)
    for j, (name, label) in enumerate({"accuracy": "accuracy", "f1": "F1"}.items()):
        values = np.where(place < 0, np.nan, one[name].to_numpy(float)[place])
        ax.plot(times, values, color=COLORS[j], linewidth=1.3, marker=".", markersize=3, label=label)
    held = one[one["period"] == "reference"]
    if len(held):
        ax.axvspan(_plain(held["start"]).min(), _plain(held["end"]).max(), color="#000000", alpha=0.06, linewidth=0)
    ax.set_title("Expected accuracy and F1 of the classifier", fontsize=10, loc="left")
    ax.legend(loc="lower left", ncols=2, fontsize=8, frameon=False)
    low = one[["accuracy", "f1"]].to_numpy().min()
    ax.set_ylim(max(0, low - 0.1), 1.02)  # a decline of a few points matters, so the axis does not begin at 0
    return _dated(ax)


def _dated(ax: Axes) -> Axes:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _edges(one: pd.DataFrame) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the times where areas begin and end, and the chunk at each time; −1 where chunks are missing."""
    starts, ends, gaps = _plain(one["start"]), _plain(one["end"]).copy(), _gaps(one)
    joined = np.ones(len(starts) - 1, bool)
    joined[gaps - 1] = False
    ends[:-1] = np.where(joined, starts[1:], ends[:-1])  # chunks of n rows end before the next one begins
    times, place = np.stack([starts, ends], axis=1).ravel(), np.repeat(np.arange(len(starts)), 2)
    return np.insert(times, 2 * gaps, starts[gaps]), np.insert(place, 2 * gaps, -1)


def _with_gaps(one: pd.DataFrame) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the times to draw, and the chunk at each time; −1 where chunks are missing, so that lines break."""
    middle, gaps = _middle(one), _gaps(one)
    return np.insert(middle, gaps, middle[gaps]), np.insert(np.arange(len(middle)), gaps, -1)


def _gaps(one: pd.DataFrame) -> NDArray[np.int64]:
    """Return the chunks that follow missing chunks; chunks of n rows have no gaps."""
    if one["chunk"].dtype.kind in "iu":
        return np.empty(0, np.int64)
    steps = np.diff(_plain(one["start"])).astype(np.int64)
    return 1 + np.flatnonzero(steps > 1.5 * np.median(steps)) if len(steps) else np.empty(0, np.int64)


def _middle(one: pd.DataFrame) -> NDArray:
    starts, ends = _plain(one["start"]), _plain(one["end"])
    return starts + (ends - starts) // 2


def _plain(times: pd.Series) -> NDArray:
    return times.dt.tz_localize(None).to_numpy("datetime64[us]")
