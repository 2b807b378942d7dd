"""The base of quantifiers that learn from features of labelled rows, without a classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from histnetq.bags.bags import Bags
from histnetq.bags.checks import needs_double, take_dense, used_rows
from histnetq.bags.class_names import are_scores
from histnetq.bags.classifier_rows import require_numbers
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.cross_fitting import entries_with_labels
from histnetq.simplex import Floats, Ints
from histnetq.sketches.moments import total_weights
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.supervision import labelled_rows

if TYPE_CHECKING:
    from typing_extensions import Self

_NUMBERS_AT_ONCE = 1 << 22


class Columns:
    """Columns of rows as dense numbers, a few at a time; the rows are an array, also of images, or a sparse matrix."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows.tocsc() if sparse.issparse(rows) else rows.reshape(len(rows), -1)
        self.n_columns = int(self.rows.shape[1])

    def take(self, columns: Any) -> Floats:
        """Return some columns: (n_rows, n_taken)."""
        taken = self.rows[:, columns]
        dense: NDArray = taken.toarray() if sparse.issparse(taken) else np.asarray(taken)
        return dense.astype(np.float64)


@dataclass(eq=False, repr=False, kw_only=True)
class FeatureQuantifier(Quantifier):
    """Base of methods without a classifier.

    A method implements ``_learn``, which sets the arrays listed in ``stored``, ``_sums``, ``_sums_of`` and
    ``_estimate``.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from labelled rows.

        Parameters
        ----------
        X : array of rows, or Bags
            Labelled rows, or bags whose rows are labelled.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        FeatureQuantifier
            The fitted quantifier itself.
        """
        self._check_params()
        given = labelled_rows(X, y)
        require_numbers(given.rows)
        if given.rows.ndim == 1:
            kind = type(self).__name__
            raise TypeError(f"rows: {kind} expects numbers, got texts; vectorise them first, as by CountVectorizer.")
        assert given.classes is not None
        scored = are_scores(given)
        entries, labels, weights = entries_with_labels(given)
        prevalences = np.bincount(labels, weights, minlength=len(given.classes)).astype(float)
        self.train_prevalences_ = prevalences / prevalences.sum()
        self._learn(Columns(given.rows[entries]), labels, None if weights is None else weights.astype(np.float64))
        known = given.classes, tuple(given.rows.shape[1:]), given.feature_names, self.train_prevalences_
        self._learned_from(*known, needs_double(given.rows), scored, given.text)
        return self

    def _learn(self, columns: Columns, labels: Ints, weights: Floats | None) -> None:
        """Learn from the columns of labelled rows, and set the arrays listed in ``stored``."""
        raise NotImplementedError

    def _sums(self, bags: Bags) -> NDArray:
        """Return the sums over the rows of each bag, ``(n_bags, ...)``, that ``_estimate`` needs."""
        raise NotImplementedError

    def _sums_of(self) -> str:
        """Return text that identifies the sums and the learned arrays that they depend on."""
        raise NotImplementedError

    def _estimate(self, sums: NDArray, totals: NDArray) -> Floats:
        """Return prevalences ``(n_bags, n_classes)`` from sums over rows and total weights of bags."""
        raise NotImplementedError

    def _predict(self, bags: Bags) -> Floats:
        return self._estimate(self._sums(bags), total_weights(bags))

    def _sketcher(self) -> Sketcher:
        return _Summed(self)


class _Summed(Sketcher):
    """Sketches that are sums over the rows of a bag."""

    def __init__(self, q: FeatureQuantifier) -> None:
        self.q = q

    def identity(self) -> str:
        return self.q._sums_of()

    def state(self, bags: Bags) -> NDArray:
        return self.q._sums(bags)

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        return self.q._estimate(values, totals)


def class_shares(labels: Ints, weights: NDArray | None, n_classes: int) -> Floats:
    """Return the weight of each row in the mean of each class: (n_rows, n_classes); 0 for a class without rows.

    Examples
    --------
    >>> class_shares(np.array([0, 0, 1]), np.array([1.0, 3.0, 2.0]), 2)
    array([[0.25, 0.  ],
           [0.75, 0.  ],
           [0.  , 1.  ]])
    """
    shares = np.zeros((len(labels), n_classes))
    shares[np.arange(len(labels)), labels] = 1.0 if weights is None else weights
    totals = shares.sum(0)
    return shares / np.where(totals > 0, totals, 1.0)


def rows_of_classes(posteriors: Floats, labels: Ints, weights: NDArray | None) -> tuple[Floats, Floats]:
    """Return the posteriors and the `class_shares` of rows, so that every class has rows: (n_rows, n_classes) each.

    A class without rows gets one row with the posterior 1, as if it were always recognised.
    """
    shares = class_shares(labels, weights, posteriors.shape[1])
    added = np.eye(posteriors.shape[1])[shares.sum(0) == 0]
    return np.concatenate([posteriors, added]), np.concatenate([shares, added])


def row_chunks(bags: Bags, numbers_of_a_row: int) -> Iterator[tuple[Floats, Any]]:
    """Yield the different rows of bags in chunks (n_some, n_features), and their weights in the bags (n_bags, n_some).

    Chunks are small enough for a caller that computes `numbers_of_a_row` values from each row.
    """
    used, index = used_rows(bags.index, bags.rows.shape[0])
    w = np.ones(len(index)) if bags.weights is None else bags.weights.astype(np.float64)
    member = sparse.csr_matrix((w, index, bags.offsets), shape=(len(bags), len(used))).tocsc()
    step = max(256, _NUMBERS_AT_ONCE // max(numbers_of_a_row, 1))
    for start in range(0, len(used), step):
        rows = take_dense(bags.rows, used[start : start + step])
        yield rows.reshape(len(rows), -1).astype(np.float64), member[:, start : start + step].tocsr()
