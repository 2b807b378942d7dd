"""Sketches on posteriors: counts of a bag's rows in cells of the simplex, estimated by a point of each cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from histnetq.bags.bags import Bags
from histnetq.bags.fingerprint import digest_arrays
from histnetq.simplex import Floats, Ints
from histnetq.sketches.sketcher import Sketcher

Posteriors = Callable[[Bags], tuple[Floats, Ints]]
Quantify = Callable[[Floats, Ints, Ints, NDArray | None], Floats]
_FARTHEST, _STEP = 20.0, 0.01  # of the log-odds of two classes
_MOST_CELLS = 2048  # for more classes
_NUMBERS_AT_ONCE = 1 << 22


class Corners:
    """A cell for each class, with the rows that are assigned to it.

    Parameters
    ----------
    n_classes : int
        Number of classes.

    Attributes
    ----------
    points : array of shape (n_cells, n_classes)
        Posteriors that stand for the rows of each cell; every division of the simplex has these.
    """

    def __init__(self, n_classes: int) -> None:
        self.points = np.eye(n_classes)

    def of(self, posteriors: Floats) -> Ints:
        """Give the cell ``(n_rows,)`` of each row."""
        return posteriors.argmax(1)


class LogOdds:
    """Cells for two classes: steps of 0.01 in the logarithm of the odds, from −20 to 20.

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
        return np.clip(np.floor((odds + _FARTHEST) / _STEP), 0, len(self.points) - 1).astype(np.int64)


class NearestPoints:
    """Cells for more classes: the nearest of some training rows in Hellinger distance.

    The point of a cell is the mean posterior of the training rows in it, that is the posterior of the classes given the
    cell. So the likelihood of the counts is right whatever the cells: wide cells cost some precision and no bias.

    Parameters
    ----------
    training : (n_rows, n_classes)
        Posteriors of training rows.
    weights : (n_rows,), optional
        Weights of these rows.
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


Cells = Corners | LogOdds | NearestPoints


class PosteriorSketcher(Sketcher):
    """Base of the sketches on posteriors.

    Parameters
    ----------
    posteriors : callable
        Bags → the posteriors of the rows that occur in them, each once, and which of them each entry is.
    quantify : callable
        Posteriors ``(n_rows, n_classes)``, index, offsets and weights → prevalences ``(n_bags, n_classes)``.
    known : (n_rows, n_classes)
        Posteriors that the method learned from: they tell one classifier from another.
    """

    name: str

    def __init__(self, posteriors: Posteriors, quantify: Quantify, known: NDArray) -> None:
        self.posteriors, self.quantify, self.known = posteriors, quantify, known

    def identity(self) -> str:
        return f"{self.name} of posteriors {digest_arrays(self.known)}"

    def state(self, bags: Bags) -> NDArray:
        posteriors, index = self.posteriors(bags)
        return self.summarise(posteriors, index, bags.offsets, bags.weights)

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        """Give the states ``(n_bags, ...)`` of bags of rows with these posteriors."""
        raise NotImplementedError


class SummedPosteriors(PosteriorSketcher):
    """Sums of posteriors, for methods that need no more than the mean posterior of a bag."""

    name = "sums"

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return bag_sums(posteriors, index, offsets, weights)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        means = values / np.asarray(totals)[:, None]
        return self.quantify(means, np.arange(len(means)), np.arange(len(means) + 1), None)


class CountedCells(PosteriorSketcher):
    """Counts of a bag's rows in cells; estimates come from the cells' points, weighted by the counts.

    Parameters
    ----------
    posteriors, quantify, known
        As in `PosteriorSketcher`.
    cells : Corners, LogOdds or NearestPoints
        How the simplex is divided. Methods that count the rows assigned to each class see no more of a row than its
        corner, and estimate from sketches exactly.
    """

    def __init__(self, posteriors: Posteriors, quantify: Quantify, known: NDArray, cells: Cells) -> None:
        super().__init__(posteriors, quantify, known)
        self.cells, exact = cells, isinstance(cells, Corners)
        self.kind, self.name = ("exact", "counts of classes") if exact else ("binned", "counts in cells")

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        return count_cells(self.cells.of(posteriors), index, offsets, weights, len(self.cells.points))

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        return self.quantify(self.cells.points, *counted_entries(values))


def counted_entries(counts: NDArray) -> tuple[Ints, Ints, Floats]:
    """Cells as entries of bags: index, offsets and weights of the counts ``(n_bags, n_cells)`` above 0.

    Examples
    --------
    >>> counted_entries(np.array([[2, 0, 1], [0, 3, 0]]))
    (array([0, 2, 1]), array([0, 2, 3]), array([2., 1., 3.]))
    """
    bag, cell = np.nonzero(counts)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(bag, minlength=len(counts)))])
    return cell, offsets, counts[bag, cell].astype(np.float64)


def bag_sums(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Weighted sum of the values of each bag's rows: (n_rows, k) → (n_bags, k)."""
    w = np.ones(len(index)) if weights is None else weights.astype(np.float64)
    return sparse.csr_matrix((w, index, offsets), shape=(len(offsets) - 1, len(values))) @ values


def bag_means(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Weighted mean of the values of each bag's rows: (n_rows, k) → (n_bags, k).

    Examples
    --------
    >>> bag_means(np.array([[1.0], [3.0]]), np.array([0, 1, 1]), np.array([0, 2, 3]), None)
    array([[2.],
           [3.]])
    """
    totals = np.diff(offsets) if weights is None else np.add.reduceat(weights.astype(np.float64), offsets[:-1])
    return bag_sums(values, index, offsets, weights) / totals[:, None]


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
