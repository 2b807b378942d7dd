"""The floor under every method: MLPE."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.quantifiers.base import Quantifier
from histnetq.training.supervision import Supervision

__all__ = ["MLPE"]


class MLPE(Quantifier):
    """Maximum likelihood prevalence estimation: the training prevalences, whatever the bag. What others must beat.

    Learns from labelled rows, or from bags of known proportions, whose mean it takes.

    Examples
    --------
    >>> MLPE().fit([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "b", "b"]).predict([[1.0], [5.0]])
    array([0.25, 0.75])
    """

    def fit(self, X: Any, y: Any = None) -> MLPE:
        """Learn from labelled rows ``fit(X, y)``, or from bags ``fit(bags)``."""
        given = Supervision.of(X, y, None)
        self.train_prevalences_ = given.prevalences()
        self._forget_calibration()
        self.classes_, self.input_shape_, self.feature_names_ = given.classes, given.input_shape, given.feature_names
        return self

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return np.tile(self.train_prevalences_, (len(bags), 1))

    @property
    def sketch_kind(self) -> str:
        return "exact"

    def _state(self, bags: Bags) -> NDArray:
        return np.empty((len(bags), 0), np.uint8)

    def _from_state(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        return np.tile(self.train_prevalences_, (len(values), 1))

    def _state_identity(self) -> str:
        return "no state"

    def _weights(self) -> dict[str, NDArray]:
        return {}

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        """Nothing but the training prevalences, which every quantifier has."""
