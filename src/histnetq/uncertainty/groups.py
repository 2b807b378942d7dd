"""Groups of rows whose class proportions are known, and estimates of class means from group means."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from histnetq.bags.bags import Bags
from histnetq.simplex import Ints

Floats = NDArray[np.float64]
_LEAST_SHARE = 1e-9  # smallest share of a class in a group, so that inexact proportions exclude no class


@dataclass(frozen=True)
class Groups:
    """Groups of rows whose class proportions are known: all rows of a class, or all rows of a bag.

    Attributes
    ----------
    rows, group : (n_items,)
        Row numbers, and the group of each row. A row in several groups is listed once for each.
    weights : (n_items,)
        Weight of each listed row in its group.
    mixes : (n_groups, n_classes)
        Proportions of the classes in each group.
    sizes : (n_groups,)
        Effective number of rows of each group.
    """

    rows: Ints
    group: Ints
    weights: Floats
    mixes: Floats
    sizes: Floats

    @classmethod
    def of(cls, bags: Bags) -> Groups:
        """Group labelled rows by class, each row once; group rows without labels by bag."""
        assert bags.prevalences is not None
        weights = np.ones(len(bags.index)) if bags.weights is None else bags.weights.astype(np.float64)
        if bags.labels is None or (bags.labels[bags.index] < 0).any():
            return cls(bags.index, bags.bag_of_entry, weights, bags.prevalences, np.asarray(bags.sizes, np.float64))
        rows, place = np.unique(bags.index, return_inverse=True)
        weights = np.bincount(place, weights) / np.bincount(place)
        present, group = np.unique(bags.labels[rows], return_inverse=True)
        survey = bags.weight_kind == "survey"
        sizes = np.bincount(group, weights) ** 2 / np.bincount(group, weights**2 if survey else weights)
        return cls(rows, group, weights, np.eye(bags.prevalences.shape[1])[present], sizes)

    def shuffled(self, rng: np.random.Generator) -> Groups:
        """Return the same groups with the rows in random order."""
        order = rng.permutation(len(self.rows))
        return replace(self, rows=self.rows[order], group=self.group[order], weights=self.weights[order])

    def first(self, n: int) -> Groups:
        """Return the first `n` rows, without the groups that have none of them."""
        kept, group = np.unique(self.group[:n], return_inverse=True)
        sizes = self.sizes[kept] * np.bincount(group) / np.bincount(self.group)[kept]
        return Groups(self.rows[:n], group, self.weights[:n], self.mixes[kept], sizes)

    def as_bags(self, bags: Bags) -> Bags:
        """Return the groups as bags; `bags` has the pool of rows."""
        order = np.argsort(self.group, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(self.group))])
        return Bags.trusted(bags.rows, self.rows[order], offsets, weights=self.weights[order], weight_kind="survey")

    def centered(self, values: Floats) -> Floats:
        """Subtract the weighted mean of its group from each value (n_items, k)."""
        w = sparse.csr_array((self.weights, (self.group, np.arange(len(values)))))
        return values - ((w @ values) / w.sum(1)[:, None])[self.group]

    def solver(self) -> Floats:
        """Return the ridge-regression matrix (n_classes, n_groups) that maps centered group means to class means."""
        weighted = self.mixes.T * self.sizes
        return np.asarray(np.linalg.solve(weighted @ self.mixes + np.eye(len(weighted)), weighted), np.float64)

    def design(self) -> Floats:
        """Return the uncertainty of the class means that `solver` computes: (n_classes, n_classes, n_classes).

        The mean of the mix *p* has the variance ``Σ_c V_c Σ_ij design[c, i, j] p_i p_j``, where *V_c* is the variance
        of a row of class *c*. A row in several groups affects all of them, and most likely belongs to a class that is
        common in all of them. The mean of a class that is in no group is as uncertain as a single row of the class.
        """
        solver = self.solver()
        missed = np.eye(len(solver)) - solver @ self.mixes
        _, row = np.unique(self.rows, return_inverse=True)
        within = self.weights / np.sqrt(self.sizes * np.bincount(self.group, self.weights**2))[self.group]
        influence = sparse.csr_array((within, (row, self.group))) @ solver.T
        classes = self._classes_of(row)
        spread = np.einsum("ri,rj,rc->cij", influence, influence, classes, optimize=True)
        return spread + np.einsum("ic,jc->cij", missed, missed)

    def _classes_of(self, row: Ints) -> Floats:
        """Return class probabilities (n_rows, n_classes) of distinct rows, given the mixes of all groups of a row."""
        usual = np.maximum(self.sizes @ self.mixes / self.sizes.sum(), _LEAST_SHARE)
        odds = np.log(np.maximum(self.mixes, _LEAST_SHARE) / usual)
        logs = sparse.csr_array((np.ones(len(row)), (row, self.group))) @ odds + np.log(usual)
        return np.asarray(softmax(logs, axis=1), np.float64)

    def row_weights(self) -> Floats:
        """Return the weights (n_classes, n_items) of all items in the mean of each class, by ridge regression.

        A class that the groups hardly determine gets the mean of all items.
        """
        within = self.weights / np.bincount(self.group, self.weights)[self.group]
        solver, every = self.solver(), self.weights / self.weights.sum()
        sums = solver.sum(1, keepdims=True)
        known = sums > 0.5
        return np.where(known, solver[:, self.group] * within / np.where(known, sums, 1), every)
