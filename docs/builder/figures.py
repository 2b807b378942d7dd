"""The figures of the site, drawn by the package from simulated fish of three species.

One of them is the picture in the README: `python docs/builder/figures.py mixture docs/images/mixture.svg`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

import histnetq as hq

SPECIES = ("cod", "eel", "hake")
COLORS = ("#0072B2", "#E69F00", "#009E73")
_MEANS = np.array([[34.0, 1.0], [48.0, 0.0], [62.0, 1.5]])  # length, and a second feature
_SPREADS = np.array([[6.0, 1.0], [8.0, 1.0], [5.0, 1.0]])
_EDGES = np.linspace(10, 80, 29)
_INK, _GREY = "#333333", "#8a939c"


def fish(shares: list[float], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate the features and the species of n fish."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(SPECIES), n, p=shares)
    return _MEANS[kind] + _SPREADS[kind] * rng.standard_normal((n, 2)), np.array(SPECIES)[kind]


def mixture() -> Figure:
    """Draw the histogram of a bag as a mix of three species, and the estimated shares with intervals and the truth."""
    X, y = fish([1 / 3] * 3, 1500, 0)
    bag, truth = fish([0.15, 0.5, 0.35], 400, 1)
    held = hq.APP(400).draw(hq.Bags.from_labels(*fish([1 / 3] * 3, 1500, 2)), 200, random_state=0)
    found = hq.EMQ(random_state=0).fit(X, y).calibrate(held).predict_interval(bag)
    figure, (left, right) = _panels(2, 2.9, widths=(1.5, 1))
    scale = len(bag) / len(X) * len(SPECIES)
    heights = [
        np.histogram(X[y == name, 0], _EDGES)[0] * scale * p for name, p in zip(SPECIES, found.estimates, strict=True)
    ]
    bottom = np.zeros(len(_EDGES) - 1)
    for name, color, height in zip(SPECIES, COLORS, heights, strict=True):
        left.bar(_EDGES[:-1], height, np.diff(_EDGES), bottom, align="edge", color=color, alpha=0.75, label=name)
        bottom += height
    left.stairs(np.histogram(bag[:, 0], _EDGES)[0], _EDGES, color=_INK, linewidth=1.6, label="the bag")
    left.set(title="A bag of 400 fish is a mix …", xlabel="length (cm)", ylabel="fish")
    left.legend(frameon=False)
    place = np.arange(len(SPECIES))
    reach = np.abs(np.array([found.lower, found.upper]) - found.estimates)
    right.barh(place, found.estimates, 0.6, xerr=reach, color=COLORS, alpha=0.75, ecolor=_INK, capsize=4)
    right.plot(
        [(truth == name).mean() for name in SPECIES], place, "D", color="white", markeredgecolor=_INK, label="truth"
    )
    right.set(title="… of how much of each?", xlabel="share, with 90 % interval", yticks=place, xlim=(0, 0.75))
    right.set_yticklabels(SPECIES)
    right.invert_yaxis()
    right.legend(frameon=False)
    return figure


def templates() -> Figure:
    """Draw the histograms of the classes, and of two bags that are mixes of them."""
    X, y = fish([1 / 3] * 3, 6000, 0)
    figure, axes = _panels(3, 2.6)
    shapes = np.array([np.histogram(X[y == name, 0], _EDGES)[0] / (y == name).sum() for name in SPECIES])
    for name, color, shape in zip(SPECIES, COLORS, shapes, strict=True):
        axes[0].stairs(shape, _EDGES, fill=True, color=color, alpha=0.5, label=name)
    axes[0].set(title="each class", ylabel="fraction of rows")
    for ax, shares, seed in ((axes[1], [0.7, 0.2, 0.1], 5), (axes[2], [0.1, 0.3, 0.6], 6)):
        bag, _ = fish(shares, 1000, seed)
        ax.stairs(np.histogram(bag[:, 0], _EDGES)[0] / len(bag), _EDGES, fill=True, color=_GREY, alpha=0.5, label="bag")
        ax.stairs(np.array(shares) @ shapes, _EDGES, color=_INK, linewidth=1.4, label="mix")
        ax.set(title=" / ".join(f"{share:.0%}" for share in shares))
    for ax in axes:
        ax.set(xlabel="length (cm)", ylim=(0, 0.23))
        ax.legend(frameon=False, fontsize=9, loc="upper center", ncols=3, handlelength=0.9, columnspacing=0.8)
    return figure


def em() -> Figure:
    """Draw the steps of expectation maximisation, and the gradient of the layer as the slope of its result."""
    rng = np.random.default_rng(3)
    scores = torch.tensor(np.where(np.arange(60) < 18, 1.5, -1.5) + 1.5 * rng.standard_normal(60))
    both = torch.stack([scores, torch.zeros(60, dtype=torch.float64)], 1)
    figure, (left, right) = _panels(2, 2.9)
    share = np.linspace(0.005, 0.995, 400)
    ratio = np.exp(scores.numpy())
    left.plot(share, [np.log(p * ratio + 1 - p).sum() for p in share], color=_GREY)
    p, path = 0.95, []
    for _ in range(12):
        path.append(p)
        p = float((p * ratio / (p * ratio + 1 - p)).mean())
    left.plot(
        path, [np.log(p * ratio + 1 - p).sum() for p in path], "o-", color=COLORS[0], markersize=4, label="steps of EM"
    )
    left.set(
        title="EM climbs the likelihood", xlabel="share of the first class", ylabel="log-likelihood", ylim=(-35, None)
    )
    left.legend(frameon=False, loc="lower left")
    layer, offsets = hq.nn.Likelihood(2), torch.tensor([0, 60])
    moves = torch.linspace(-3, 3, 61, dtype=torch.float64)

    def answer(move: torch.Tensor) -> torch.Tensor:
        return layer(both + move * torch.tensor([1.0, 0.0], dtype=torch.float64), offsets)[0, 0]

    right.plot(moves, [float(answer(move)) for move in moves], color=_GREY, label="the estimate")
    for place in (-1.5, 0.0, 1.5):
        move = torch.tensor(place, dtype=torch.float64, requires_grad=True)
        found = answer(move)
        found.backward()
        near = np.array([-0.5, 0.5])
        right.plot(place + near, found.item() + near * move.grad.item(), color=COLORS[1], linewidth=2.5)
    right.plot([], [], color=COLORS[1], linewidth=2.5, label="gradient of the layer")
    right.set(title="the estimate has a slope", xlabel="added to all scores", ylabel="estimated share", ylim=(0, 1))
    right.legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def mixer() -> Figure:
    """Draw the proportions of bags, and of bags that the Mixer makes from their halves."""
    rng = np.random.default_rng(0)
    bags = hq.Bags(np.zeros((40 * 30, 1)), offsets=np.arange(41) * 30, prevalences=rng.dirichlet([0.6] * 3, 40))
    mixed = hq.Mixer(real_proportion=0).draw(bags, 400, random_state=0)
    figure, (left, right) = _panels(2, 3.0)
    for ax, p, color, title in (
        (left, bags.prevalences, COLORS[0], "40 bags of known proportions"),
        (right, mixed.prevalences, COLORS[1], "400 bags, mixed from halves"),
    ):
        ax.plot([0, 1, 0.5, 0], [0, 0, np.sqrt(0.75), 0], color=_GREY, linewidth=1)
        ax.plot(p[:, 1] + p[:, 2] / 2, p[:, 2] * np.sqrt(0.75), "o", color=color, markersize=4, alpha=0.7)
        for x, y, name, side in (
            (0, -0.07, "cod", "center"),
            (1, -0.07, "eel", "center"),
            (0.5, 0.9, "hake", "center"),
        ):
            ax.text(x, y, f"all {name}", ha=side, va="center")
        ax.set(title=title, aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.13, 0.97))
        ax.axis("off")
    return figure


def conformal() -> Figure:
    """Draw the errors of calibration bags, and the intervals of new bags from the quantile of these errors."""
    q = hq.EMQ(random_state=0).fit(*fish([1 / 3] * 3, 600, 0))
    held = hq.APP(50).draw(hq.Bags.from_labels(*fish([1 / 3] * 3, 1500, 2)), 300, random_state=0)
    new = hq.APP(50).draw(hq.Bags.from_labels(*fish([1 / 3] * 3, 1500, 3)), 30, random_state=1)
    found = q.calibrate(held).predict_interval(new, 0.9)
    figure, (left, right) = _panels(2, 2.9, widths=(1, 1.4))
    errors = np.abs(q.predict(held) - held.prevalences)[:, 1]
    reach = np.quantile(errors, 0.9)
    left.hist(errors, 25, color=COLORS[0], alpha=0.75)
    left.axvline(reach, color=_INK)
    left.text(reach, left.get_ylim()[1] * 0.9, " 90 % are below", va="top")
    left.set(title="errors of 300 known bags", xlabel="error of the share of eel", ylabel="bags")
    order = np.argsort(new.prevalences[:, 1])
    true, lower, upper = (part[order, 1] for part in (new.prevalences, found.lower, found.upper))
    held_in = (lower <= true) & (true <= upper)
    for inside, color in ((True, _GREY), (False, "#D55E00")):
        chosen = held_in == inside
        right.vlines(np.arange(30)[chosen], lower[chosen], upper[chosen], color=color, linewidth=3)
    right.plot(true, "D", color="white", markeredgecolor=_INK, markersize=4, label="truth")
    right.set(title=f"30 new bags: {held_in.sum()} contain the truth", xlabel="bag", ylabel="share of eel", xticks=[])
    right.legend(frameon=False, loc="upper left")
    return figure


def pretrained() -> Figure:
    """Draw the log-odds of a bag as a mix of two species, and the posterior of the share of one of them."""
    X, y = fish([0.5, 0.5, 0], 600, 0)
    bag, truth = fish([0.7, 0.3, 0], 300, 1)
    q = hq.Pretrained(random_state=0).fit(X, y)
    found = q.predict_interval(bag, method="posterior")
    edges = np.linspace(-8, 8, 33)
    odds = [np.diff(np.log(q.classifier_.predict_proba(rows)), axis=1)[:, 0] for rows in (X, bag)]
    figure, (left, right) = _panels(2, 2.9)
    bottom = np.zeros(len(edges) - 1)
    for name, color, share in zip(SPECIES, COLORS, found.estimates, strict=False):
        height = np.histogram(odds[0][y == name], edges)[0] * share * len(bag) / (y == name).sum()
        left.bar(edges[:-1], height, np.diff(edges), bottom, align="edge", color=color, alpha=0.75, label=name)
        bottom += height
    left.stairs(np.histogram(odds[1], edges)[0], edges, color=_INK, linewidth=1.6, label="the bag")
    left.set(title="a bag of 300 fish, classified", xlabel="log-odds of eel", ylabel="fish")
    left.legend(frameon=False)
    draws = q.draw(bag, 20_000)[:, 1]
    right.hist(draws, np.linspace(0.1, 0.5, 61), density=True, color=COLORS[1], alpha=0.75)
    right.hlines(0.3, found.lower[1], found.upper[1], color=_INK, linewidth=3, label="90 % interval")
    right.plot((truth == "eel").mean(), 0.3, "D", color="white", markeredgecolor=_INK, label="truth")
    right.set(title="the posterior of its mix", xlabel="share of eel", yticks=[])
    right.legend(frameon=False, loc="upper left", fontsize=9)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "mixture": mixture, "templates": templates, "em": em, "mixer": mixer, "conformal": conformal,
    "pretrained": pretrained,
}  # fmt: skip


def svg(draw: Callable[[], Figure]) -> bytes:
    """Return a figure as SVG with selectable text; the same figure always has the same bytes."""
    style = {"svg.fonttype": "none", "svg.hashsalt": "histnetq", "font.family": "sans-serif", "font.size": 10.5}
    file = io.BytesIO()
    with mpl.rc_context({**style, "axes.titlesize": 11.5}):
        draw().savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _panels(n: int, height: float, widths: tuple[float, ...] | None = None) -> tuple[Figure, np.ndarray]:
    """Return a figure that is readable on a phone, and its panels from left to right."""
    figure = Figure(figsize=(6.8, height), layout="constrained")
    axes = figure.subplots(1, n, width_ratios=widths)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(svg(FIGURES[sys.argv[1]]))
