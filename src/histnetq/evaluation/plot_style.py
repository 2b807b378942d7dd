"""The common style of all plots: axes, legends, labels, colours and markers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]  # safe for colour-blind readers
_MARKERS = "osv^Dxp"
MOST_NAMES = 12  # names in a legend
_LONGEST_BAG = 16  # letters of the name of a bag


def require_matplotlib() -> None:
    """Raise an ImportError with the command to install matplotlib if it is missing.

    Examples
    --------
    >>> require_matplotlib()
    """
    if find_spec("matplotlib") is None:
        raise ImportError("plots need matplotlib; install it by pip install 'histnetq[report]'.")


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or the axes of a new figure for None, without the top and right spines."""
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots()[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def finished(ax: Axes, **properties: Any) -> Axes:
    """Set properties of the axes, and add a legend unless it would have too many names."""
    ax.set(**properties)
    if 0 < len(ax.get_legend_handles_labels()[1]) <= MOST_NAMES:
        ax.legend(frameon=False, fontsize=8)
    return ax


def name_ticks(ax: Axes, places: Sequence[float], classes: Sequence[Any]) -> None:
    """Write the names of classes below their positions, rotated and smaller if there are many."""
    turn, side, size = (0, "center", 10) if len(classes) <= 4 else (45, "right", 10)
    if len(classes) > MOST_NAMES:
        turn, side, size = 90, "center", 7
    ax.set_xticks(places, [as_label(name) for name in classes], rotation=turn, ha=side, fontsize=size)


def name_bags(ax: Axes, ids: Sequence[Any] | NDArray) -> None:
    """Write the names of bags below them: up to 12 names, rotated if necessary; or as many as fit."""
    names = [as_label(shortened(str(name))) for name in ids]
    longest, size = max(map(len, names)), 9
    fit = int(ax.get_position().width * ax.figure.get_figwidth() * 72 / (0.6 * size) / (longest + 1))  # type: ignore
    turned = fit < len(names) <= MOST_NAMES
    places = np.arange(len(names))[:: 1 if turned else -(-len(names) // max(2, fit))]
    turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    ax.set_xticks(places, [names[i] for i in places], fontsize=size, **turn)


def shortened(name: str, most: int = _LONGEST_BAG) -> str:
    """Replace the middle of a long name by an ellipsis, because names often differ at their ends."""
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"


def line_style(i: int, **style: Any) -> dict[str, Any]:
    """Return the style of the i-th line, with its colour and marker."""
    return {"color": color_of(i), "marker": _MARKERS[i % len(_MARKERS)], **style}


def as_label(name: Any) -> str:
    """Escape a name for matplotlib, where dollar signs start a formula and a leading _ hides a label."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def color_of(i: int) -> Any:
    """Return the colour of the i-th class: from a fixed list, then from a colour wheel."""
    if i < len(COLORS):
        return COLORS[i]
    from matplotlib.colors import hsv_to_rgb

    return hsv_to_rgb([(i * 0.618) % 1, 0.6, 0.9 if i % 2 else 0.65])
