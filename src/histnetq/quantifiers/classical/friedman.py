"""Adjusted counts of the classes that are more likely for a row than in training: Friedman."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histnetq.quantifiers.classical.counting import ACC
from histnetq.quantifiers.classical.posteriors import Floats, Ints
from histnetq.quantifiers.row_posteriors import misclassification
from histnetq.sketches.posteriors import bag_means
from histnetq.sketches.sketcher import Sketcher


@dataclass(eq=False, repr=False, kw_only=True)
class Friedman(ACC):
    """Friedman's method: ACC on the shares of rows whose posteriors exceed the training prevalences.

    A row may count for several classes. Among all thresholds that separate two classes, the training prevalence gives
    the estimate with the smallest variance.

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
    solver : {"least-squares", "inverse"}, default="least-squares"
        The exact constrained least-squares solution; or the pseudo-inverse, projected to the simplex.
    smoothness : float, default=0.0
        Penalty of the second differences of the prevalences, for ordered classes; see `ACC`.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    classifier_ : classifier
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None after `fit_posteriors`.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    matrix_ : (n_classes, n_classes)
        Share of the rows of the class in the column that count for the class in the row.

    References
    ----------
    Friedman (2014), *Class counts in future unlabeled samples*; Schumacher, Strohmaier & Lemmerich (2025), *A
    comparative evaluation of quantification methods*, JMLR 26(55).

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
    >>> Friedman().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
    array([0.67, 0.33])
    """

    reads = "posteriors"

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        self.matrix_ = misclassification(self._likelier(posteriors), labels, weights)

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        return self._adjust(bag_means(self._likelier(posteriors), index, offsets, weights))

    def _likelier(self, posteriors: Floats) -> Floats:
        """Return 1 for each class that is more likely for a row than in training, else 0: (n_rows, n_classes)."""
        return (posteriors > self.train_prevalences_).astype(np.float64)

    def _sketcher(self) -> Sketcher:
        return self._sums_sketcher("sums above the prevalences", self._likelier, self._adjust)
