"""`Sketcher`: how a method reduces the rows of a bag to a small state, and estimates from the states of whole bags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.sketches.moments import total_weights
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.tables.columns import Reading


class SketchingModel(Protocol):
    """A fitted model that sketches the bags of a table; every `Quantifier` is one."""

    def reading(self) -> Reading:
        """Return how the features of the model are read from a table."""

    def sketch_maker(self) -> Maker:
        """Return who makes the sketches; raise an error if the model makes none."""

    def sketch_stream(self, chunks: Iterable[Any], *, n_threads: int | None = None) -> BagSketch:
        """Sketch bags whose rows come in pieces."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Estimate the prevalence of each class."""


class Sketcher:
    """What a quantifier holds to make sketches.

    Attributes
    ----------
    kind : "exact", "binned" or None
        How estimates from sketches are beside those from rows; None if there are no sketches.
    merge : "sum" or "max"
        How the states of parts of a bag are put together.
    """

    kind: str | None = "exact"
    merge: str = "sum"

    def identity(self) -> str:
        """Give a text that differs for what would make other states, and is the same after saving and loading."""
        raise NotImplementedError

    def state(self, bags: Bags) -> NDArray:
        """Give what is kept of the rows of each bag, ``(n_bags, ...)``; whole numbers wherever the weights are."""
        raise NotImplementedError

    def estimate(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        """Give prevalences ``(n_bags, n_classes)`` from the states of whole bags and their total weights."""
        raise NotImplementedError

    def sketch(self, bags: Bags, maker: Maker, named: bool = True) -> BagSketch:
        """Sketch bags; without names, of one bag that was given as an array."""
        weights, starts, n_rows = bags.weights, bags.offsets[:-1], np.diff(bags.offsets)
        totals = total_weights(bags)
        return BagSketch(
            ids=bags.ids if named else None, n_rows=n_rows, totals=totals, unseen=np.zeros(len(bags), np.int64),
            squares=totals if weights is None or bags.weight_kind == "count" else np.add.reduceat(weights**2, starts),
            values=self.state(bags), moments=np.empty((len(bags), 0)), maker=maker,
        )  # fmt: skip


def state_shape(sketcher: Sketcher, input_shape: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
    """Give the shape of the state of a bag, from the state of one row; without an input shape, the row is a text."""
    row: Any = np.full((1, *input_shape), 1 / n_classes) if input_shape else ["text"]
    return sketcher.state(Bags(row)).shape[1:]


def require_own(sketch: BagSketch, maker: Maker, shape: tuple[int, ...], n_moments: int | None) -> None:
    """Refuse a sketch of another maker, or with states or moments of other shapes than a model makes.

    A file may name a wrong maker, and compiled code relies on the shape of states.
    """
    if maker.fingerprint != sketch.maker.fingerprint:
        raise ValueError(
            f"sketch: expected one that this {maker.quantifier} ({maker.fingerprint[:8]}) made, got one of "
            f"{sketch.maker.quantifier} ({sketch.maker.fingerprint[:8]}); sketch the rows again with this model."
        )
    found: list[tuple[str, Any, Any]] = [("states of shape {} per bag", shape, sketch.values.shape[1:])]
    if n_moments is not None and maker.moments == sketch.maker.moments:
        found.append(("{} moments per bag", n_moments, sketch.moments.shape[1]))
    for words, wanted, got in found:
        if got != wanted:
            expected = words.format(wanted)
            raise ValueError(f"sketch: expected {expected}, got {got}; sketch the rows again with this model.")


class NoSketcher(Sketcher):
    """What a quantifier holds if it needs all rows of a bag at once.

    Parameters
    ----------
    reason : str
        Why there are no sketches, and what to use instead.
    """

    kind = None

    def __init__(self, reason: str) -> None:
        self.reason = reason
