"""Sketches of classifier-based methods: sums of posteriors, or counts of rows in cells of the simplex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from histnetq.bags.bags import Bags
from histnetq.bags.fingerprint import digest_arrays
from histnetq.bags.indexing import offsets_of
from histnetq.simplex import Floats, Ints
from histnetq.sketches.cell_rules import CellRule, Largest, Odds
from histnetq.sketches.sketcher import Sketcher

Posteriors = Callable[[Bags], tuple[Floats, Ints]]
Quantify = Callable[[Floats, Ints, Ints, NDArray | None], Floats]
_FARTHEST, _STEP = 20.0, 0.01  # largest log-odds of two classes, and width of a cell
_LEAST = 1e-12  # smallest divisor of the odds, which are then far beyond the last cell
_MOST_CELLS = 4096  # cells for more than two classes
_NUMBERS_AT_ONCE = 1 << 22  # distances computed at a time


class Corners:
    """One cell for each class, with the rows that are assigned to the class.

    Every division into cells has `points`, (n_cells, n_classes): the posterior that represents the rows of each cell.
    """

    def __init__(self, n_classes: int) -> None:
        self.points = np.eye(n_classes)

    def of(self, posteriors: Floats) -> Ints:
        """Return the cell of each row, (n_rows,)."""
        return posteriors.argmax(1)

    def rule(self) -> CellRule:
        return Largest(len(self.points))


class LogOddsCells:
    """Cells for two classes: intervals of 0.01 of the log-odds, from −20 to 20.

    Examples
    --------
    >>> cells = LogOddsCells()
    >>> cells.points[cells.of(np.array([[0.25, 0.75]]))].round(3)
    array([[0.251, 0.749]])
    """

    def __init__(self) -> None:
        odds = np.exp(np.arange(-_FARTHEST + _STEP / 2, _FARTHEST, _STEP))
        self.points = np.stack([1 / (1 + odds), odds / (1 + odds)], axis=1)

        # Odds are compared with the odds at the limits: a division rounds in the same way everywhere, a logarithm not.
        self.edges = np.exp(np.arange(1, len(odds)) * _STEP - _FARTHEST)

    def of(self, posteriors: Floats) -> Ints:
        odds = posteriors[:, 1] / np.maximum(posteriors[:, 0], _LEAST)
        return np.searchsorted(self.edges, odds, side="right")

    def rule(self) -> CellRule:
        return Odds(1, 0, _LEAST, self.edges, (-_FARTHEST, _STEP))


class NearestPoints:
    """Cells for more than two classes: the nearest of up to 4,096 training rows in Hellinger distance.

    `training` has the posteriors of training rows, (n_rows, n_classes). The point of a cell is the mean posterior of
    its training rows, which is the posterior of the classes given the cell. Therefore the likelihood of the counts is
    right for any cells: wide cells lose some precision but cause no bias.
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

    def rule(self) -> None:
        return None

    def of(self, posteriors: NDArray) -> Ints:
        step = max(1, _NUMBERS_AT_ONCE // len(self._roots))
        parts = [posteriors[start : start + step] for start in range(0, len(posteriors), step)]
        return np.concatenate([(np.sqrt(part.astype(np.float64)) @ self._roots.T).argmax(1) for part in parts])


Cells = Corners | LogOddsCells | NearestPoints


class PosteriorSketcher(Sketcher):
    """Base class of the sketches that are computed from posteriors.

    Parameters
    ----------
    posteriors : callable
        Function from bags to the posteriors of their rows, each once, and the index of each entry among these rows.
    quantify : callable
        Function from posteriors (n_rows, n_classes), index, offsets and weights to prevalences (n_bags, n_classes).
    known : (n_rows, n_classes)
        Posteriors that the method learned from; they identify the classifier.
    """

    name: str

    def __init__(self, posteriors: Posteriors, quantify: Quantify, known: NDArray) -> None:
        self.posteriors, self.quantify, self.known = posteriors, quantify, known
        self.example = known[:1].astype(np.float64)  # what `posteriors` returns for one row

    def identity(self) -> str:
        return f"{self.name} of posteriors {digest_arrays(self.known)}"

    def state(self, bags: Bags) -> NDArray:
        posteriors, index = self.posteriors(bags)
        return self.summarise(posteriors, index, bags.offsets, bags.weights)

    def state_shape(self, input_shape: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
        return self.summarise(self.example, np.array([0]), np.array([0, 1]), None).shape[1:]

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        """Return the states of bags, (n_bags, ...), given the posteriors of their rows."""
        raise NotImplementedError


class SummedPosteriors(PosteriorSketcher):
    """Sums of posteriors, for methods that need only the mean posterior of a bag."""

    name = "sums"

    def cell_rules(self) -> list[CellRule] | None:
        return [] if self.name == SummedPosteriors.name else None

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return bag_sums(posteriors, index, offsets, weights)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        means = values / np.asarray(totals)[:, None]
        return self.quantify(means, np.arange(len(means)), np.arange(len(means) + 1), None)


class CountedCells(PosteriorSketcher):
    """Counts of a bag's rows in cells; estimates use the points of the cells, weighted by the counts.

    With `Corners` as cells, estimates are exact for methods that only count the rows assigned to each class.
    """

    def __init__(self, posteriors: Posteriors, quantify: Quantify, known: NDArray, cells: Cells) -> None:
        super().__init__(posteriors, quantify, known)
        self.cells = cells
        self.kind, self.name = "binned", "counts in cells"
        if isinstance(cells, Corners):
            self.kind, self.name = "exact", "counts of classes"
        elif isinstance(cells, NearestPoints):
            self.name = f"counts in {len(cells.points)} cells"

    def cell_rules(self) -> list[CellRule] | None:
        rule = self.cells.rule()
        return None if rule is None else [rule]

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        return count_cells(self.cells.of(posteriors), index, offsets, weights, len(self.cells.points))

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        return self.quantify(self.cells.points, *counted_entries(values))


def counted_entries(counts: NDArray) -> tuple[Ints, Ints, Floats]:
    """Return the counts above 0, (n_bags, n_cells), as entries of bags: index (the cells), offsets and weights.

    Examples
    --------
    >>> counted_entries(np.array([[2, 0, 1], [0, 3, 0]]))
    (array([0, 2, 1]), array([0, 2, 3]), array([2., 1., 3.]))
    """
    bag, cell = np.nonzero(counts)
    return cell, offsets_of(np.bincount(bag, minlength=len(counts))), counts[bag, cell].astype(np.float64)


def bag_sums(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Return the weighted sum of the values of each bag's rows: (n_rows, k) → (n_bags, k)."""
    w = np.ones(len(index)) if weights is None else weights.astype(np.float64)
    return sparse.csr_matrix((w, index, offsets), shape=(len(offsets) - 1, len(values))) @ values


def bag_means(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Return the weighted mean of the values of each bag's rows: (n_rows, k) → (n_bags, k).

    Examples
    --------
    >>> bag_means(np.array([[1.0], [3.0]]), np.array([0, 1, 1]), np.array([0, 2, 3]), None)
    array([[2.],
           [3.]])
    """
    totals = np.diff(offsets) if weights is None else np.add.reduceat(weights.astype(np.float64), offsets[:-1])
    return bag_sums(values, index, offsets, weights) / totals[:, None]


def count_cells(cell_of_row: Ints, index: Ints, offsets: Ints, weights: Any, n_cells: int) -> NDArray:
    """Return the weight of each bag's entries in each cell, (n_bags, n_cells); whole numbers for whole weights.

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
