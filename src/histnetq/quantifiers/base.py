"""`Quantifier`, the base class and interface of all quantifiers."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.bags.classifier_rows import require_numbers
from histnetq.bags.same_features import require_features, require_range
from histnetq.bags.text_features import TextFeatures
from histnetq.errors import InputError, InputTypeError, Option, Way
from histnetq.metrics import ae
from histnetq.persistence.saving import Stored, save
from histnetq.quantifiers.row_posteriors import expected_performance, row_posteriors
from histnetq.simplex import Floats, check_estimates, check_prevalences
from histnetq.sketches.moments import Moments, total_weights
from histnetq.sketches.sketch import BagSketch, Maker
from histnetq.sketches.sketcher import NoSketcher, Sketcher, require_own
from histnetq.sketches.streams import sum_sketches
from histnetq.tables.columns import FeatureSpec
from histnetq.training.options import LearnedNothing, Training, TrainingInterrupted
from histnetq.uncertainty.capabilities import Capabilities, HeldOutPosteriors, PosteriorOfParts
from histnetq.uncertainty.conformal import Calibration, cross_estimates, not_calibrated
from histnetq.uncertainty.intervals import Intervals
from histnetq.uncertainty.methods import INTERVALS
from histnetq.uncertainty.trust import Trust

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self

    from histnetq.persistence.onnx_graphs import OnnxGraph
    from histnetq.sketches.sql.query import Logistic

    class BaseEstimator:
        """Typed stand-in: with scikit-learn's class, which has no types, mypy accepts any argument of a constructor."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
else:
    from sklearn.base import BaseEstimator

_OTHER_NAMES = {
    "quantify": "call predict, which corresponds to QuaPy's quantify",
    "aggregate": "call predict_posteriors of methods such as PACC, which corresponds to QuaPy's aggregate",
}


class Quantifier(BaseEstimator):
    """Base class of all quantifiers.

    A method implements ``_predict`` and `fit`, which ends with a call of ``_learned_from``. Optional features are
    objects: ``_sketcher()`` returns the `Sketcher` that summarises bags, ``stored`` lists the parts of a model
    directory, and ``capabilities()`` returns the data and callables that interval methods use. Parameters, cloning and
    printing come from scikit-learn.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Training prevalences of the classes.
    feature_names_ : list of str, or None
        Names of the training columns; None if they had no names.
    feature_names_in_ : (n_features,)
        The same names as an array, as in scikit-learn; absent if the columns had no names.
    n_features_in_ : int
        Number of features.
    calibration_ : Calibration, or None
        Errors on calibration bags, after `calibrate`.
    trust_ : Trust, or None
        Moments of the calibration bags, after `calibrate`.

    Examples
    --------
    >>> from histnetq import EMQ
    >>> issubclass(EMQ, Quantifier)
    True
    """

    stored: ClassVar[tuple[Stored, ...]] = ()
    renamed_params: ClassVar[dict[str, str]] = {}  # former names of parameters, for models that were saved with them
    training: Training

    classes_: NDArray
    input_shape_: tuple[int, ...]
    feature_names_: list[str] | None
    train_prevalences_: Floats
    double_: bool = False  # whether some feature needs float64
    scores_: bool = False  # whether the features are probabilities of the classes, in the order of the classes
    text_: TextFeatures | None = None
    calibration_: Calibration | None = None
    trust_: Trust | None = None
    network_: Any  # of a network, as the next two
    best_epoch_: int
    validation_loss_: float
    history_: Mapping[str, NDArray] = MappingProxyType({})  # losses by epoch, of a network
    interrupted_: str = ""  # the epoch at which training was interrupted
    learned_nothing_: str = ""  # a warning, if training did not beat the mean of the training bags
    provenance_: dict[str, Any]  # how the model was fitted, for `info` and reports

    @property
    def n_features_in_(self) -> int:
        """Number of features; absent before `fit`, and for texts."""
        if not self.__dict__.get("input_shape_"):
            raise AttributeError(f"{type(self).__name__} has no n_features_in_; call fit with rows of numbers first.")
        return int(np.prod(self.input_shape_))

    @property
    def feature_names_in_(self) -> NDArray:
        """Names of the columns, (n_features,); absent if the columns had no names."""
        if self.__dict__.get("feature_names_") is None:
            raise AttributeError(f"{type(self).__name__} has no feature_names_in_; call fit with named columns first.")
        return np.array(self.feature_names_, dtype=object)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from bags of known proportions, or from labelled rows.

        Parameters
        ----------
        X : Bags, or array of rows
            Bags with prevalences or labels, or rows with `y`.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        Quantifier
            The fitted quantifier itself.
        """
        raise NotImplementedError

    def predict(self, X: Any) -> Floats:
        """Estimate the prevalence of each class.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; several bags as a list with one array of rows per bag; or one bag as an array
            or a list of its rows.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array and its sketch
            The estimates, with columns in the order of `classes_`.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.predict([[0.0], [1.0], [1.0], [1.0]])
        array([0.25, 0.75])
        >>> q.predict([np.array([[0.0], [1.0]]), np.array([[1.0]])])
        array([[0.5, 0.5],
               [0. , 1. ]])
        """
        if isinstance(X, BagSketch):
            self._require_own(X)
            estimates = self._sketcher().estimate(*X.sized())
        else:
            estimates = self._predict(self._bags_to_estimate(X))
        check_estimates(estimates)
        return estimates if self._are_several(X) else estimates[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative mean absolute error of the estimates, so that higher is better.

        The signature suits scikit-learn's tools, such as ``cross_val_score`` and ``GridSearchCV`` on labelled rows,
        where the rows of each fold are one bag.

        Parameters
        ----------
        X : Bags, list of arrays, or array of rows
            Bags with known proportions or labels, or arrays with `y`.
        y : array, default=None
            The prevalences ``(n_bags, n_classes)`` of several bags, in the order of the classes of the bags, or of
            `classes_` if the bags have no class names. Or the labels of the rows of one bag. None for bags with known
            proportions.

        Returns
        -------
        float
            The negative mean of ``histnetq.evaluate(quantifier, bags)["ae"]``, which is 0 for estimates without error.
            The estimate of a class that was not in training counts as 0.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.score([[0.0], [1.0], [1.0], [1.0]], ["a", "a", "b", "b"])
        -0.25
        """
        self._require_fitted()
        if y is None:
            bags = self._bags_to_estimate(X).with_known_prevalences()
        elif self._are_several(X):
            bags = self._bags_to_estimate(X)
            bags = bags.replaced(classes=self.classes_ if bags.classes is None else bags.classes).with_prevalences(y)
        else:
            bags = Bags.from_labels(X, y)
        known, p_pred = with_all_classes(bags, self.classes_).prevalences, self.predict(bags)
        assert known is not None
        return -float(ae(known, add_columns(p_pred, known.shape[1])).mean())

    def predict_rows(self, X: Any, prevalences: ArrayLike | None = None) -> Floats:
        """Estimate the class probabilities of the rows, given the prevalences of their bag.

        Available for methods on posteriors, for `EMNetQ`, and for all methods that were fitted to scores. Posteriors
        are first rescaled by the training labels, like "bcts" of `EMQ`, and then shifted from the training prevalences
        to the prevalences of the bag.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.
        prevalences : (n_bags, n_classes) for bags, (n_classes,) for rows, default=None
            Prevalences of the classes in each bag; None uses the estimates.

        Returns
        -------
        (n_rows, n_classes)
            Probabilities of the classes; for bags one row per entry, in the order of ``bags.index``.

        Examples
        --------
        >>> from histnetq import PACC
        >>> P = np.repeat([[0.9, 0.1], [0.1, 0.9]], 10, axis=0)
        >>> q = PACC().fit_posteriors(P, [*"baaaaaaaaa", *"abbbbbbbbb"])
        >>> q.predict_rows([[0.9, 0.1]], prevalences=[0.1, 0.9]).round(2)
        array([[0.5, 0.5]])
        """
        bags = self._bags_to_estimate(X)
        if prevalences is None:
            p = check_estimates(self._predict(bags))
        else:
            given: Any = prevalences if self._are_several(X) else [prevalences]
            p = check_prevalences(given, len(bags), len(self.classes_))
        return row_posteriors(*self._log_likelihoods(bags), p, bags)

    def class_weights(self, X: Any) -> Floats:
        """Return the estimated prevalence of each class divided by its training prevalence.

        Under prior shift, training rows that are weighted by the ratio of their class resemble a sample of the bag.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; or arrays as in `predict`.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array and its sketch
            The ratios; infinite for a class that is in the estimate but was not in training.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.class_weights([[0.0], [1.0], [1.0], [1.0]])
        array([0.5, 1.5])
        """
        p = self.predict(X)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(p > 0, p / self.train_prevalences_, 0.0)

    def estimate_performance(self, X: Any) -> pd.DataFrame:
        """Estimate the accuracy of a classifier in bags without labels, if only their proportions have shifted.

        The classifier is the one whose posteriors or scores the method uses. It predicts the class with the highest
        posterior or score. The calculation uses its confusion matrix on labelled training rows and the estimated
        prevalences of the bag.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.

        Returns
        -------
        DataFrame
            One row per bag: `accuracy`, and `f1`, the mean over the classes that are expected in the bag or predicted
            for some of its rows.

        Examples
        --------
        >>> from histnetq import PACC
        >>> P = np.repeat([[0.9, 0.1], [0.1, 0.9]], 10, axis=0)
        >>> q = PACC().fit_posteriors(P, [*"baaaaaaaaa", *"abbbbbbbbb"])
        >>> q.estimate_performance(P).round(2)
           accuracy   f1
        0       0.9  0.9
        """
        bags = self._bags_to_estimate(X)
        if not self._has_confusions():
            kind = type(self).__name__
            raise TypeError(
                f"estimate_performance: {kind} has no confusion matrix of a classifier; use a method on posteriors "
                "such as EMQ, or fit to scores of labelled rows."
            )
        return self._performance(bags, check_estimates(self._predict(bags)))

    def _performance(self, bags: Bags, estimates: Floats) -> pd.DataFrame:
        assigned, confusions = self._assigned(bags)
        return expected_performance(assigned, confusions, estimates, bags)

    def sketch(self, X: Any) -> BagSketch:
        """Reduce rows to sketches of bags, which add up and which `predict`, `predict_interval` and `trust` accept.

        Parameters
        ----------
        X : Bags, or array of rows
            Any part of the rows of several bags, which are identified by their ids, or of one bag.

        Returns
        -------
        BagSketch
            One small array per bag.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.predict(q.sketch([[0.0], [1.0]]) + q.sketch([[1.0], [1.0]]))
        array([0.25, 0.75])
        """
        return self._sketch(self._bags_to_estimate(X), self.sketch_maker(), named=self._are_several(X))

    def predict_stream(self, chunks: Iterable[Any]) -> tuple[NDArray, Floats]:
        """Estimate bags from chunks of rows in any order, in one pass; only the sketches of bags stay in memory.

        Parameters
        ----------
        chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
            Some rows, and the bag id of each row. Integer weights are counts; other weights are survey weights.

        Returns
        -------
        ids : (n_bags,)
            Names of the bags, in order of first occurrence.
        prevalences : (n_bags, n_classes)
            Their estimates.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> ids, p = q.predict_stream([(["x", "y"], [[0.0], [1.0]]), (["x"], [[1.0]])])
        >>> ids.tolist(), p.tolist()
        (['x', 'y'], [[0.5, 0.5], [0.0, 1.0]])
        """
        found = self.sketch_stream(chunks)
        assert found.ids is not None
        return found.ids, self.predict(found)

    def sketch_stream(self, chunks: Iterable[Any], *, n_threads: int | None = None) -> BagSketch:
        """Sketch bags from chunks of rows, as in `predict_stream`.

        Parameters
        ----------
        chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
            Some rows, and the bag id of each row.
        n_threads : int, default=None
            Number of threads; None uses one for each core, at most 8.

        Returns
        -------
        BagSketch
            The sum of the sketches of all chunks.

        Examples
        --------
        >>> from histnetq import CC
        >>> q = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
        >>> q.sketch_stream([(["x", "y"], [[0.0], [1.0]]), (["x"], [[1.0]])]).n_rows
        array([2, 1])
        """
        maker = self.sketch_maker()

        def work(bags: Bags) -> BagSketch:
            self._require_same_features(bags, streamed=True)
            return self._sketch(bags, maker)

        return sum_sketches(chunks, work, n_threads)

    @property
    def sketch_kind(self) -> str | None:
        """ "exact" if sketches give the same estimates as rows, "binned" if nearly so, None without sketches."""
        return self._sketcher().kind

    def sketch_maker(self) -> Maker:
        """Return the origin that is stored in sketches of this model; raise an error if the model has no sketches.

        Returns
        -------
        Maker
            The method, a fingerprint of everything that affects the sketches, and the rule for merging sketches.

        Examples
        --------
        >>> from histnetq import CC
        >>> CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10).sketch_maker().quantifier
        'CC'
        """
        self._require_fitted()
        sketcher = self._sketcher()
        if isinstance(sketcher, NoSketcher):
            raise TypeError(f"sketch: {sketcher.reason}")
        fingerprint = hashlib.sha256(sketcher.identity().encode()).hexdigest()
        moments = self._moments()
        made = None if moments is None else moments.fingerprint()
        return Maker(type(self).__name__, fingerprint, sketcher.merge, made)

    def calibrate(self, bags: Bags, *, random_state: int = 0) -> Self:
        """Learn the errors of the estimates and the usual moments of rows from bags of known proportions.

        Afterwards `predict_interval` returns intervals, and `trust` marks bags that look different.

        Parameters
        ----------
        bags : Bags
            Bags of rows that were not used in training, because estimates of training rows are too good. They should
            resemble the bags to be estimated in their sizes and in the variation of their proportions.
        random_state : int, default=0
            Seed of the folds; the error of each bag is scaled by errors of the remaining folds.

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
        """Fit to all bags, and calibrate by cross-validation over the bags.

        Use it when there are too few bags to hold some out. For each fold, a copy of the quantifier is fitted to the
        bags of the remaining folds. These are fewer bags, so intervals are a little too wide rather than too narrow.

        Parameters
        ----------
        bags : Bags
            Bags that the quantifier can be fitted to, with known proportions or labels. They should resemble the bags
            to be estimated, and share no rows.
        folds : int, default=10
            Number of folds.
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
        estimates = cross_estimates(self._fit_predict, bags, folds, random_state)
        self.fit(bags)
        return self._calibrate_by(bags, estimates, random_state)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, method: str = "conformal", **options: Any
    ) -> Intervals:
        """Estimate with an interval for each class and a joint region for each bag.

        Conformal intervals contain the truth with probability `coverage`, for every quantifier, if the bags are
        exchangeable with the calibration bags. This holds on average over such bags, not for each kind of bag.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; or arrays as in `predict`.
        coverage : float, default=0.9
            Probability, between 0 and 1, that an interval contains the truth.
        method : {"conformal", "bayes", "bootstrap", "posterior", "standard-errors"}, default="conformal"
            "conformal" needs `calibrate`; "bayes" and "bootstrap" are for methods on posteriors (see their methods
            `bayes_interval` and `bootstrap_interval`); "posterior" is for `Pretrained`, and "standard-errors" for
            `EMNetQ`.
        **options : dict
            Options of the method, such as ``n_resamples`` of the bootstrap.

        Returns
        -------
        Intervals
            The arrays `estimates`, `lower` and `upper` in the shape that `predict` returns, and a joint `region`.

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
        bags, capabilities = X if isinstance(X, BagSketch) else self._bags_to_estimate(X), self.capabilities()
        if getattr(capabilities, chosen.needs) is None:
            raise chosen.refusal(capabilities.kind)
        found = chosen.intervals(capabilities, bags, coverage, **options)
        return found if self._are_several(X) else found.of_one()

    def capabilities(self) -> Capabilities:
        """Return the capabilities of this fitted model that interval methods and monitoring use.

        Returns
        -------
        Capabilities
            Data and callables; each is None if the model does not have it.

        Examples
        --------
        >>> from histnetq import CC
        >>> can = CC().fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10).capabilities()
        >>> can.posteriors is not None, can.calibration is not None
        (True, False)
        """
        self._require_fitted()
        kind, n_classes = type(self).__name__, len(self.classes_)
        performance = self._performance if self._has_confusions() else None
        own = self._held_out_posteriors(), self._standard_errors(), self._posterior(), performance
        return Capabilities(kind, n_classes, self.predict, self.calibration_, *own)

    def trust(self, X: Any) -> pd.DataFrame:
        """Test whether bags are mixtures of the classes in the calibration bags.

        The test compares the means of features, squares and products with their means in the classes. Bags that differ
        only in their proportions are trusted, whatever the proportions are.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches, if they were made after `calibrate`; or arrays as in `predict`.

        Returns
        -------
        DataFrame
            One row per bag. `p_value` is the probability that a mixture of the classes deviates at least as much by
            chance; it is NaN for texts. `small` is True if the bag is smaller than every calibration bag. `trust` is
            "ok" or a list of doubts: "unusual", with the features outside the range of training; "repeated rows", if
            all rows are equal and this is unlikely by chance; "small"; and "unchecked", if there is no p-value. There
            is no guarantee for estimates and intervals of bags that are not "ok".

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
        if self.trust_ is None:
            raise not_calibrated(type(self).__name__)
        if isinstance(X, BagSketch):
            self._require_own(X)
            own = X.maker.moments is not None and X.maker.moments == self.sketch_maker().moments
            found = self.trust_.judge(X.moments if own else None, X.totals, X.sizes, self.feature_names_)
            return found.set_index(np.asarray([0] if X.ids is None else X.ids))
        bags, moments = self._bags_to_estimate(X), self.trust_.moments
        sums = None if moments is None else moments.sums(bags)
        found = self.trust_.judge(sums, total_weights(bags), bags.sizes, self.feature_names_)
        return found.set_index(np.asarray(bags.ids))

    def reading(self) -> FeatureSpec:
        """Return a description of how to read the features from a table, whose columns are matched by name.

        Returns
        -------
        FeatureSpec
            The names of the features; whether they need double precision; their training means, which replace missing
            values; the smallest and largest allowed values; whether the features are scores, which are class
            probabilities from a custom classifier; and the column of weights, if the model was fitted with weights.

        Examples
        --------
        >>> import pandas as pd, histnetq as hq
        >>> rows = pd.DataFrame({"seconds": [1.7e9, 1.7e9 + 60] * 10})
        >>> hq.CC().fit(rows, ["a", "b"] * 10).reading()
        FeatureSpec(names=('seconds',), double=True, means=None, low=None, high=None, scores=False)
        """
        self._require_fitted()
        if len(self.input_shape_) > 1:
            expected, got = "a model of table columns", f"a model of images or arrays of shape {self.input_shape_}"
            by_option = Way("add ", Option("images", True), on=("command",))
            remedy = (Way("read images with read_images", on=("python", "service")), by_option)
            raise InputError("model", expected, got, remedy)
        if self.feature_names_ is None:
            raise ValueError(
                "model: expected column names, as tables are matched by name, got none; fit it to a table."
            )
        means = self.provenance_.get("feature_means")
        low, high = (None if end is None else tuple(end.tolist()) for end in self._range() or (None, None))
        known, double, text = None if means is None else tuple(means), self.double_, self.text_
        weight, kind = self.provenance_.get("weight"), self.provenance_.get("weight_kind")
        return FeatureSpec(tuple(self.feature_names_), double, known, low, high, self.scores_, text, weight, kind)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted quantifier to a directory that `histnetq.load` reads.

        Parameters
        ----------
        path : str or path
            The directory, which is created.
        overwrite : bool, default=False
            Whether to replace an existing model.

        Examples
        --------
        >>> import tempfile, histnetq as hq
        >>> place = tempfile.mkdtemp()
        >>> hq.MLPE().fit([[0.0], [1.0]], ["a", "b"]).save(place)
        >>> hq.load(place).classes_.tolist()
        ['a', 'b']
        """
        self._require_fitted()
        save(self, path, overwrite)

    def to_onnx(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the part of the model that reads single rows as an ONNX graph, for other programs and languages.

        The input `rows`, (n_rows, n_features), is of double precision. The output of methods with a built-in classifier
        is `posteriors`, (n_rows, n_classes), for `predict_posteriors`. The output of EMNetQ is `scores`. Other networks
        have the output `features` and, if the head has layer sizes and the pooling is a histogram, a mean or a maximum,
        `prevalences`: the estimate of all rows as one bag.

        Parameters
        ----------
        path : str or path
            The file, which ends in ``.onnx``.
        overwrite : bool, default=False
            Whether to replace an existing file.

        Examples
        --------
        >>> import tempfile, histnetq as hq
        >>> q = hq.PACC(random_state=0).fit([[0.0], [1.0]] * 10, ["a", "b"] * 10)
        >>> q.to_onnx(f"{tempfile.mkdtemp()}/rows.onnx")
        """
        from histnetq.persistence.onnx_graphs import OnnxGraph

        self._require_fitted()
        names = {"classes": self.classes_.tolist(), "features": self.feature_names_}
        about = {"method": type(self).__name__, **{name: json.dumps(value) for name, value in names.items()}}
        graph = OnnxGraph(self.input_shape_, about)
        self._draw_onnx(graph)
        graph.save(path, overwrite)

    def _draw_onnx(self, graph: OnnxGraph) -> None:
        """Draw the part that reads rows; methods that can do it override this."""
        expected = "a method with a built-in classifier, or a network"
        raise InputTypeError("to_onnx", expected, type(self).__name__, "save the model instead")

    def to_sql(
        self, table: str | Sequence[str], *, bag: str | Sequence[str] | None = None, dialect: str = "duckdb"
    ) -> str:
        """Return a query that sketches the bags of a table in a database, so that no row leaves the database.

        `BagSketch.from_sql` reads the result of the query. The model must read columns of scores (see `proba` of
        `read_bags`), or be a logistic regression on columns of numbers. CC, ACC, PCC, PACC, HDy, DyS, Pretrained and
        EMQ and KDEy of two classes can be computed in SQL.

        Parameters
        ----------
        table : str or sequence of str
            Name of the table, after the names of its catalog and schema if necessary: "schema.table", or a list if a
            name has dots.
        bag : str or sequence of str, default=None
            Columns that name the bag of each row; None takes all rows as one bag.
        dialect : {"duckdb", "postgres", "spark", "bigquery", "snowflake"}, default="duckdb"
            The SQL of the database.

        Returns
        -------
        str
            The query, in which all names are quoted.

        Examples
        --------
        >>> import histnetq as hq, pandas as pd
        >>> scored = pd.DataFrame({"p_a": [0.9, 0.2] * 10, "p_b": [0.1, 0.8] * 10, "y": ["a", "b"] * 10})
        >>> q = hq.CC().fit(hq.read_bags(scored, proba="p_*", label="y"))
        >>> "GROUP BY" in q.to_sql("events", bag="site", dialect="postgres")
        True
        """
        from histnetq.sketches.sql.query import Task, write_query

        maker, sketcher, reading = self.sketch_maker(), self._sketcher(), self.reading()
        rules = sketcher.cell_rules()
        if rules is None or reading.text is not None:
            raise self._not_in_sql("" if reading.text is None else " on texts")
        shape = sketcher.state_shape(self.input_shape_, len(self.classes_))
        task = Task(reading, self.classes_, rules, self._logistic(), self._moments(), maker, shape)
        return write_query(task, table, bag, dialect)

    def _logistic(self) -> Logistic | None:
        """Return how features become posteriors in SQL; None if they are posteriors."""
        raise self._not_in_sql()

    def _not_in_sql(self, more: str = "") -> InputTypeError:
        expected = "a method that SQL can compute: CC, ACC, PCC, PACC, HDy, DyS, Pretrained, or EMQ of two classes"
        remedy = "use Pretrained on scores, or sketch the rows"
        return InputTypeError("to_sql", expected, f"{type(self).__name__}{more}", remedy)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including parameters of `training` by names such as ``training__lr``.

        Parameters
        ----------
        **params : dict
            Names and values of parameters.

        Returns
        -------
        Quantifier
            The quantifier itself.
        """
        nested = {k.removeprefix("training__"): params.pop(k) for k in list(params) if k.startswith("training__")}
        super().set_params(**params)
        if nested:
            valid = self.training.get_params()
            for name in nested:
                if name not in valid:
                    raise ValueError(f"training: no parameter {name!r}, expected one of {', '.join(valid)}.")
            self.training = dataclasses.replace(self.training, **nested)
        return self

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report unknown names

        def __getattr__(self, name: str) -> Any:
            """Raise an error that gives the name in this library for a method name of QuaPy."""
            if name in _OTHER_NAMES:
                raise AttributeError(f"{type(self).__name__} has no {name!r}; {_OTHER_NAMES[name]}.")
            return self.__getattribute__(name)  # raises the usual error

    # Hooks that a method overrides.

    def _check_params(self) -> None:
        """Raise an error for wrong parameters; `fit` and `histnetq.load` call this before any other work.

        A class first calls its base class, and then checks the type, range and upper limit of its own parameters.
        """

    def _reads_any_rows(self) -> bool:
        """Return whether rows may have texts and missing values, because only a custom classifier reads them."""
        return False

    def _log_likelihoods(self, bags: Bags) -> tuple[Floats, NDArray[np.int64]]:
        """Return log-likelihoods of the classes for distinct rows, up to a constant per row, and each entry's row."""
        kind = type(self).__name__
        raise TypeError(f"predict_rows: {kind} gives no probabilities of rows; use EMNetQ, or a method such as EMQ.")

    def _assigned(self, bags: Bags) -> tuple[NDArray[np.int64], Floats]:
        """Return the class that the classifier predicts for each entry, and the classifier's confusion matrix."""
        raise NotImplementedError

    def _has_confusions(self) -> bool:
        """Return whether the confusion matrix of a classifier is known, so that `_assigned` works."""
        return False

    def _predict(self, bags: Bags) -> Floats:
        """Estimate bags that have been checked: (n_bags, n_classes)."""
        raise NotImplementedError

    def _held_out_posteriors(self) -> HeldOutPosteriors | None:
        """Return posteriors of training rows by classifiers that did not train on them, if the method has any."""
        return None

    def _standard_errors(self) -> Callable[[Bags], Floats] | None:
        """Return a function that computes standard errors of the estimates of bags, if the method has one."""
        return None

    def _posterior(self) -> PosteriorOfParts | None:
        """Return the method's own posterior distribution of the parts of bags, if it has one."""
        return None

    def _range(self) -> tuple[NDArray, NDArray] | None:
        """Return the lowest and highest value of each feature that the method can compute with; None if unlimited."""
        return None

    def _sketcher(self) -> Sketcher:
        """Return the object that makes sketches of bags and estimates from them."""
        kind = type(self).__name__
        return NoSketcher(f"{kind} needs all rows of a bag at once; use HistNetQ or PACC, whose sketches add up.")

    # Helpers that all methods share.

    def _learned_from(
        self,
        classes: NDArray,
        shape: tuple[int, ...],
        names: list[str] | None,
        prevalences: Floats,
        double: bool = False,
        scores: bool = False,
        text: TextFeatures | None = None,
    ) -> None:
        """Set the fitted attributes of every quantifier; drop calibration, trust and provenance of an earlier fit."""
        self.classes_, self.input_shape_, self.feature_names_ = classes, shape, names
        self.train_prevalences_, self.double_, self.scores_ = prevalences, double, scores
        self.calibration_, self.trust_, self.text_, self.provenance_ = None, None, text, {}

    def _fit_predict(self, bags: Bags, held_out: Bags) -> Floats:
        """Fit a copy to `bags` and estimate `held_out`; raise KeyboardInterrupt if training is interrupted."""
        twin = copy.copy(self)
        if "training" in twin.get_params(deep=False):
            twin.set_params(training__checkpoint=None)  # a checkpoint belongs to one run
        with warnings.catch_warnings():
            warnings.simplefilter("error", TrainingInterrupted)
            warnings.simplefilter("ignore", LearnedNothing)  # the fit to all bags gives this warning
            try:
                return twin.fit(bags).predict(held_out)
            except TrainingInterrupted:
                raise KeyboardInterrupt from None

    def _calibrate_by(self, bags: Bags, estimates: Floats, random_state: int) -> Self:
        """Learn calibration and trust from bags of known proportions and their held-out estimates."""
        assert bags.prevalences is not None
        self.calibration_ = Calibration.of(bags.prevalences, estimates, bags.sizes, random_state)
        self.trust_ = Trust.of(bags, random_state)
        return self

    def _sketch(self, bags: Bags, maker: Maker, named: bool = True) -> BagSketch:
        sketch, moments = self._sketcher().sketch(bags, maker, named), self._moments()
        return sketch if moments is None else dataclasses.replace(sketch, moments=moments.sums(bags))

    def _moments(self) -> Moments | None:
        """Return the moments of rows that trust is based on; None if the model has no trust in rows."""
        return None if self.trust_ is None else self.trust_.moments

    def _require_own(self, sketch: BagSketch) -> None:
        maker, moments = self.sketch_maker(), self._moments()
        shape = self._sketcher().state_shape(self.input_shape_, len(self.classes_))
        require_own(sketch, maker, shape, None if moments is None else moments.n_sums)

    def _bags_to_estimate(self, X: Any) -> Bags:
        """Convert bags, a list of arrays, or one bag as an array of rows to `Bags`, and check the features."""
        bags = self._as_bags(X)
        self._require_same_features(bags)
        return bags

    def _as_bags(self, X: Any, row_axes: int | None = None) -> Bags:
        """Convert bags, a list of arrays, or one bag as an array to `Bags`; raise an error if there are no bags."""
        self._require_fitted()
        if isinstance(X, BagSketch):
            raise TypeError("X: expected rows, got a sketch without rows; pass the Bags themselves.")
        if not isinstance(X, Bags):
            return Bags.from_arrays(X) if self._are_several(X, row_axes) else Bags(X)
        if len(X) == 0:
            raise ValueError("X: expected at least one bag, got none; check how the bags were selected.")
        return X

    def _are_several(self, X: Any, row_axes: int | None = None) -> bool:
        """Return whether `X` is several bags rather than one bag given as an array or a list of rows.

        A bag has one axis more than a row. `row_axes` is the number of axes of a row; None uses the axes in training.
        """
        if isinstance(X, BagSketch):
            return X.ids is not None
        if not isinstance(X, list | tuple) or len(X) == 0 or isinstance(X[0], Bags):
            return isinstance(X, Bags)
        try:
            n_axes = np.ndim(X[0])
        except ValueError:  # rows of different lengths; making the bags raises the error
            return True
        return bool(n_axes == 1 + (len(self.input_shape_) if row_axes is None else row_axes))

    def _require_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted; call fit first, or load a saved model.")

    def _require_same_features(self, bags: Bags, streamed: bool = False) -> None:
        if not self._reads_any_rows():
            require_numbers(bags.rows)
        require_features(bags, self.input_shape_, self.feature_names_, self.text_)
        found = self._range()
        if found is not None:
            require_range(bags, *found, numbered=not streamed)
