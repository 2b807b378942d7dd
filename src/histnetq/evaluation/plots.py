"""Plots of estimates, errors, intervals and training; each draws into one matplotlib axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.indexing import have_order
from histnetq.evaluation.plot_style import (
    COLORS,
    MOST_NAMES,
    as_label,
    axes_or_new,
    color_of,
    finished,
    line_style,
    name_bags,
    name_ticks,
    require_matplotlib,
)
from histnetq.simplex import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from histnetq.bags.bags import Bags
    from histnetq.evaluation.comparison import Comparison
    from histnetq.uncertainty.intervals import Intervals

__all__ = [
    "bias", "coverage", "error_by_shift", "estimates", "histograms", "prevalences", "require_matplotlib", "training",
]  # fmt: skip

_MOST_LINES = 6  # histograms in one picture
_LONGEST_NAME = 32  # letters of a method, such as the path of a model


def estimates(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw estimated against true prevalences, one colour per class.

    With more than twelve classes, the six with the largest mean errors have colours; the rest are grey.

    Parameters
    ----------
    table : pandas.DataFrame
        The table that `histnetq.evaluate` returned.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> import histnetq as hq
    >>> bags = hq.Bags.from_arrays([np.zeros((9, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
    >>> ax = estimates(hq.evaluate([[0.6, 0.4], [0.2, 0.8]], bags))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('true prevalence', 'estimate')
    """
    ax = axes_or_new(ax)
    classes = _classes(table)
    true, estimated = (table[[f"{kind}_{name}" for name in classes]].to_numpy() for kind in ("true", "estimated"))
    named = list(range(len(classes)))
    if len(classes) > MOST_NAMES:
        named = np.argsort(-np.abs(true - estimated).mean(0), kind="stable")[:_MOST_LINES].tolist()
        others = np.setdiff1d(np.arange(len(classes)), named)
        grey: dict[str, Any] = {"s": 6, "alpha": 0.35, "color": "#8a939c", "linewidth": 0}
        ax.scatter(true[:, others], estimated[:, others], label=f"{len(others)} other classes", **grey)
    for i, j in enumerate(named):
        ax.scatter(true[:, j], estimated[:, j], s=9, alpha=0.5, color=color_of(i), label=as_label(classes[j]))
    top = min(1.0, 1.05 * max(true.max(), estimated.max()))
    ax.plot([0, top], [0, top], color="black", linewidth=0.8)
    return finished(ax, xlabel="true prevalence", ylabel="estimate", xlim=(0, top), ylim=(0, top), aspect="equal")


def bias(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw a box plot of estimate − truth for each class.

    Parameters
    ----------
    table : pandas.DataFrame
        The table that `histnetq.evaluate` returned.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> import histnetq as hq
    >>> bags = hq.Bags.from_arrays([np.zeros((9, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
    >>> bias(hq.evaluate([[0.6, 0.4], [0.2, 0.8]], bags)).get_ylabel()
    'estimate − truth'
    """
    ax = axes_or_new(ax)
    classes = _classes(table)
    errors = [table[f"estimated_{name}"] - table[f"true_{name}"] for name in classes]
    dots = {"marker": ".", "markersize": 3, "markeredgecolor": "#999999"}
    paint = {"facecolor": COLORS[5], "alpha": 0.6}
    ax.boxplot(errors, flierprops=dots, patch_artist=True, medianprops={"color": "black"}, boxprops=paint)
    ax.axhline(0, color="black", linewidth=0.8)
    name_ticks(ax, range(1, len(classes) + 1), classes)
    return finished(ax, ylabel="estimate − truth")


def error_by_shift(
    comparison: Comparison,
    measure: str = "ae",
    methods: Sequence[str] | None = None,
    bins: int | ArrayLike = 8,
    ax: Axes | None = None,
) -> Axes:
    """Draw the mean error by the amount of prior shift, one line per method, over a histogram of the bags.

    Parameters
    ----------
    comparison : Comparison
        The result of `histnetq.compare` with known training prevalences.
    measure : str, default="ae"
        The measure to draw.
    methods : sequence of str, optional
        The methods to draw. Default: all. Long names are shortened to their end.
    bins : int or array-like of edges, default=8
        The bins of the amount of shift, as in `Comparison.by_shift`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes of the errors; the histogram of the bags has separate axes behind them.

    Examples
    --------
    >>> import histnetq as hq
    >>> bags = hq.Bags.from_arrays([np.zeros((9, 1))] * 2, [[0.5, 0.5], [0.2, 0.8]])
    >>> found = hq.compare({"A": [[0.6, 0.4], [0.3, 0.7]]}, bags, train_prevalences=[0.5, 0.5])
    >>> ax = error_by_shift(found, bins=2)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('prior shift (L1 distance)', 'mean AE')
    """
    ax = axes_or_new(ax)
    table = comparison.by_shift(bins)
    middles = [interval.mid for interval in table.index]
    behind = ax.twinx()
    behind.bar(middles, table["n_bags"], width=[0.95 * i.length for i in table.index], color=COLORS[2], alpha=0.18)
    behind.set_ylabel("bags", color="#00664b")
    behind.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    behind.spines["top"].set_visible(False)
    ax.set_zorder(behind.get_zorder() + 1)
    ax.patch.set_visible(False)
    for i, method in enumerate(comparison.table.index if methods is None else methods):
        name = method if len(method) <= _LONGEST_NAME else f"…{method[1 - _LONGEST_NAME :]}"
        ax.plot(middles, table[method, measure], label=as_label(name), **line_style(i, markersize=4, linewidth=1.4))
    ax.set_yscale("log", nonpositive="mask")  # a mean of 0 cannot be drawn
    ax.set(xlabel="prior shift (L1 distance)", ylabel=f"mean {measure.upper()}")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
    ax.legend(frameon=False, fontsize=8, ncol=2, loc="upper center")
    return ax


def coverage(found: Mapping[float, tuple[float, float]], ax: Axes | None = None) -> Axes:
    """Draw observed against nominal coverage of the intervals and of the joint regions.

    Parameters
    ----------
    found : dict of float and (float, float)
        The observed coverages of the intervals and of the joint regions, for each nominal coverage.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> coverage({0.8: (0.81, 0.79), 0.9: (0.9, 0.88)}).get_xlabel()
    'nominal coverage'
    """
    ax = axes_or_new(ax)
    nominal = sorted(found)
    for i, what in enumerate(("intervals", "joint regions")):
        ax.plot(nominal, [found[level][i] for level in nominal], label=what, **line_style(i, markersize=5))
    low = min([*nominal, *(value for pair in found.values() for value in pair)])
    ax.plot([low, 1], [low, 1], color="black", linewidth=0.8)
    return finished(ax, xlabel="nominal coverage", ylabel="observed coverage")


def training(history: Mapping[str, NDArray], ax: Axes | None = None) -> Axes:
    """Draw training and validation losses by epoch.

    Parameters
    ----------
    history : dict of str and (n_epochs,) arrays
        The ``history_`` of a trained network.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> history = {"epoch": [1, 2, 3], "train_loss": [0.3, 0.2, 0.1], "validation_loss": [0.4, 0.2, 0.3]}
    >>> training(history).get_yscale()
    'log'
    """
    ax = axes_or_new(ax)
    for i, name in enumerate(("train_loss", "validation_loss")):
        ax.plot(history["epoch"], history[name], color=color_of(i), label=name.replace("_", " "), linewidth=1.4)
    if len(history["epoch"]):  # there are no epochs if pretraining took all of the time
        best = int(np.argmin(history["validation_loss"]))
        ax.plot(history["epoch"][best], history["validation_loss"][best], "o", color=color_of(1), label="best epoch")
    return finished(ax, xlabel="epoch", ylabel="loss", yscale="log")


def prevalences(
    found: Intervals,
    classes: Sequence[Any],
    ids: Sequence[Any] | None = None,
    ax: Axes | None = None,
    *,
    truth: ArrayLike | None = None,
) -> Axes:
    """Draw estimates with their intervals: bars for one bag; for several, lines with bands or dots with bars.

    Lines join bags whose names are numbers or dates. Other bags have no order, and are a dot each.

    Parameters
    ----------
    found : Intervals
        The result of ``quantifier.predict_interval``.
    classes : sequence
        The name of each class.
    ids : sequence, optional
        The names of the bags, from left to right. Default: their numbers.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.
    truth : array-like in the shape of the estimates, optional
        The true prevalences, drawn as black dashes. Default: unknown.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> import histnetq as hq
    >>> y = np.arange(60) % 2
    >>> q = hq.CC().fit(y[:, None] + 0.0, y)
    >>> bags = hq.APP(bag_size=9).draw(hq.Bags.from_labels(y[:, None] + 0.0, y), 30, random_state=0)
    >>> found = q.calibrate(bags).predict_interval(bags[:3], 0.8)
    >>> prevalences(found, q.classes_, ids=["north", "south", "west"], truth=bags[:3].prevalences).get_ylabel()
    'prevalence'
    """
    ax = axes_or_new(ax)
    p, lower, upper = (np.atleast_2d(a) for a in (found.estimates, found.lower, found.upper))
    true = None if truth is None else np.atleast_2d(np.asarray(truth))
    reach = np.maximum(np.stack([p - lower, upper - p]), 0)
    dash: dict[str, Any] = {"linestyle": "", "marker": "_", "color": "black", "zorder": 2.1}
    if len(p) == 1:
        ax.bar(range(len(classes)), p[0], yerr=reach[:, 0], color=COLORS[5], capsize=3)
        if true is not None:
            ax.plot(range(len(classes)), true[0], label="truth", markersize=min(14, 160 / len(classes)), **dash)
        name_ticks(ax, range(len(classes)), classes)
        return finished(ax, ylabel="prevalence", ylim=(0, None))
    x, joined = np.arange(len(p)), ids is None or have_order(ids)
    size = float(np.clip(220 / (len(p) * np.sqrt(len(classes))), 2.2, 5))
    for j, name in enumerate(classes):
        # Dots of several classes are drawn side by side.
        place = x if joined else x + 0.7 * ((j + 0.5) / len(classes) - 0.5)
        own: dict[str, Any] = {"color": color_of(j), "label": as_label(name)}
        if joined:
            ax.plot(place, p[:, j], linewidth=1.4, **own)
            ax.fill_between(place, lower[:, j], upper[:, j], color=color_of(j), alpha=0.15, linewidth=0)
        else:
            ax.plot(place, p[:, j], linestyle="", marker="o", markersize=size, markeredgewidth=0, zorder=2.2, **own)
            ax.vlines(place, lower[:, j], upper[:, j], color=color_of(j), alpha=0.45, linewidth=max(0.6, size / 4))
        if true is not None:
            label = "truth" if j == len(classes) - 1 else None
            ax.plot(place, true[:, j], label=label, markersize=1.3 * size + 1, markeredgewidth=0.9, **dash)
    name_bags(ax, x if ids is None else ids)
    finished(ax, ylabel="prevalence", xlim=(-0.6, len(p) - 0.4), ylim=(0, None))
    if ax.get_legend() is not None:  # move it above the plot, because no place inside is always free
        ax.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncol=6, borderaxespad=0.2)
    return ax


def has_histograms(quantifier: Any) -> bool:
    """Return whether a fitted quantifier has histograms that `histograms` draws, as HistNetQ does."""
    return hasattr(getattr(getattr(quantifier, "network_", None), "pooling", None), "bins")


def histograms(quantifier: Any, bags: Bags, feature: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the histograms of bags that a fitted `HistNetQ` computes for one feature, with the learned bins.

    Grey bars show the mean over all bags, at the position and with the width of each bin (for smooth bins, the width at
    half height). Up to six bags are drawn as one line each. With more bags, there is one line per class: the mean of
    the 10 % of the bags with the largest prevalence of the class, known or estimated. With more than six classes, the
    six lines farthest from the mean are drawn. Where the lines differ, the network can distinguish the classes.

    Parameters
    ----------
    quantifier : HistNetQ
        A fitted quantifier.
    bags : Bags
        The bags.
    feature : int, optional
        Number of the feature of the encoder. Default: the feature whose histogram varies most between the bags.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> import histnetq as hq
    >>> rng = np.random.default_rng(0)
    >>> bags = hq.Bags.from_arrays(list(rng.normal(size=(8, 20, 2))), rng.dirichlet([1, 1], size=8))
    >>> q = hq.HistNetQ(n_bins=4, encoder=(3,), training=hq.Training(epochs=1), random_state=0).fit(bags)
    >>> histograms(q, bags, feature=0).get_xlabel()
    'feature 0 of the encoder'
    """
    if not has_histograms(quantifier):
        kind = type(quantifier).__name__
        raise TypeError(f"quantifier: expected a fitted HistNetQ, the only one with histograms, got {kind}.")
    pooling = quantifier.network_.pooling
    pooled = _pooled(quantifier.network_, bags).reshape(len(bags), -1, pooling.n_bins)
    feature = int(pooled.var(0).sum(1).argmax()) if feature is None else feature
    if not 0 <= feature < pooled.shape[1]:
        raise ValueError(f"feature: expected a number from 0 to {pooled.shape[1] - 1}, got {feature!r}.")
    ax, shares = axes_or_new(ax), pooled[:, feature]
    centers, widths = _places(pooling, feature)
    see_through: dict[str, Any] = {"facecolor": "#8a939c40", "edgecolor": "#8a939c", "linewidth": 0.6}
    ax.bar(centers, shares.mean(0), width=widths, label="mean of all bags", **see_through)  # bins may overlap
    order = np.argsort(centers)
    for i, (name, line) in enumerate(_lines(quantifier, bags, shares).items()):
        ax.plot(centers[order], line[order], label=as_label(name), **line_style(i, markersize=3, linewidth=1.2))
    held = shares.max(0) >= 0.005 * shares.max()
    ends = (centers - widths / 2)[held].min(), (centers + widths / 2)[held].max()
    ax.set(xlabel=f"feature {feature} of the encoder", ylabel="share of the rows")
    return finished(ax, xlim=ends, ylim=(0, None))


def _pooled(network: Any, bags: Bags) -> Floats:
    """Return the input of the network's head: (n_bags, n_features · n_bins)."""
    import torch

    from histnetq.bags.checks import used_rows
    from histnetq.training.batches import encode_rows

    used, index = used_rows(bags.index, bags.rows.shape[0])
    weights = None if bags.weights is None else torch.as_tensor(bags.weights)
    places = (torch.as_tensor(bags.offsets), weights, torch.as_tensor(index))
    with torch.inference_mode():
        features = encode_rows(network.eval(), bags, used)
        pooled = network.pooling(features, *(None if t is None else t.to(features.device) for t in places))
    return np.asarray(pooled.cpu().double())


def _places(pooling: Any, feature: int) -> tuple[Floats, Floats]:
    """Return the centres and the full widths of the bins of a feature, (n_bins,) each."""
    centers, scales = (t.detach().cpu().double().numpy()[feature] for t in pooling.bins())
    kind = getattr(pooling, "kind", "hard")
    if kind in ("soft", "rbf"):  # full width at half maximum: half of it is w / 2 or w √ln 2
        return centers, {"soft": 1.0, "rbf": 2 * np.sqrt(np.log(2))}[kind] / scales
    return centers, 2 * np.maximum(scales, 0)


def _lines(quantifier: Any, bags: Bags, shares: Floats) -> dict[str, Floats]:
    """Return the histograms to draw as lines, by name: of single bags, or of the bags with most of a class."""
    if len(bags) <= _MOST_LINES:
        return {f"bag {name}": line for name, line in zip(bags.ids, shares, strict=True)}
    p: Any = quantifier.predict(bags) if bags.prevalences is None else bags.prevalences
    classes: Any = quantifier.classes_ if bags.prevalences is None else bags.classes
    n_most = max(1, len(bags) // 10)
    lines = np.stack([shares[np.argsort(-column, kind="stable")[:n_most]].mean(0) for column in np.transpose(p)])
    apart = np.abs(lines - shares.mean(0)).sum(1)
    chosen = np.sort(np.argsort(-apart, kind="stable")[:_MOST_LINES])
    return {f"most of {classes[j]}": lines[j] for j in chosen}


def _classes(table: pd.DataFrame) -> list[str]:
    return [str(column).removeprefix("true_") for column in table if str(column).startswith("true_")]
