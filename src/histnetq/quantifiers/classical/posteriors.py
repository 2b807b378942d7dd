"""The base of classifier-based methods, which learn from cross-fitted posteriors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_seed, needs_double, used_rows
from histnetq.bags.classifier_rows import require_numbers
from histnetq.errors import InputTypeError
from histnetq.persistence.saving import Stored
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.classical.classifiers import DEFAULT, check_classifier, is_logistic, last_step, made
from histnetq.quantifiers.classical.cross_fitting import CrossFitted, check_cv, cross_fit, posteriors_of
from histnetq.quantifiers.classical.given_scores import column_order, given_posteriors, scored_bags, take_scores
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale
from histnetq.quantifiers.classical.stored_posteriors import StoredClassifier, StoredTraining
from histnetq.quantifiers.row_posteriors import confusions_of, log_likelihoods
from histnetq.simplex import Floats, Ints, check_estimates
from histnetq.sketches.posteriors import Corners, CountedCells, LogOddsCells, NearestPoints, SummedPosteriors
from histnetq.sketches.sketcher import Sketcher
from histnetq.training.supervision import labelled_rows
from histnetq.uncertainty.capabilities import HeldOutPosteriors, Quantify
from histnetq.uncertainty.intervals import Intervals

if TYPE_CHECKING:
    from typing_extensions import Self

    from histnetq.persistence.onnx_graphs import OnnxGraph
    from histnetq.sketches.sql.query import Logistic

_ROWS_AT_ONCE = 1 << 16


@dataclass(eq=False, repr=False, kw_only=True)
class PosteriorQuantifier(Quantifier):
    """Base of methods that learn from held-out posteriors of labelled rows, and estimate bags from posteriors.

    A method implements ``_learn``, which sets the arrays listed in ``stored``, and ``_quantify``.

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
    """

    classifier: Any = field(default=DEFAULT, kw_only=False)
    cv: int | float | None = 5
    random_state: int | None = None

    resamples: ClassVar[bool] = True
    reads: ClassVar[str] = "posteriors"  # or "mean", their mean in a bag, or "class", the assigned class of a row
    stored: ClassVar[tuple[Stored, ...]] = (
        StoredClassifier(),
        StoredTraining(
            training_posteriors_="posterior: rows classes",
            training_labels_="whole: rows",
            training_weights_="amount: rows?",
        ),
    )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of the classifier, such as ``classifier__C``. The parameters of the last
            step of a pipeline have such short names, too.

        Returns
        -------
        dict
            Names and values of parameters.

        Examples
        --------
        >>> from histnetq import EMQ
        >>> EMQ("forest").get_params()["classifier__min_samples_leaf"]
        1
        """
        params: dict[str, Any] = super().get_params(deep)
        if deep:
            _, classifier = last_step(made(self.classifier))
            known = classifier.get_params(deep=False) if hasattr(classifier, "get_params") else {}
            params = {**{f"classifier__{name}": value for name, value in known.items()}, **params}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, such as ``cv``, or ``classifier__C`` for a parameter of the classifier.

        Parameters
        ----------
        **params : dict
            Names and values of parameters. A name that a pipeline does not have is a parameter of its last step.

        Returns
        -------
        PosteriorQuantifier
            The quantifier itself.

        Examples
        --------
        >>> from histnetq import EMQ
        >>> EMQ().set_params(classifier__C=0.5).classifier[-1]
        LogisticRegression(C=0.5, max_iter=1000)
        """
        inner = {name: params.pop(name) for name in list(params) if name.startswith("classifier__")}
        super().set_params(**params)
        if inner:
            classifier = made(self.classifier)
            known, prefix = classifier.get_params(), last_step(classifier)[0]
            names = {name: name.removeprefix("classifier__") for name in inner}
            classifier.set_params(
                **{short if short in known else prefix + short: inner[name] for name, short in names.items()}
            )
            self.classifier = classifier
        return self

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
        PosteriorQuantifier
            The fitted quantifier itself.
        """
        return self.fit_crossed(self.cross_fit(X, y))

    def cross_fit(self, X: Any, y: Any = None) -> CrossFitted:
        """Fit only the classifier, so that several methods can learn from the same posteriors.

        Parameters
        ----------
        X : array of rows, or Bags
            Labelled rows, or bags whose rows are labelled.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        CrossFitted
            Held-out posteriors of the rows, for `fit_crossed`.

        Examples
        --------
        >>> from histnetq import EMQ, PACC
        >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 10), ["a", "a", "b", "b"] * 10
        >>> once = EMQ(random_state=0).cross_fit(X, y)
        >>> PACC().fit_crossed(once).predict(X).round(2)
        array([0.5, 0.5])
        """
        self._check_params()
        given = labelled_rows(X, y)
        if given.scores is not None:
            return take_scores(given)
        return cross_fit(self._base_classifier(given.rows), self.cv, self.random_state, given)

    def fit_crossed(self, crossed: CrossFitted) -> Self:
        """Learn from posteriors that `cross_fit` of any method returned.

        Parameters
        ----------
        crossed : CrossFitted
            Held-out posteriors of labelled rows, and their classifier.

        Returns
        -------
        PosteriorQuantifier
            The fitted quantifier itself.

        Examples
        --------
        >>> from histnetq import CC, PACC
        >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 10), ["a", "a", "b", "b"] * 10
        >>> CC().fit_crossed(PACC("bayes").cross_fit(X, y)).predict(X)
        array([0.5, 0.5])
        """
        self._check_params()
        source = crossed.source
        assert source.classes is not None
        self._learn_all(crossed.posteriors, crossed.labels, crossed.weights, source.classes)
        known = source.classes, tuple(source.rows.shape[1:]), source.feature_names, self.train_prevalences_
        self._learned_from(*known, needs_double(source.rows), source.scores is not None, source.text)
        self.classifier_: Any = crossed.classifier
        self.columns_: Ints | None = crossed.columns
        return self

    def fit_posteriors(self, posteriors: Any, y: ArrayLike | None = None, classes: Any = None) -> Self:
        """Learn from posteriors of a custom model for rows that it was not trained on.

        Parameters
        ----------
        posteriors : (n_rows, n_classes), or Bags
            Rows of probabilities; the columns of a data frame are matched by name. Or bags of such rows with labels,
            from `read_bags` with ``proba=``.
        y : (n_rows,), default=None
            The label of each row; None with bags.
        classes : sequence, default=None
            Names of the columns; None takes the sorted values of `y`.

        Returns
        -------
        PosteriorQuantifier
            The fitted quantifier itself. It then estimates bags of posteriors.

        Examples
        --------
        >>> from histnetq import PACC
        >>> P = np.array([[0.9, 0.1], [0.2, 0.8]] * 10)
        >>> PACC().fit_posteriors(P, [0, 1] * 10).predict_posteriors(P[:3]).round(2)
        array([0.67, 0.33])
        """
        self._check_params()
        return self.fit(scored_bags(posteriors, y, classes))

    def predict_posteriors(self, X: Any) -> Floats:
        """Estimate from posteriors.

        Parameters
        ----------
        X : Bags, list of arrays, or (n_rows, n_classes)
            Bags whose rows are posteriors; several bags as a list of arrays; or one bag of them as an array.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array
            The estimates, with columns in the order of `classes_`.

        Examples
        --------
        >>> from histnetq import PCC
        >>> PCC().fit_posteriors([[0.9, 0.1], [0.2, 0.8]], ["a", "b"]).predict_posteriors([[0.5, 0.5], [0.0, 1.0]])
        array([0.25, 0.75])
        """
        bags = self._as_bags(X, row_axes=1)
        p, index = given_posteriors(bags, len(self.classes_))
        names = bags.feature_names if bags.scores is None else [str(name) for name in bags.scores]
        p = p[:, column_order(names, self.classes_)]
        estimates = check_estimates(self._quantify(p, index, bags.offsets, bags.sized_weights()))
        return estimates if self._are_several(X, row_axes=1) else estimates[0]

    def bootstrap_interval(
        self, X: Any, coverage: float = 0.9, *, n_resamples: int = 200, random_state: int = 0
    ) -> Intervals:
        """Estimate with bootstrap intervals, from resamples of the rows of each bag and of the training posteriors.

        They need no calibration bags. They are intervals for the population that a bag was drawn from, so they are
        wider than the intervals of `predict_interval`, which are for the bag itself. They rely on the assumptions of
        the method, such as prior shift, and do not include the uncertainty of the classifier.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.
        coverage : float, default=0.9
            Probability, between 0 and 1, that an interval should contain the truth.
        n_resamples : int, default=200
            Number of resamples.
        random_state : int, default=0
            Seed of the draws.

        Returns
        -------
        Intervals
            Estimates with intervals and joint regions.

        Examples
        --------
        >>> from histnetq import PACC
        >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 10), ["a", "a", "b", "b"] * 10
        >>> PACC(random_state=0).fit(X, y).bootstrap_interval(X).contains([0.5, 0.5])
        array([ True,  True])
        """
        if not self.resamples:
            raise TypeError(
                f"bootstrap_interval: {type(self).__name__} takes too long to learn from every resample; "
                "use calibrate and predict_interval."
            )
        return self.predict_interval(
            X, coverage, method="bootstrap", n_resamples=n_resamples, random_state=random_state
        )

    def bayes_interval(
        self, X: Any, coverage: float = 0.9, *, target: str = "bag", prior: Any = 1.0, n_draws: int = 300,
        random_state: int | None = 0,
    ) -> Intervals:  # fmt: skip
        """Estimate with Bayesian intervals, from the posterior distribution of the number of rows of each class.

        They need no calibration bags. They assume prior shift, and use the held-out posteriors of the training rows.
        They include the uncertainty about the errors of the classifier, except that the classifier of all rows may be
        better or worse than the classifiers of the folds. `CC` and `ACC` use the assigned class of a row, and all other
        methods its posteriors. `coverage` is meant on average over the classes of a bag.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows. A row with the count k is k rows. Rows with survey weights
            together are as many as the effective size of the bag.
        coverage : float, default=0.9
            Probability, between 0 and 1, that an interval should contain the truth.
        target : {"bag", "population"}, default="bag"
            Whether intervals are for the proportions in the bag itself, or in the population that it was drawn from.
            The latter are wider.
        prior : float, or (n_classes,), default=1.0
            Concentration of the Dirichlet prior of the proportions; with 1, all proportions are equally likely.
        n_draws : int, default=300
            Number of draws of the labels that are kept.
        random_state : int, default=0
            Seed of the draws; None draws a new seed each time.

        Returns
        -------
        Intervals
            Estimates with intervals and joint regions.

        Examples
        --------
        >>> from histnetq import PACC
        >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 10), ["a", "a", "b", "b"] * 10
        >>> PACC(random_state=0).fit(X, y).bayes_interval(X).contains([0.5, 0.5])
        array([ True,  True])
        """
        options = {"target": target, "prior": prior, "n_draws": n_draws, "random_state": random_state}
        return self.predict_interval(X, coverage, method="bayes", **options)

    def _held_out_posteriors(self) -> HeldOutPosteriors | None:
        if not self.resamples:
            return None
        return HeldOutPosteriors(
            self.training_posteriors_,
            self.training_labels_,
            self.training_weights_,
            self.reads == "class",
            self.cv is not None and self.classifier_ is not None,
            self._bag_posteriors,
            self._quantify,
            self._relearned,
        )

    def _relearned(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> Quantify:
        """Fit a copy to posteriors of labelled rows."""
        twin = copy.copy(self)
        twin._learn(posteriors, labels, weights)
        return twin._quantify

    def _base_classifier(self, pool: Any) -> Any:
        named = self._has_named_classifier
        if named:
            require_numbers(pool)
        if named and (self.cv is None or pool.ndim == 1):
            wanted = "a fitted one with cv=None" if self.cv is None else "a pipeline that reads texts"
            kind = type(self).__name__
            raise TypeError(f"classifier: expected {wanted}, got {self.classifier!r}; pass it as {kind}(classifier).")
        return made(self.classifier)

    @property
    def _has_named_classifier(self) -> bool:
        return self.classifier is None or isinstance(self.classifier, str)

    def _reads_any_rows(self) -> bool:
        return self.classifier_ is not None and not self._has_named_classifier

    def _check_params(self) -> None:
        super()._check_params()
        check_classifier(self.classifier)
        check_cv(self.cv)
        check_seed(self.random_state)

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        """Learn from posteriors of labelled rows; nothing by default."""

    def _quantify(self, posteriors: Floats, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
        """Estimate bags of rows with these posteriors: (n_rows, n_classes) → (n_bags, n_classes).

        The sum of the weights of a bag is its size, as in `Bags.sized_weights`.
        """
        raise NotImplementedError

    def _normalised(self, p: Floats) -> Floats:
        """Scale the prevalences of each bag to the sum 1; a bag with zeros only gets the training prevalences."""
        p[p.sum(1) == 0] = self.train_prevalences_
        return p / p.sum(1, keepdims=True)

    def _sketcher(self) -> Sketcher:
        parts, n_classes = (self._bag_posteriors, self._quantify, self.training_posteriors_), len(self.classes_)
        if self.reads == "mean":
            return SummedPosteriors(*parts)
        if self.reads == "class":
            return CountedCells(*parts, Corners(n_classes))
        return CountedCells(*parts, LogOddsCells() if n_classes == 2 else self._nearest_points())

    def _sums_sketcher(
        self, name: str, values: Callable[[Floats], Floats], estimate: Callable[[Floats], Floats]
    ) -> Sketcher:
        """Return a sketcher that sums values of the posteriors over rows, and estimates from their means."""

        def bag_values(bags: Bags) -> tuple[Floats, Ints]:
            posteriors, index = self._bag_posteriors(bags)
            return values(posteriors), index

        sketcher = SummedPosteriors(bag_values, lambda means, *_: estimate(means), self.training_posteriors_)
        sketcher.name, sketcher.example = name, values(sketcher.example)
        return sketcher

    def _nearest_points(self) -> NearestPoints:
        # They are computed once, and kept together with the posteriors that they were computed from.
        known = self.__dict__.get("_nearest")
        if known is None or known[0] is not self.training_posteriors_:
            cells = NearestPoints(self.training_posteriors_, self.training_weights_)
            known = self._nearest = (self.training_posteriors_, cells)
        return known[1]

    def _predict(self, bags: Bags) -> Floats:
        p, index = self._bag_posteriors(bags)
        return self._quantify(p, index, bags.offsets, bags.sized_weights())

    def _bag_posteriors(self, bags: Bags) -> tuple[Floats, Ints]:
        """Return the posteriors of each row of the bags once, and the position of each entry among them."""
        if self.classifier_ is None:
            return given_posteriors(bags, len(self.classes_))
        assert self.columns_ is not None
        used, index = used_rows(bags.index, bags.rows.shape[0])
        chunks = np.split(used, range(_ROWS_AT_ONCE, len(used), _ROWS_AT_ONCE))
        n_classes = len(self.classes_)
        p = [posteriors_of(self.classifier_, bags.rows[chunk], self.columns_, n_classes) for chunk in chunks]
        return np.concatenate(p), index

    def _draw_onnx(self, graph: OnnxGraph) -> None:
        from histnetq.persistence.onnx_classifiers import draw_classifier

        if self.classifier_ is None or self.columns_ is None:
            got, remedy = "a model of given scores", "export the model that computes the scores"
            raise InputTypeError("to_onnx", "a model with a classifier", got, remedy)
        flat = graph.node("Flatten", "rows")
        found = draw_classifier(graph, flat, self.classifier_)
        n_classes = len(self.classes_)
        if list(self.columns_) != list(range(n_classes)):  # a class that the classifier never saw gets 0
            found = graph.node("MatMul", found, graph.constant(np.eye(n_classes)[list(self.columns_)]))
        graph.output(found, "posteriors", np.float64, ("n_rows", n_classes))

    def _logistic(self) -> Logistic | None:
        if self.classifier_ is None:
            return None
        from histnetq.sketches.sql.query import Logistic

        steps = getattr(self.classifier_, "steps", [("", self.classifier_)])
        last = steps[-1][1]
        one_by_one = is_logistic(self.classifier_) and len(last.classes_) > 2 and last.solver == "liblinear"
        if not is_logistic(self.classifier_) or one_by_one:
            expected = "score columns, or a multinomial logistic regression"
            remedy = "fit to score columns of the classifier"
            raise InputTypeError("to_sql", expected, type(last).__name__, remedy)
        scalings = [
            (step.mean_ if step.with_mean else np.zeros(n), step.scale_ if step.with_std else np.ones(n))
            for _, step in steps[:-1] for n in [step.n_features_in_]
        ]  # fmt: skip
        coefficients, intercepts = (np.asarray(values, np.float64) for values in (last.coef_, last.intercept_))
        assert self.columns_ is not None
        return Logistic(scalings, coefficients, intercepts, tuple(self.columns_.tolist()))

    def _log_likelihoods(self, bags: Bags) -> tuple[Floats, Ints]:
        p, index = self._bag_posteriors(bags)
        if self.resamples:
            labels, weights = self.training_labels_.astype(np.int64), self.training_weights_
            scales = fit_scales(self.training_posteriors_.astype(np.float64), labels, "bcts", weights)
            p = rescale(p, *scales)
        return log_likelihoods(p, self.train_prevalences_), index

    def _assigned(self, bags: Bags) -> tuple[Ints, Floats]:
        p, index = self._bag_posteriors(bags)
        known, labels = self.training_posteriors_, self.training_labels_.astype(np.int64)
        return p.argmax(1)[index], confusions_of(known, labels, self.training_weights_)

    def _has_confusions(self) -> bool:
        return self.resamples

    def _learn_all(self, posteriors: Floats, labels: Ints, weights: NDArray | None, classes: NDArray) -> None:
        prevalences = np.bincount(labels, weights, minlength=len(classes)).astype(float)
        self.train_prevalences_ = prevalences / prevalences.sum()  # some methods use it in `_learn`
        self._learn(posteriors, labels, weights)
        self.classes_ = classes
        if self.resamples:
            self.training_posteriors_, self.training_labels_ = posteriors.astype(np.float32), labels.astype(np.int32)
            self.training_weights_ = weights
