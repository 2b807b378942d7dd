"""Intervals of a quantifier's estimates and trust in bags, both learned from bags of known proportions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.quantifiers.sketching import Sketching
from histnetq.sketches.moments import total_weights
from histnetq.sketches.sketch import BagSketch
from histnetq.uncertainty.conformal import Calibration, cross_estimates, require_calibrated
from histnetq.uncertainty.intervals import Intervals
from histnetq.uncertainty.methods import INTERVALS
from histnetq.uncertainty.trust import Trust

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self


class Calibrating(Sketching):
    """The part of a `Quantifier` that tells how far its estimates can be trusted."""

    calibration_: Calibration

    if TYPE_CHECKING:  # every quantifier has it

        def fit(self, X: Any, y: Any = None) -> Any: ...

    def calibrate(self, bags: Bags, *, random_state: int = 0) -> Self:
        """Learn from bags of known proportions how far estimates are from the truth, and what bags look like.

        After it, `predict_interval` gives intervals and `trust` tells bags that look otherwise.

        Parameters
        ----------
        bags : Bags
            Bags of rows that were not used in training, since estimates of rows that were learned from are too good.
            They should be as alike as can be to the bags to be estimated, in sizes and in how their proportions came
            about.
        random_state : int, default=0
            Seed of the folds: every bag is measured in units of an error that the others gave.

        Returns
        -------
        Quantifier
            The calibrated quantifier itself.

        Examples
        --------
        >>> import histnetq as hq
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(2, size=400)
        >>> X = rng.normal(size=(400, 1)) + 2 * y[:, None]
        >>> held = hq.APP(20).draw(hq.Bags.from_labels(X[200:], y[200:]), 60, random_state=0)
        >>> q = hq.PACC(random_state=0).fit(X[:200], y[:200]).calibrate(held)
        >>> float(q.predict_interval(held, 0.8).contains(held.prevalences).mean()) > 0.7
        True
        """
        if not isinstance(bags, Bags):
            raise TypeError(f"bags: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        self._require_fitted()
        bags = bags.with_known_prevalences().with_classes(self.classes_)
        return self._calibrate_by(bags, self.predict(bags), random_state)

    def cross_calibrate(self, bags: Bags, *, folds: int = 10, random_state: int = 0) -> Self:
        """Fit to all of these bags, and calibrate by each as a model that was fitted without it estimates it.

        It is for few bags, of which none is to be given up for calibration. A copy of the quantifier is fitted for each
        fold, to the bags of the other folds. As these are fewer, intervals are a little too wide rather than narrow.

        Parameters
        ----------
        bags : Bags
            Bags of known proportions, or with labels, as the quantifier learns from. They should be as alike as can be
            to the bags to be estimated, and share no rows.
        folds : int, default=10
            In how many parts the bags are divided.
        random_state : int, default=0
            Seed of the folds.

        Returns
        -------
        Quantifier
            The fitted and calibrated quantifier itself.

        Examples
        --------
        >>> import histnetq as hq
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(2, size=800)
        >>> X = rng.normal(size=(800, 1)) + 2 * y[:, None]
        >>> bags = hq.Bags.from_labels(X, y, groups=np.arange(800) // 20)
        >>> q = hq.PACC(random_state=0).cross_calibrate(bags)
        >>> float(q.predict_interval(bags, 0.8).contains(bags.label_prevalences()).mean()) > 0.7
        True
        """
        if not isinstance(bags, Bags):
            raise TypeError(f"bags: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        bags = bags.with_known_prevalences()
        estimates = cross_estimates(self, bags, folds, random_state)
        self.fit(bags)
        return self._calibrate_by(bags, estimates, random_state)

    def _calibrate_by(self, bags: Bags, estimates: NDArray[np.float64], random_state: int) -> Self:
        """Learn from bags of known proportions and their estimates by models that have not seen them."""
        assert bags.prevalences is not None
        self.calibration_ = Calibration.of(bags.prevalences, estimates, bags.sizes, random_state)
        self.trust_ = Trust.of(bags, random_state)
        return self

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, method: str = "conformal", **options: Any
    ) -> Intervals:
        """Estimate with an interval for each class and a joint region for each bag.

        Conformal intervals hold the truth with probability `coverage`, whatever the quantifier, if the bags are
        exchangeable with the calibration bags; on average over such bags, not for each kind of bag.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; or arrays as in `predict`.
        coverage : float, default=0.9
            Probability, between 0 and 1, with which an interval is meant to hold the truth.
        method : {"conformal", "bayes", "bootstrap", "standard-errors"}, default="conformal"
            The first needs `calibrate`; the second and the third are for methods on posteriors (see `bayes_interval`
            and `bootstrap_interval` there); the last is for `EMNetQ`.
        **options : dict
            Options of the method, such as ``n_resamples`` of the bootstrap.

        Returns
        -------
        Intervals
            Its `estimates`, `lower` and `upper` have the shape that `predict` gives; its `region` is joint.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC(random_state=0).fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.predict_interval([[0.0], [1.0], [1.0], [1.0]], 0.5, method="bootstrap").contains([0.25, 0.75])
        array([ True,  True])
        """
        chosen = INTERVALS[check_choice("method", method, tuple(INTERVALS))]
        for name in options:
            check_choice(f"option of {method} intervals", name, chosen.options)
        if isinstance(X, BagSketch) and chosen.needs_rows:
            raise TypeError(f"X: expected rows, got a sketch, as {chosen.needs_rows}; pass the Bags themselves.")
        bags = X if isinstance(X, BagSketch) else self._bags_to_estimate(X)
        found = chosen.intervals(self, bags, coverage, **options)
        return found if self._are_several(X) else found.of_one()

    def trust(self, X: Any) -> pd.DataFrame:
        """Tell whether bags are mixes of the classes that the calibration bags are made of.

        Means, squares and products of features are compared with those of the classes. Bags that differ in their
        proportions alone are not doubted, whatever these are.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches, if they were made after `calibrate`; or arrays as in `predict`.

        Returns
        -------
        DataFrame
            One row per bag. `p_value` tells how often bags are as far from every mix of the classes by chance, NaN for
            texts; `small` tells that the bag is smaller than every calibration bag; `trust` is "ok" or what is doubted:
            "unusual", with the features that lie outside the range of training; "repeated rows", if all rows are equal
            and chance hardly explains it; "small"; and "unchecked" where there is no p-value. Estimates and intervals
            of bags that are not "ok" have no promise.

        Examples
        --------
        >>> import histnetq as hq
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(200, 1)), np.arange(200) % 2
        >>> q = hq.CC().fit(X, y).calibrate(hq.APP(20).draw(hq.Bags.from_labels(X, y), 100, random_state=0))
        >>> q.trust(X + 100)["trust"].tolist()
        ['unusual: feature 0 outside the range of training']
        """
        self._require_fitted()
        require_calibrated(self)
        if isinstance(X, BagSketch):
            self._require_own(X)
            own = X.maker.moments is not None and X.maker.moments == self.sketch_maker().moments
            found = self.trust_.judge(X.moments if own else None, X.totals, X.sizes, self.feature_names_)
            return found.set_index(np.asarray([0] if X.ids is None else X.ids))
        bags, moments = self._bags_to_estimate(X), self.trust_.moments
        sums = None if moments is None else moments.sums(bags)
        found = self.trust_.judge(sums, total_weights(bags), bags.sizes, self.feature_names_)
        return found.set_index(np.asarray(bags.ids))
