"""A quantifier that was pretrained on simulated tasks: no training on the user's bags, and intervals at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.fingerprint import digest_arrays
from histnetq.metrics import Measure, as_loss
from histnetq.quantifiers.classical.bag_prior import check_prior, concentrations, learn_prior
from histnetq.quantifiers.classical.cell_tokens import describe
from histnetq.quantifiers.classical.posteriors import Floats, Ints, PosteriorQuantifier
from histnetq.quantifiers.classical.pretrained_network import (
    LATEST,
    VERSIONS,
    PartsDistribution,
    distribution,
    read_networks,
)
from histnetq.quantifiers.classical.simplex_cells import LearnedCells, StoredCells
from histnetq.simplex import check_estimates
from histnetq.sketches.cell_rules import CellRule
from histnetq.sketches.posteriors import PosteriorSketcher, count_cells, counted_entries
from histnetq.sketches.sketch import BagSketch
from histnetq.sketches.sketcher import Sketcher
from histnetq.uncertainty.capabilities import PosteriorOfParts

_AT_ONCE = 1 << 21  # numbers that the network computes at a time
_DENSE = 16  # counts of all cells are computed if they are at most this many for each row
_WIDTH = 512  # of these, for each class of a bag


@dataclass(frozen=True)
class CellEntries:
    """Cells of bags with their weights, which sum to the effective size of each bag.

    Attributes
    ----------
    cells, weights : (n_entries,)
    offsets : (n_bags + 1,)
    """

    cells: Ints
    offsets: Ints
    weights: Floats

    def part(self, first: int, last: int) -> CellEntries:
        """Return the entries of a range of bags."""
        a, b = self.offsets[first], self.offsets[last]
        return CellEntries(self.cells[a:b], self.offsets[first : last + 1] - a, self.weights[a:b])

    @property
    def sizes(self) -> Floats:
        """Effective sizes of the bags."""
        return np.add.reduceat(self.weights, self.offsets[:-1])


class _CellSketcher(PosteriorSketcher):
    """Counts of rows in cells, which are all that the network reads."""

    kind, name = "exact", "counts in cells of the pretrained network"

    def __init__(self, model: Pretrained) -> None:
        super().__init__(model._bag_posteriors, model._quantify, model.training_posteriors_)
        self.model = model

    def identity(self) -> str:
        edges = self.model.cells_.edges
        return f"{super().identity()}, {digest_arrays(edges.order, edges.first, edges.second)}, {edges.floor}"

    def cell_rules(self) -> list[CellRule]:
        return [self.model.cells_.edges.rule()]

    def summarise(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> NDArray:
        edges = self.model.cells_.edges
        return count_cells(edges.of_rows(posteriors), index, offsets, weights, edges.n_cells)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        return self.model._estimates(CellEntries(*counted_entries(values)), self.model.loss)


@dataclass(eq=False, repr=False, kw_only=True)
class Pretrained(PosteriorQuantifier):
    """A network that was trained once on simulated tasks, and compares the counts of a bag with counts of each class.

    It needs labelled rows, and no training on bags. Rows are counted in cells of the simplex of posteriors. A mixture
    of the classes is fitted to the counts of a bag, at several levels of trust in the classifier. The network then
    corrects these estimates, and returns a distribution of the part of each class in the bag.

    Parameters
    ----------
    classifier : str or scikit-learn classifier with `predict_proba`, default="logistic"
        A name ("logistic" on scaled features, "forest", "boosting", "mlp" or "bayes"), or a classifier. A classifier is
        cloned, never fitted in place; with ``cv=None`` it is used as it is.
    cv : int, float or None, default=5
        Number of cross-fitting folds, or the held-out fraction of the rows. None means that the classifier is already
        fitted; then pass to `fit` only rows that the classifier was not trained on.
    random_state : int, default=None
        Seed of the cross-validation split; None draws a new seed each time.
    loss : str or callable, default="ae"
        Loss that estimates minimise, see `histnetq.metrics`, or a function ``(p_true, p_pred)``. It may be changed
        after `fit`, by `set_params` or by `predict_for`.
    prior : {"uniform", "training", "bags"}, float or (n_classes,), default="uniform"
        Knowledge about the mix of a bag: none; that it is near the training mix; that it may resemble the other
        bags that are predicted together, so that estimates depend on them; or concentrations of a Dirichlet
        distribution.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    cells_ : LearnedCells
        The cells, and the statistics of labelled rows in them.
    version_ : str
        Version of the network.

    References
    ----------
    Saerens, Latinne & Decaestecker (2002), *Adjusting the outputs of a classifier to new a priori probabilities*, for
    the mixture; Müller, Hollmann, Pineda Arango, Grabocka & Hutter (2022), *Transformers can do Bayesian inference*,
    for learning a posterior from simulated tasks.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> q = Pretrained().fit_posteriors(P, [0, 1] * 10)
    >>> q.predict_posteriors([[0.9, 0.1]] * 9 + [[0.2, 0.8]]).round(1)
    array([0.9, 0.1])
    """

    loss: str | Measure = "ae"
    prior: Any = "uniform"
    stored = (*PosteriorQuantifier.stored, StoredCells(VERSIONS))

    def _check_params(self) -> None:
        super()._check_params()
        as_loss(self.loss)
        check_prior(self.prior)

    def predict_for(self, X: Any, loss: str | Measure) -> Floats:
        """Estimate the prevalence of each class with the least expected loss, for any loss.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            As in `predict`.
        loss : str or callable
            A name from `histnetq.metrics`, or a function ``(p_true, p_pred)`` that returns one number per row.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array and its sketch
            The estimates.

        Examples
        --------
        >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
        >>> q = Pretrained().fit_posteriors(P, [0, 1] * 10)
        >>> bool(q.predict_for(P[:4], "rae")[0] < q.predict(P[:4])[0] + 0.1)
        True
        """
        as_loss(loss)
        entries = self._entries_of(X)
        estimates = check_estimates(self._estimates(entries, loss))
        return estimates if self._are_several(X) else estimates[0]

    def draw(self, X: Any, n_draws: int = 256) -> Floats:
        """Draw the mix of each bag from its posterior distribution, with a fixed seed.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            As in `predict`.
        n_draws : int, default=256
            Number of draws.

        Returns
        -------
        (n_bags, n_draws, n_classes), or (n_draws, n_classes) for an array and its sketch
            The draws.

        Examples
        --------
        >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
        >>> Pretrained().fit_posteriors(P, [0, 1] * 10).draw(P, 5).shape
        (5, 2)
        """
        found = self._draw(X, n_draws)
        return found if self._are_several(X) else found[0]

    def _posterior(self) -> PosteriorOfParts:
        return PosteriorOfParts(self._shortest, self._draw)

    def _shortest(self, X: Any, coverage: float) -> tuple[Floats, Floats]:
        parts = self._distributions(self._entries_of(X), joint=False)
        low, high = np.concatenate([part.shortest(coverage) for part in parts], axis=1)
        return low, high

    def _draw(self, X: Any, n_draws: int = 256) -> Floats:
        return np.concatenate([part.draw(n_draws) for part in self._distributions(self._entries_of(X), joint=True)])

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        self.version_ = LATEST
        self.cells_: LearnedCells = LearnedCells.of(posteriors, labels, weights)

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return self._estimates(self._count(posteriors, index, offsets, weights), self.loss)

    def _sketcher(self) -> Sketcher:
        return _CellSketcher(self)

    def _entries_of(self, X: Any) -> CellEntries:
        if isinstance(X, BagSketch):
            self._require_own(X)
            return CellEntries(*counted_entries(X.sized()[0]))
        bags: Bags = self._bags_to_estimate(X)
        posteriors, index = self._bag_posteriors(bags)
        return self._count(posteriors, index, bags.offsets, bags.sized_weights())

    def _count(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> CellEntries:
        """Count the rows of each bag in cells; the same numbers as in a sketch, without empty cells."""
        n_cells, cells = self.cells_.edges.n_cells, self.cells_.edges.of_rows(posteriors)
        n_bags, found, sums, starts = len(offsets) - 1, list[Ints](), list[Floats](), [np.zeros(1, np.int64)]
        step = max(1, _AT_ONCE // n_cells)
        for first in range(0, n_bags, step):
            ends = offsets[first : first + step + 1]
            some, bags = slice(ends[0], ends[-1]), len(ends) - 1
            place = np.repeat(np.arange(bags) * n_cells, np.diff(ends)) + cells[index[some]]
            w = None if weights is None else weights[some]
            if bags * n_cells <= _DENSE * len(place):
                counts = np.bincount(place, w, bags * n_cells)
                used = np.flatnonzero(counts)
                sums.append(counts[used].astype(np.float64))
            else:
                used, inverse = np.unique(place, return_inverse=True)
                sums.append(np.bincount(inverse, w, len(used)).astype(np.float64))
            upto = np.searchsorted(used, np.arange(1, bags + 1) * n_cells)
            starts.append(starts[-1][-1] + upto)
            found.append(used % n_cells)
        return CellEntries(np.concatenate(found), np.concatenate(starts), np.concatenate(sums))

    def _estimates(self, entries: CellEntries, loss: str | Measure) -> Floats:
        found = [part.decision(loss) for part in self._distributions(entries, joint=loss != "ae")]
        return np.concatenate(found)

    def _distributions(self, entries: CellEntries, joint: bool) -> list[PartsDistribution]:
        """Return the distributions of the parts of all bags, in runs of bags that fit in memory together."""
        learned, n_bags = self.cells_, len(entries.offsets) - 1
        n_classes = len(learned.counts)
        prior = concentrations(self.prior, self.train_prevalences_)
        step = max(1, _AT_ONCE // (n_classes * max(_WIDTH, n_classes if joint else 0)))
        ends = [*range(0, n_bags, step), n_bags]
        runs = [entries.part(a, b) for a, b in pairwise(ends)]

        def with_prior(run: CellEntries, alpha: Floats, joint: bool) -> PartsDistribution:
            tiled = np.broadcast_to(alpha[learned.edges.order], (len(run.sizes), n_classes)).copy()
            bags = describe(learned, run.cells, run.offsets, run.weights, run.sizes, tiled, joint)
            return distribution(bags, np.argsort(learned.edges.order), read_networks(self.version_))

        if isinstance(self.prior, str) and self.prior == "bags":
            prior = learn_prior(lambda a: [with_prior(run, a, False) for run in runs], n_bags, self.train_prevalences_)
        return [with_prior(run, prior, joint) for run in runs]
