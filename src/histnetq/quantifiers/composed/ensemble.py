"""The mean or the median of the estimates of several quantifiers: Ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice, check_seed
from histnetq.bags.limits import brief
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.counting import PACC
from histnetq.quantifiers.classical.cross_fitting import CrossFitted
from histnetq.quantifiers.classical.emq import EMQ
from histnetq.quantifiers.classical.kdey import KDEy
from histnetq.quantifiers.classical.posteriors import PosteriorQuantifier
from histnetq.quantifiers.composed.members import Composed, refuse_many_members
from histnetq.simplex import Floats

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(eq=False, repr=False, kw_only=True)
class Ensemble(Composed):
    """Ensemble: the mean or the median of the estimates of several methods, or of one method with several seeds.

    Classifier-based members with the same classifier and the same seed share its fits. Intervals come from `calibrate`,
    as for any quantifier.

    Parameters
    ----------
    members : sequence of Quantifier, default=None
        Unfitted quantifiers, at most 1,000, which are cloned. None uses `EMQ` with "bcts", `KDEy` and `PACC`.
    how : {"mean", "median"}, default="mean"
        Combination of the estimates; medians are normalised.
    random_state : int, default=None
        Seed of the default members; given members have their own seeds.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    members_ : list of Quantifier
        The fitted members.

    References
    ----------
    Pérez-Gállego, Castaño, Quevedo & del Coz (2019), *Dynamic ensemble selection for quantification tasks*.

    Examples
    --------
    >>> from histnetq import CC, PACC
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> q = Ensemble([PACC(random_state=0), CC(random_state=1), CC(random_state=2)], how="median").fit(X, y)
    >>> q.predict([[0.0], [1.0], [1.0], [1.0]]).round(2)
    array([0.25, 0.75])
    """

    members: Sequence[Quantifier] | None = field(default=None, kw_only=False)
    how: str = "mean"
    random_state: int | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit all members.

        Parameters
        ----------
        X : array of rows, or Bags
            Training data of all members: labelled rows, or bags.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        Ensemble
            The fitted quantifier itself.
        """
        self._check_params()
        if not isinstance(X, Bags) and y is not None:
            X, y = Bags.from_labels(X, y), None
        shared: dict[Any, CrossFitted] = {}
        self._learned_by([_fitted(clone(member), X, y, shared) for member in self._chosen()])
        return self

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("how", self.how, ("mean", "median"))
        check_seed(self.random_state)
        listed = self.members is None or isinstance(self.members, Sequence)
        if not listed or not (members := self._chosen()) or not all(isinstance(q, Quantifier) for q in members):
            raise TypeError(f"members: expected quantifiers, got {brief(self.members)}; give such as [EMQ(), PACC()].")
        refuse_many_members("members", len(members))
        for member in members:
            member._check_params()

    def _chosen(self) -> list[Quantifier]:
        if self.members is not None:
            return list(self.members)
        seed = self.random_state
        return [EMQ(rescaling="bcts", random_state=seed), KDEy(random_state=seed), PACC(random_state=seed)]

    def _combine(self, estimates: Floats) -> Floats:
        mean: Floats = estimates.mean(0)
        if self.how == "mean":
            return mean
        p = np.median(estimates, axis=0)
        p = np.where(
            p.sum(1, keepdims=True) > 0, p, mean
        )  # all medians are 0 if each member finds a single, different class
        return p / p.sum(1, keepdims=True)


def _fitted(member: Quantifier, X: Any, y: Any, shared: dict[Any, CrossFitted]) -> Quantifier:
    """Fit a member; members with the same classifier and seed share the cross-fitted posteriors."""
    if not isinstance(member, PosteriorQuantifier) or member.random_state is None:
        return member.fit(X, y)
    named = member.classifier if isinstance(member.classifier, str | None) else repr(member.classifier)
    key = named, member.cv, member.random_state
    if key not in shared:
        shared[key] = member.cross_fit(X, y)
    return member.fit_crossed(shared[key])
