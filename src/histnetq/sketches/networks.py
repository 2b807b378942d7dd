"""Sketches of networks: the state of a pooling whose parts add up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.nn import BagNetwork, Max
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.batches import bag_states, predict_states
from histnetq.training.fingerprint import describe


class PooledStates(Sketcher):
    """Histograms, sums or maxima of the features that an encoder gives the rows.

    Parameters
    ----------
    network : BagNetwork
        Network whose pooling is a `histnetq.nn.MergeablePooling`.
    """

    def __init__(self, network: BagNetwork) -> None:
        self.network = network
        self.merge = "max" if isinstance(network.pooling, Max) else "sum"

    def identity(self) -> str:
        return describe([self.network.prepare, self.network.encoder, self.network.pooling])

    def state(self, bags: Bags) -> NDArray:
        return bag_states(self.network, bags)

    def estimate(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        return predict_states(self.network, values, totals)
