"""Plots of estimates, errors, intervals and training; each draws into one matplotlib axes and returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from histnetq.data.bags import Bags
    from histnetq.evaluation.comparison import Comparison
    from histnetq.uncertainty.intervals import Intervals

__all__ = [
    "bias", "coverage", "error_by_shift", "estimates", "histograms", "prevalences", "require_matplotlib", "training",
]  # fmt: skip

Floats = NDArray[np.float64]
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]  # told apart by all readers
_MARKERS = "osv^Dxp"
_MOST_LINES = 6  # of histograms in one picture


def estimates(table: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Estimated against true prevalences, one colour per class, from what `histnetq.evaluate` gave."""
    ax = _axes(ax)
    classes = _classes(table)
    for i, name in enumerate(classes):
        ax.scatter(
            table[f"true_{name}"], table[f"estimated_{name}"], s=9, alpha=0.5, color=_color(i), label=_label(name)
        )
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
    dots = {"marker": ".", "markersize": 3, "markeredgecolor": "#999999"}
    boxes = ax.boxplot(errors, flierprops=dots, patch_artist=True, medianprops={"color": "black"})
    for box in boxes["boxes"]:
        box.set(facecolor=COLORS[5], alpha=0.6)
    ax.axhline(0, color="black", linewidth=0.8)
    _name_ticks(ax, range(1, len(classes) + 1), classes)
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
        ax.plot(middles, table[method, measure], label=_label(method), **style)
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
        _name_ticks(ax, range(len(classes)), classes)
    else:
        x = np.arange(len(p))
        for j, name in enumerate(classes):
            ax.plot(x, p[:, j], color=_color(j), label=_label(name), linewidth=1.4)
            ax.fill_between(x, lower[:, j], upper[:, j], color=_color(j), alpha=0.15, linewidth=0)
        names = [_label(i) for i in (x if ids is None else ids)]
        step = -(-len(names) // 12)
        ax.set_xticks(x[::step], names[::step], rotation=45, ha="right")
        if len(classes) <= 12:
            ax.legend(frameon=False, fontsize=8)
    ax.set(ylabel="prevalence", ylim=(0, None))
    return ax


def histograms(quantifier: Any, bags: Bags, feature: int | None = None, ax: Axes | None = None) -> Axes:
    """What a fitted `HistNetQ` sees of the bags: their histograms of one feature of its encoder, in the learned bins.

    A grey bar stands where its bin is and is as wide (where bins fade out: at half their height); it shows the mean
    over all bags. Up to six bags are a line each. More of them are a line for each class: the mean of the tenth of the
    bags that has the largest share of the class, known or else estimated; of more than six classes, those six whose
    lines are farthest from the mean. Where the lines part, the network can tell the classes apart.

    Parameters
    ----------
    feature : int, optional
        Number of the feature. Default: the one whose histogram varies most between the bags.
    """
    pooling: Any = getattr(getattr(quantifier, "network_", None), "pooling", None)
    if not hasattr(pooling, "bins"):
        kind = type(quantifier).__name__
        raise TypeError(f"quantifier: expected a fitted HistNetQ, the only one with histograms, got {kind}.")
    pooled = _pooled(quantifier.network_, bags).reshape(len(bags), -1, pooling.n_bins)
    if feature is None:
        feature = int(pooled.var(0).sum(1).argmax())
    if not 0 <= feature < pooled.shape[1]:
        raise ValueError(f"feature: expected a number from 0 to {pooled.shape[1] - 1}, got {feature!r}.")
    ax = _axes(ax)
    _draw_histograms(ax, *_places(pooling, feature), pooled[:, feature], _lines(quantifier, bags, pooled[:, feature]))
    ax.set(xlabel=f"feature {feature} of the encoder", ylabel="share of the rows")
    return ax


def _draw_histograms(ax: Axes, centers: Floats, widths: Floats, shares: Floats, lines: dict[str, Floats]) -> None:
    """Bars for the mean of the shares ``(n_bags, n_bins)``, and the lines ``(n_bins,)``."""
    see_through: dict[str, Any] = {"facecolor": "#8a939c40", "edgecolor": "#8a939c", "linewidth": 0.6}
    ax.bar(centers, shares.mean(0), width=widths, label="mean of all bags", **see_through)  # bins may overlap
    order = np.argsort(centers)
    for i, (name, line) in enumerate(lines.items()):
        style = {"color": _color(i), "marker": _MARKERS[i % len(_MARKERS)], "markersize": 3, "linewidth": 1.2}
        ax.plot(centers[order], line[order], label=_label(name), **style)
    held = shares.max(0) >= 0.005 * shares.max()
    ax.set_xlim((centers - widths / 2)[held].min(), (centers + widths / 2)[held].max())
    ax.set_ylim(0)
    ax.legend(frameon=False, fontsize=8)


def _pooled(network: Any, bags: Bags) -> Floats:
    """(n_bags, n_features · n_bins): what the head reads."""
    import torch

    from histnetq.data.checks import used_rows
    from histnetq.training.batches import encode_rows

    used, index = used_rows(bags.index, bags.rows.shape[0])
    weights = None if bags.weights is None else torch.as_tensor(bags.weights)
    places = (torch.as_tensor(bags.offsets), weights, torch.as_tensor(index))
    with torch.inference_mode():
        features = encode_rows(network.eval(), bags, used)
        pooled = network.pooling(features, *(None if t is None else t.to(features.device) for t in places))
    return np.asarray(pooled.cpu().double())


def _places(pooling: Any, feature: int) -> tuple[Floats, Floats]:
    """(n_bins,) each: centres and full widths of the bins of a feature."""
    centers, scales = (t.detach().cpu().double().numpy()[feature] for t in pooling.bins())
    kind = getattr(pooling, "kind", "hard")
    if kind in ("soft", "rbf"):  # from inverse widths; the height is one half at w / 2 and at w √ln 2
        return centers, {"soft": 1.0, "rbf": 2 * np.sqrt(np.log(2))}[kind] / scales
    return centers, 2 * np.maximum(scales, 0)


def _lines(quantifier: Any, bags: Bags, shares: Floats) -> dict[str, Floats]:
    """Histograms worth a line, by their names: of each bag, or of the bags with much of a class."""
    if len(bags) <= _MOST_LINES:
        return {f"bag {name}": line for name, line in zip(bags.ids, shares, strict=True)}
    p: Any = quantifier.predict(bags) if bags.prevalences is None else bags.prevalences
    classes: Any = quantifier.classes_ if bags.prevalences is None else bags.classes
    n_most = max(1, len(bags) // 10)
    lines = np.stack([shares[np.argsort(-column, kind="stable")[:n_most]].mean(0) for column in np.transpose(p)])
    apart = np.abs(lines - shares.mean(0)).sum(1)
    chosen = np.sort(np.argsort(-apart, kind="stable")[:_MOST_LINES])
    return {f"most of {classes[j]}": lines[j] for j in chosen}


def require_matplotlib() -> None:
    """Refuse to draw where it is not installed."""
    if find_spec("matplotlib") is None:
        raise ImportError("plots need matplotlib; install it by pip install 'histnetq[report]'.")


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots()[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _classes(table: pd.DataFrame) -> list[str]:
    return [str(column).removeprefix("true_") for column in table if str(column).startswith("true_")]


def _name_ticks(ax: Axes, places: Sequence[float], classes: Sequence[Any]) -> None:
    turn, side, size = (0, "center", 10) if len(classes) <= 4 else (45, "right", 10)
    if len(classes) > 12:
        turn, side, size = 90, "center", 7
    ax.set_xticks(places, [_label(name) for name in classes], rotation=turn, ha=side, fontsize=size)


def _label(name: Any) -> str:
    """A name as matplotlib shows it to the letter: dollars begin no formula, and a leading _ does not hide it."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _color(i: int) -> Any:
    """Another colour for each of the first classes; then those of a wheel."""
    if i < len(COLORS):
        return COLORS[i]
    from matplotlib import colormaps

    return colormaps["hsv"]((i * 0.618) % 1)
