"""How all plots look: axes, legends, names to the letter, colours and markers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]  # told apart by all readers
_MARKERS = "osv^Dxp"
MOST_NAMES = 12  # names in a legend
_LONGEST_BAG = 16  # letters of the name of a bag


def require_matplotlib() -> None:
    """Raise an ImportError that tells what to install where there is no matplotlib.

    Examples
    --------
    >>> require_matplotlib()
    """
    if find_spec("matplotlib") is None:
        raise ImportError("plots need matplotlib; install it by pip install 'histnetq[report]'.")


def axes_or_new(ax: Axes | None) -> Axes:
    """Return these axes, or those of a new figure for None, without the lines above and to the right."""
    if ax is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.subplots()[1]
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def finished(ax: Axes, **properties: Any) -> Axes:
    """Set these properties, and add a legend unless it would have too many names."""
    ax.set(**properties)
    if 0 < len(ax.get_legend_handles_labels()[1]) <= MOST_NAMES:
        ax.legend(frameon=False, fontsize=8)
    return ax


def name_ticks(ax: Axes, places: Sequence[float], classes: Sequence[Any]) -> None:
    """Write the names of classes below their places, turned and smaller where there are many."""
    turn, side, size = (0, "center", 10) if len(classes) <= 4 else (45, "right", 10)
    if len(classes) > MOST_NAMES:
        turn, side, size = 90, "center", 7
    ax.set_xticks(places, [as_label(name) for name in classes], rotation=turn, ha=side, fontsize=size)


def name_bags(ax: Axes, ids: Sequence[Any] | NDArray) -> None:
    """Write the names of bags below them: all of up to 12, turned where they need room; of more, those that fit."""
    names = [as_label(_shortened(str(name))) for name in ids]
    longest, size = max(map(len, names)), 9
    fit = int(ax.get_position().width * ax.figure.get_figwidth() * 72 / (0.6 * size) / (longest + 1))  # type: ignore
    turned = fit < len(names) <= MOST_NAMES
    places = np.arange(len(names))[:: 1 if turned else -(-len(names) // max(2, fit))]
    turn: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    ax.set_xticks(places, [names[i] for i in places], fontsize=size, **turn)


def _shortened(name: str) -> str:
    """Return a name without its middle if it is long: often the ends differ."""
    half = _LONGEST_BAG // 2
    return name if len(name) <= _LONGEST_BAG else f"{name[: half - 1]}…{name[-half:]}"


def line_style(i: int, **style: Any) -> dict[str, Any]:
    """Return the style of the i-th line, with a marker of its own."""
    return {"color": color_of(i), "marker": _MARKERS[i % len(_MARKERS)], **style}


def as_label(name: Any) -> str:
    """Return a name that matplotlib shows to the letter: dollars begin no formula, a leading _ does not hide it."""
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def color_of(i: int) -> Any:
    """Return the colour of the i-th class: a fixed one for the first few, then one from a colour wheel."""
    if i < len(COLORS):
        return COLORS[i]
    from matplotlib import colormaps

    return colormaps["hsv"]((i * 0.618) % 1)
