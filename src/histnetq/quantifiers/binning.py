"""Sketches on posteriors: counts of a bag's rows in cells of the simplex, estimated by a point of each cell."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.quantifiers.base import Quantifier

__all__ = ["BinnedPosteriors", "Cells", "Corners", "LogOdds", "NearestPoints", "count_cells"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_FARTHEST, _STEP = 20.0, 0.01  # of the log-odds of two classes
_MOST_CELLS = 2048  # for more classes
_NUMBERS_AT_ONCE = 1 << 22


class Cells:
    """A division of the simplex into cells, with a point ``(n_classes,)`` for each."""

    points: Floats

    def of(self, posteriors: Floats) -> Ints:
        """(n_rows,): the cell of each row."""
        raise NotImplementedError


class Corners(Cells):
    """The rows assigned to each class."""

    def __init__(self, n_classes: int) -> None:
        self.points = np.eye(n_classes)

    def of(self, posteriors: Floats) -> Ints:
        return posteriors.argmax(1)


class LogOdds(Cells):
    """Two classes: steps of 0.01 in the logarithm of the odds, from −20 to 20.

    Examples
    --------
    >>> cells = LogOdds()
    >>> cells.points[cells.of(np.array([[0.25, 0.75]]))].round(3)
    array([[0.251, 0.749]])
    """

    def __init__(self) -> None:
        odds = np.exp(np.arange(-_FARTHEST + _STEP / 2, _FARTHEST, _STEP))
        self.points = np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)

    def of(self, posteriors: Floats) -> Ints:
        with np.errstate(divide="ignore"):
            odds = np.log(posteriors[:, 1]) - np.log(posteriors[:, 0])
        cells = np.floor((odds + _FARTHEST) / _STEP)
        return np.clip(cells, 0, len(self.points) - 1).astype(np.int64)


class NearestPoints(Cells):
    """More classes: the nearest of some training rows in Hellinger distance.

    The point of a cell is the mean posterior of the training rows in it, that is the posterior of the classes given the
    cell. So the likelihood of the counts is right whatever the cells: wide cells cost some precision and no bias.

    Parameters
    ----------
    training : (n_rows, n_classes)
        Posteriors of training rows.
    weights : (n_rows,), optional
    """

    def __init__(self, training: NDArray, weights: NDArray | None) -> None:
        different = np.unique(training, axis=0)
        chosen = np.random.default_rng(0).permutation(len(different))[:_MOST_CELLS]
        self._roots = np.sqrt(different[np.sort(chosen)].astype(np.float64))
        cell = self.of(training)
        w = np.ones(len(training)) if weights is None else weights
        sums = np.stack([np.bincount(cell, w * p, len(self._roots)) for p in training.T.astype(np.float64)], axis=1)
        self.points = np.where(sums.sum(1, keepdims=True) > 0, sums, self._roots**2)
        self.points /= self.points.sum(1, keepdims=True)

    def of(self, posteriors: NDArray) -> Ints:
        step = max(1, _NUMBERS_AT_ONCE // len(self._roots))
        parts = [posteriors[start : start + step] for start in range(0, len(posteriors), step)]
        return np.concatenate([(np.sqrt(part.astype(np.float64)) @ self._roots.T).argmax(1) for part in parts])


class BinnedPosteriors(Quantifier):
    """What lets a quantifier on posteriors ``(n_rows, n_classes)`` make sketches: counts in cells.

    Estimates come from the cells' points, weighted by the counts: exact where the method sees no more of a row than its
    cell, near the exact ones elsewhere.
    """

    training_posteriors_: NDArray[np.float32]

    @property
    def sketch_kind(self) -> str | None:
        return "binned"

    def _cells(self) -> Cells:
        if len(self.classes_) == 2:
            return LogOdds()
        # Learned once for a model: kept beside what they were learned from, which is another after another fit.
        known = self.__dict__.get("_nearest")
        if known is None or known[0] is not self.training_posteriors_:
            cells = NearestPoints(self.training_posteriors_, getattr(self, "training_weights_", None))
            known = self._nearest = (self.training_posteriors_, cells)
        return known[1]

    def _state(self, bags: Bags) -> NDArray:
        posteriors, index = self._bag_posteriors(bags)
        return self._posterior_state(posteriors, index, bags.offsets, bags.weights)

    def _posterior_state(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        cells = self._cells()
        return count_cells(cells.of(posteriors), index, offsets, weights, len(cells.points))

    def _from_state(self, values: NDArray, totals: NDArray) -> Floats:
        bag, cell = np.nonzero(values)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(bag, minlength=len(values)))])
        return self._quantify(self._cells().points, cell, offsets, values[bag, cell].astype(np.float64))

    def _state_identity(self) -> str:
        # The posteriors of the rows it learned from tell a classifier apart, and are stored with the model.
        known = hashlib.sha256(np.ascontiguousarray(self.training_posteriors_).tobytes()).hexdigest()
        return f"{self._state_name()} of posteriors {known}"

    def _state_name(self) -> str:
        return "counts in cells"

    def _bag_posteriors(self, bags: Bags) -> tuple[Floats, Ints]:
        """Posteriors of the rows that occur in the bags, each once, and which of them each entry is."""
        raise NotImplementedError

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        """(n_rows, n_classes) and the layout of the bags → (n_bags, n_classes)."""
        raise NotImplementedError


def count_cells(cell_of_row: Ints, index: Ints, offsets: Ints, weights: Any, n_cells: int) -> NDArray:
    """(n_bags, n_cells): weight of each bag's entries in each cell; whole numbers if the weights are.

    Examples
    --------
    >>> count_cells(np.array([0, 2]), np.array([0, 1, 1]), np.array([0, 1, 3]), None, 3)
    array([[1, 0, 0],
           [0, 0, 2]])
    """
    n_bags = len(offsets) - 1
    place = np.repeat(np.arange(n_bags) * n_cells, np.diff(offsets)) + cell_of_row[index]
    counts = np.bincount(place, weights, minlength=n_bags * n_cells).reshape(n_bags, n_cells)
    return counts if weights is not None and weights.dtype.kind == "f" else counts.astype(np.int64)
