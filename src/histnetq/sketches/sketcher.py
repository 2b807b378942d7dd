"""`Sketcher`: reduces the rows of a bag to a small state, and estimates prevalences from the states of whole bags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.sketches.cell_rules import CellRule
from histnetq.sketches.moments import total_weights
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.tables.columns import FeatureSpec


class SketchingModel(Protocol):
    """Interface of a fitted model that sketches the bags of a table; every `Quantifier` has it."""

    def reading(self) -> FeatureSpec:
        """Return how the features of the model are read from a table."""

    def sketch_maker(self) -> Maker:
        """Return the origin of the sketches; raise an error if the model does not support sketches."""

    def sketch_stream(self, chunks: Iterable[Any], *, n_threads: int | None = None) -> BagSketch:
        """Sketch bags whose rows arrive in chunks."""

    def _require_own(self, sketch: BagSketch) -> None:
        """Raise an error for a sketch that another model made, or whose arrays have other shapes."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Estimate the prevalence of each class."""


class Sketcher:
    """The part of a quantifier that makes sketches and estimates from them.

    Attributes
    ----------
    kind : "exact", "binned" or None
        Whether estimates from sketches equal the estimates from rows, or are approximate; None without sketches.
    merge : "sum" or "max"
        How the states of parts of a bag are merged.
    """

    kind: str | None = "exact"
    merge: str = "sum"

    def identity(self) -> str:
        """Return a text that identifies everything that affects states; saving and loading must not change it."""
        raise NotImplementedError

    def state(self, bags: Bags) -> NDArray:
        """Return the state of each bag, (n_bags, ...); whole numbers if the weights are whole numbers."""
        raise NotImplementedError

    def estimate(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        """Return prevalences, (n_bags, n_classes), from the states of whole bags and their total weights.

        They come from `BagSketch.sized`: the total weight of a bag is its size.
        """
        raise NotImplementedError

    def state_shape(self, input_shape: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
        """Return the shape of the state of a bag, given the shape of its rows."""
        return self.state(Bags(np.full((1, *input_shape), 1 / n_classes))).shape[1:]

    def cell_rules(self) -> list[CellRule] | None:
        """Return the rules that divide rows into cells, one for each row of the state, for a query in SQL.

        An empty list means that the state is the sum of posteriors, and None that SQL cannot compute the state.
        """
        return None

    def sketch(self, bags: Bags, maker: Maker, named: bool = True) -> BagSketch:
        """Sketch bags; `named` is False for one bag that was given as an array."""
        weights, starts, n_rows = bags.weights, bags.offsets[:-1], np.diff(bags.offsets)
        totals = total_weights(bags)
        return BagSketch(
            ids=bags.ids if named else None, n_rows=n_rows, totals=totals, unseen=np.zeros(len(bags), np.int64),
            squares=totals if weights is None or bags.weight_kind == "count" else np.add.reduceat(weights**2, starts),
            values=self.state(bags), moments=np.empty((len(bags), 0)), maker=maker,
        )  # fmt: skip


def require_own(sketch: BagSketch, maker: Maker, shape: tuple[int, ...], n_moments: int | None) -> None:
    """Refuse a sketch of another maker, or with states or moments of unexpected shapes.

    A file may name a wrong maker, and compiled code relies on the shape of states.
    """
    if maker.fingerprint != sketch.maker.fingerprint:
        raise ValueError(
            f"sketch: expected one made by this model, {maker.in_words}, got one made by {sketch.maker.in_words}; "
            "sketch the rows again with this model."
        )
    found: list[tuple[str, Any, Any]] = [("states of shape {} per bag", shape, sketch.values.shape[1:])]
    if n_moments is not None and maker.moments == sketch.maker.moments:
        found.append(("{} moments per bag", n_moments, sketch.moments.shape[1]))
    for words, wanted, got in found:
        if got != wanted:
            expected = words.format(wanted)
            raise ValueError(f"sketch: expected {expected}, got {got}; sketch the rows again with this model.")


class NoSketcher(Sketcher):
    """Sketcher of a method without sketches; `reason` says why, and names an alternative."""

    kind = None

    def __init__(self, reason: str) -> None:
        self.reason = reason
