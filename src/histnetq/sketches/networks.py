"""Sketches of networks, from the states of a mergeable pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.nn import BagNetwork, Max, MergeablePooling, Pooling
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.batches import bag_states, predict_states
from histnetq.training.fingerprint import describe


def merge_of(pooling: Pooling) -> str | None:
    """Return how a pooling merges the states of parts of a bag: "sum", "max", or None for any other way."""
    merge: Any = getattr(type(pooling), "merge", None)
    known: dict[Any, str] = {MergeablePooling.merge: "sum", Max.merge: "max"}
    return known.get(merge)


class PooledStates(Sketcher):
    """Histograms, sums or maxima of encoded rows, for a network whose pooling merges states by a sum or a maximum."""

    def __init__(self, network: BagNetwork) -> None:
        self.network = network
        self.merge = str(merge_of(network.pooling))

    def identity(self) -> str:
        return describe([self.network.prepare, self.network.encoder, self.network.pooling])

    def state(self, bags: Bags) -> NDArray:
        return bag_states(self.network, bags)

    def estimate(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        return predict_states(self.network, values, totals)
