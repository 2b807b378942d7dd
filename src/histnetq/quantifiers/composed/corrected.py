"""A quantifier with a correction that is learned from bags of known proportions: Corrected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_fraction, check_integer, check_seed
from histnetq.bags.limits import brief
from histnetq.metrics import ae
from histnetq.persistence.saving import StoredArrays
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.emq import EMQ
from histnetq.quantifiers.composed.members import Composed, StoredMembers
from histnetq.simplex import Floats, project
from histnetq.training.supervision import Supervision, check_sampler

if TYPE_CHECKING:
    from typing_extensions import Self

_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # multiples of the mean variance of the estimates
_FOLDS = 5
_FEWEST = 20  # smallest number of bags for a correction


@dataclass(eq=False, repr=False, kw_only=True)
class Corrected(Composed):
    """A quantifier whose estimates are corrected, as learned from bags of known proportions.

    A part of the bags, or of the labelled rows, is held out from the quantifier. An affine map from its estimates of
    the held-out bags to the truth is learned by ridge regression, which shrinks towards no change. Corrected estimates
    are projected to the simplex. Cross-validation over the bags chooses the ridge penalty. Without a gain in mean
    absolute error of more than its standard error, there is no correction.

    Parameters
    ----------
    quantifier : Quantifier, default=None
        The quantifier, which is cloned; None for `EMQ` with "bcts".
    held_out : float, default=0.3
        Fraction of the bags, or of the labelled rows, that is held out to learn the correction.
    n_bags : int, default=300
        Number of bags drawn from held-out labelled rows.
    sampler : protocol, default=None
        Protocol that draws these bags, which should be similar to the bags to estimate; None for ``APP()``.
    random_state : int, default=None
        Seed of the split and of the draws; None draws a new seed each time.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    members_ : list of Quantifier
        The fitted quantifier.
    slopes_ : (n_classes, n_classes)
        The product of an estimate with these slopes is added to it; 0 without a correction.
    shift_ : (n_classes,)
        The shift that is added to every estimate; 0 without a correction.

    References
    ----------
    Hastie, Tibshirani & Friedman (2009), *The elements of statistical learning*, sections 3.4 and 7.10.

    Examples
    --------
    >>> from histnetq import PCC
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=2000)
    >>> X = rng.normal(size=(2000, 1)) + y[:, None]
    >>> q = Corrected(PCC(random_state=0), random_state=0).fit(X, y)
    >>> ones = X[y == 1]
    >>> bool(q.predict(ones)[1] > q.members_[0].predict(ones)[1] + 0.2)
    True
    """

    quantifier: Quantifier | None = field(default=None, kw_only=False)
    held_out: float = 0.3
    n_bags: int = 300
    sampler: Any = None
    random_state: int | None = None
    stored = (StoredMembers(), StoredArrays(slopes_="classes classes", shift_="classes"))

    def fit(self, X: Any, y: Any = None, bags: Bags | None = None) -> Self:
        """Fit the quantifier to a part of the data, and the correction to the rest or to separate bags.

        Parameters
        ----------
        X : array of rows, or Bags
            Labelled rows, or bags that the quantifier learns from.
        y : array, default=None
            The label of each row; None with bags.
        bags : Bags, default=None
            Bags of known proportions for the correction, with rows that are not in `X`. The quantifier then learns from
            all of `X`.

        Returns
        -------
        Corrected
            The fitted quantifier itself.
        """
        self._check_params()
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        inner = EMQ(rescaling="bcts", random_state=seed) if self.quantifier is None else clone(self.quantifier)
        given = Supervision.of(X, y, None)
        if bags is None:
            kept, held = given.split(self.held_out, seed)
            bags = held.validation_bags(self.sampler, self.n_bags, seed)
        elif isinstance(bags, Bags):
            kept, bags = given, bags.with_known_prevalences()
        else:
            raise TypeError(f"bags: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        inner.fit(kept.rows if kept.bags is None else kept.bags)
        bags = bags.with_classes(inner.classes_)
        assert bags.prevalences is not None
        slopes, shift = learn_correction(inner.predict(bags), bags.prevalences, seed)
        self._learned_by([inner])
        self.train_prevalences_, self.slopes_, self.shift_ = given.prevalences(), slopes, shift
        return self

    def _check_params(self) -> None:
        super()._check_params()
        check_fraction("held_out", self.held_out)
        check_integer("n_bags", self.n_bags, 1, 10_000_000)
        check_sampler(self.sampler, "None or a protocol such as APP()")
        check_seed(self.random_state)
        if self.quantifier is None:
            return
        if not isinstance(self.quantifier, Quantifier):
            raise TypeError(
                f"quantifier: expected a quantifier, got {brief(self.quantifier)}; give one such as PACC()."
            )
        self.quantifier._check_params()

    def _combine(self, estimates: Floats) -> Floats:
        return corrected(estimates[0], self.slopes_, self.shift_)


def corrected(estimates: Floats, slopes: Floats, shift: Floats) -> Floats:
    """Apply a correction: (n_bags, n_classes) → the same.

    Examples
    --------
    >>> corrected(np.array([[0.4, 0.6]]), np.eye(2), np.array([-0.5, -0.5]))
    array([[0.3, 0.7]])
    """
    if not slopes.any() and not shift.any():
        return estimates
    return project(estimates + estimates @ slopes + shift)


def learn_correction(p_pred: Floats, p_true: Floats, seed: int) -> tuple[Floats, Floats]:
    """Learn slopes and a shift from the estimates and true prevalences of bags; all are 0 if they do not help.

    Examples
    --------
    >>> p = np.linspace(0, 1, 50)
    >>> true, pred = np.stack([p, 1 - p], 1), np.stack([0.25 + p / 2, 0.75 - p / 2], 1)
    >>> corrected(np.array([[0.35, 0.65]]), *learn_correction(pred, true, 0)).round(2)
    array([[0.2, 0.8]])
    """
    n_bags, n_classes = p_true.shape
    none = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
    if n_bags < _FEWEST:
        return none
    fold = np.random.default_rng(seed).permutation(n_bags) % _FOLDS
    plain = ae(p_true, p_pred)
    gains = np.empty((len(_RIDGES), n_bags))
    for k in range(_FOLDS):
        here = fold == k
        for i, ridge in enumerate(_RIDGES):
            learned = _ridge(p_pred[~here], p_true[~here], ridge)
            gains[i, here] = plain[here] - ae(p_true[here], corrected(p_pred[here], *learned))
    best = int(gains.mean(1).argmax())
    if gains[best].mean() <= gains[best].std(ddof=1) / np.sqrt(n_bags):
        return none
    return _ridge(p_pred, p_true, _RIDGES[best])


def _ridge(p_pred: Floats, p_true: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Return slopes and shift that predict the errors of estimates; `ridge` is a multiple of their mean variance."""
    mean, missing = p_pred.mean(0), p_true - p_pred
    centred = p_pred - mean
    squares = centred.T @ centred
    unit = max(float(np.trace(squares)) / len(squares), 1e-12)
    slopes = np.linalg.solve(squares + ridge * unit * np.eye(len(squares)), centred.T @ (missing - missing.mean(0)))
    return slopes, missing.mean(0) - mean @ slopes
