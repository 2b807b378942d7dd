"""The baseline of every method, which estimates the training prevalences: MLPE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import needs_double
from histnetq.quantifiers.base import Quantifier
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.supervision import Supervision

if TYPE_CHECKING:
    from typing_extensions import Self


class MLPE(Quantifier):
    """Maximum likelihood prevalence estimation: the baseline that estimates the training prevalences for every bag.

    It learns from labelled rows, or takes the mean of bags of known proportions.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training, the estimate of every bag.

    References
    ----------
    Barranquero et al. (2013), *On the study of nearest neighbor algorithms for prevalence estimation*.

    Examples
    --------
    >>> MLPE().fit([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "b", "b"]).predict([[1.0], [5.0]])
    array([0.25, 0.75])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from labelled rows, ``fit(X, y)``, or from bags, ``fit(bags)``.

        Parameters
        ----------
        X : array of rows, or Bags
            Labelled rows, or bags of known proportions or of labelled rows.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        MLPE
            The fitted quantifier itself.
        """
        given = Supervision.of(X, y, None)
        known = given.classes, given.input_shape, given.feature_names, given.prevalences()
        self._learned_from(*known, needs_double(given.pool), given.are_scores, given.text)
        return self

    def _reads_any_rows(self) -> bool:
        return True  # it does not read rows at all

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return np.tile(self.train_prevalences_, (len(bags), 1))

    def _sketcher(self) -> Sketcher:
        return _Nothing(self.train_prevalences_)


class _Nothing(Sketcher):
    """Sketches that keep nothing but the weights of the bags."""

    def __init__(self, prevalences: NDArray[np.float64]) -> None:
        self.prevalences = prevalences

    def identity(self) -> str:
        return "no state"

    def state(self, bags: Bags) -> NDArray:
        return np.empty((len(bags), 0), np.uint8)

    def state_shape(self, input_shape: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
        return (0,)

    def estimate(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        return np.tile(self.prevalences, (len(values), 1))
