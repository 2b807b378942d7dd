"""The base of classical quantifiers: cross-fitted posteriors to learn from, one posterior per pool row to predict."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils.validation import has_fit_parameter

from histnetq.data.bags import Bags
from histnetq.data.checks import check_fraction, check_whole, column_names, encode_labels, shown, used_rows
from histnetq.quantifiers.binning import BinnedPosteriors
from histnetq.quantifiers.saving import dump_estimator, load_estimator
from histnetq.uncertainty.conformal import Intervals, from_resamples

__all__ = ["ClassifierQuantifier", "bag_means", "bag_sums", "labelled_rows", "with_classifier"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROWS_AT_ONCE = 1 << 16
_TRAINING = ("training_posteriors_", "training_labels_", "training_weights_")  # for resamples


class ClassifierQuantifier(BinnedPosteriors):
    """Base: learn from posteriors of labelled rows that the classifier was not trained on, predict from posteriors.

    Parameters
    ----------
    classifier : scikit-learn classifier with `predict_proba`, optional
        Cloned, never fitted in place (but for ``cv=None``). Default: logistic regression.
    cv : int, float or None
        Folds of cross-fitting; or the fraction of rows held out; or None for a classifier that is already fitted, and
        `fit` gets validation data.
    random_state : int, optional
        Of the folds.
    """

    classifier: Any
    cv: int | float | None
    random_state: int | None
    classifier_: Any
    resamples: ClassVar[bool] = True
    training_labels_: NDArray[np.int32]

    def set_params(self, **params: Any) -> ClassifierQuantifier:
        """Set parameters; those of the classifier, the default one too, are reached as ``classifier__C`` and so on."""
        if params.get("classifier", self.classifier) is None:
            params.pop("classifier", None)
            self.classifier = None
            with_classifier(self, params)
        super().set_params(**params)
        return self

    def fit(self, X: Any, y: Any = None) -> ClassifierQuantifier:
        """Learn from labelled rows.

        Parameters
        ----------
        X : rows, or Bags whose rows are labelled
        y : labels of the rows; None with Bags
        """
        self._check()
        given = labelled_rows(X, y)
        assert given.classes is not None
        assert given.labels is not None
        kept = given.labels[given.index] >= 0
        entries = given.index[kept]
        labels, weights = given.labels[entries], None if given.weights is None else given.weights[kept]
        classifier, posteriors, judged = self._cross_fit(given.rows, entries, labels, weights, given.classes)
        self._learn_all(posteriors, labels[judged], None if weights is None else weights[judged], given.classes)
        self.classifier_ = classifier
        self.input_shape_, self.feature_names_ = tuple(given.rows.shape[1:]), given.feature_names
        return self

    def fit_posteriors(self, posteriors: ArrayLike, y: ArrayLike, classes: Any = None) -> ClassifierQuantifier:
        """Learn from posteriors ``(n_rows, n_classes)`` of a model of your own on rows it was not trained on.

        `classes` names the columns; default: the sorted values of `y`. Predict with `predict_posteriors`.
        """
        self._check()
        p = _check_posteriors(np.asarray(posteriors, dtype=np.float64), None)
        labels, names = encode_labels(y, classes, len(p))
        if len(names) != p.shape[1]:
            raise ValueError(
                f"posteriors: expected a column for each of the {len(names)} classes, got {p.shape[1]}; pass classes=."
            )
        p = p[:, _column_order(column_names(posteriors), names)]
        self._learn_all(p, labels, None, names)
        self.classifier_ = None
        self.input_shape_, self.feature_names_ = (p.shape[1],), None
        return self

    def predict_posteriors(self, X: Any) -> Floats:
        """Estimate from posteriors: Bags whose rows are posteriors, or one bag of them as an array."""
        bags = self._bags_to_estimate(X)
        used, index = used_rows(bags.index, bags.rows.shape[0])
        rows = bags.rows if len(used) == bags.rows.shape[0] else bags.rows[used]
        p = _check_posteriors(np.asarray(rows, dtype=np.float64), len(self.classes_))
        p = p[:, _column_order(bags.feature_names, self.classes_)]
        estimates = self._quantify(p, index, bags.offsets, bags.weights)
        return estimates if isinstance(X, Bags) else estimates[0]

    def bootstrap_interval(
        self, X: Any, coverage: float = 0.9, *, n_resamples: int = 200, random_state: int = 0
    ) -> Intervals:
        """Estimate with intervals from resamples of each bag's rows and of the posteriors learned from.

        They need no calibration bags. They are about the population that a bag was drawn from, hence wider than those
        of `predict_interval`, which are about the bag itself. They rest on what the method assumes of the bags (such as
        prior shift), and do not see that the classifier might have been another.

        Parameters
        ----------
        X : Bags, or one bag as an array of rows
        coverage : float between 0 and 1
        n_resamples : int
        random_state : int
        """
        if not self.resamples:
            raise TypeError(
                f"bootstrap_interval: {type(self).__name__} takes too long to learn from every resample; "
                "use calibrate and predict_interval."
            )
        coverage, n_resamples = check_fraction("coverage", coverage), check_whole("n_resamples", n_resamples)
        bags = self._bags_to_estimate(X)
        self._require_same_features(bags)
        p, index = self._bag_posteriors(bags)
        rng, sizes, starts = np.random.default_rng(random_state), bags.sizes, np.repeat(bags.offsets[:-1], bags.sizes)
        resampled = np.empty((n_resamples, len(bags), len(self.classes_)))
        for estimates in resampled:
            drawn = starts + (rng.random(len(starts)) * np.repeat(sizes, sizes)).astype(np.int64)
            weights = None if bags.weights is None else bags.weights[drawn]
            estimates[:] = self._relearned(rng)._quantify(p, index[drawn], bags.offsets, weights)
        estimates = self._quantify(p, index, bags.offsets, bags.weights)
        found = from_resamples(estimates, resampled, sizes, coverage)
        return found if isinstance(X, Bags) else found.of_one()

    def _relearned(self, rng: np.random.Generator) -> ClassifierQuantifier:
        """The same, learned from as many rows of each class, drawn with replacement."""
        labels = self.training_labels_
        order = np.argsort(labels, kind="stable")
        counts = np.bincount(labels, minlength=len(self.classes_))
        first = np.repeat(np.cumsum(counts) - counts, counts)
        drawn = order[first + (rng.random(len(labels)) * np.repeat(counts, counts)).astype(np.int64)]
        again = copy.copy(self)
        posteriors, weights = self.training_posteriors_[drawn].astype(np.float64), getattr(self, _TRAINING[2], None)
        again._learn(posteriors, labels[drawn], None if weights is None else weights[drawn])
        return again

    def _predict(self, bags: Bags) -> Floats:
        p, index = self._bag_posteriors(bags)
        return self._quantify(p, index, bags.offsets, bags.weights)

    def _bag_posteriors(self, bags: Bags) -> tuple[Floats, Ints]:
        if self.classifier_ is None:
            raise ValueError("predict: this quantifier was fitted on posteriors; use predict_posteriors.")
        used, index = used_rows(bags.index, bags.rows.shape[0])
        chunks = np.split(used, range(_ROWS_AT_ONCE, len(used), _ROWS_AT_ONCE))
        p = np.concatenate([self._posteriors(self.classifier_, bags.rows[chunk], self.classes_) for chunk in chunks])
        return p, index

    def _check(self) -> None:
        """Refuse wrong parameters, before any work."""

    def _learn(self, posteriors: Floats, labels: Ints, weights: NDArray | None) -> None:
        """Learn from posteriors of labelled rows; nothing by default."""

    def _learn_all(self, posteriors: Floats, labels: Ints, weights: NDArray | None, classes: NDArray) -> None:
        prevalences = np.bincount(labels, weights, minlength=len(classes)).astype(float)
        self.train_prevalences_ = prevalences / prevalences.sum()
        self._learn(posteriors, labels, weights)
        self._forget_calibration()
        self.classes_ = classes
        for name in _TRAINING:
            self.__dict__.pop(name, None)
        if self.resamples:
            self.training_posteriors_, self.training_labels_ = posteriors.astype(np.float32), labels.astype(np.int32)
            if weights is not None:
                self.training_weights_ = weights

    def _cross_fit(
        self, pool: Any, entries: Ints, labels: Ints, weights: NDArray | None, classes: NDArray
    ) -> tuple[Any, Floats, NDArray]:
        """A classifier fitted on all entries, posteriors of some from one that has not seen them, and which entries."""
        base = _default_classifier() if self.classifier is None else self.classifier
        if self.classifier is None and (self.cv is None or pool.ndim == 1):
            wanted = "a fitted one with cv=None" if self.cv is None else "a pipeline that reads texts"
            raise TypeError(f"classifier: expected {wanted}, got None; pass it as {type(self).__name__}(classifier).")
        if self.cv is None:
            return base, self._posteriors(base, pool[entries], classes), np.arange(len(labels))
        p, judged = np.zeros((len(labels), len(classes))), np.zeros(len(labels), bool)
        # Rows are told apart, not entries: a row in several bags must not be learned from and judged.
        rows, first, place = np.unique(entries, return_index=True, return_inverse=True)
        for learned_rows, held_rows in _folds(self.cv, labels[first], self.random_state):
            learned, held = (np.flatnonzero(_members(part, len(rows))[place]) for part in (learned_rows, held_rows))
            model = _fit(clone(base), pool[entries[learned]], labels[learned], weights, learned)
            p[held], judged[held] = self._posteriors(model, pool[entries[held]], classes), True
        whole = _fit(clone(base), pool[entries], labels, weights, slice(None))
        return whole, p[judged], np.flatnonzero(judged)

    def _posteriors(self, classifier: Any, rows: Any, classes: NDArray) -> Floats:
        """Posteriors in columns by class code; a class that the classifier never saw gets 0."""
        if not hasattr(classifier, "predict_proba"):
            raise TypeError(
                f"classifier: expected one with predict_proba, got {type(classifier).__name__}; "
                "wrap it in sklearn's CalibratedClassifierCV."
            )
        p = classifier.predict_proba(_flat(rows))
        full = np.zeros((len(p), len(classes)))
        codes = np.asarray(classifier.classes_) if self.cv is not None else _codes(classifier.classes_, classes)
        full[:, codes.astype(np.int64)] = p
        return full

    def _weights(self) -> dict[str, NDArray]:
        arrays = self._arrays() | {name[:-1]: array for name, array in vars(self).items() if name in _TRAINING}
        if self.classifier_ is not None:
            arrays["classifier"] = np.frombuffer(dump_estimator(self.classifier_), np.uint8)
        return arrays

    def _arrays(self) -> dict[str, NDArray]:
        """What `_learn` learned, by attribute name without the final underscore."""
        return {}

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        self._restore_classifier(weights)
        for name, array in weights.items():
            setattr(self, f"{name}_", array)

    def _restore_classifier(self, weights: dict[str, NDArray]) -> None:
        stored = weights.pop("classifier", None)
        self.classifier_ = None if stored is None else load_estimator(stored.tobytes())


def with_classifier(quantifier: Any, names: Iterable[str]) -> Any:
    """Put in the default classifier, in place, if none is set and `names` has parameters of it.

    Examples
    --------
    >>> from histnetq import EMQ
    >>> with_classifier(EMQ(), ["classifier__C"]).classifier
    LogisticRegression(max_iter=1000)
    """
    unset = quantifier.get_params(deep=False).get("classifier", False) is None
    if unset and any(name.startswith("classifier__") for name in names):
        quantifier.classifier = _default_classifier()
    return quantifier


def _default_classifier() -> LogisticRegression:
    return LogisticRegression(max_iter=1000)


def bag_means(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Weighted mean of the values of each bag's rows: (n_rows, k) → (n_bags, k).

    Examples
    --------
    >>> bag_means(np.array([[1.0], [3.0]]), np.array([0, 1, 1]), np.array([0, 2, 3]), None)
    array([[2.],
           [3.]])
    """
    totals = np.diff(offsets) if weights is None else np.add.reduceat(weights.astype(np.float64), offsets[:-1])
    return bag_sums(values, index, offsets, weights) / totals[:, None]


def bag_sums(values: NDArray, index: Ints, offsets: Ints, weights: NDArray | None) -> Floats:
    """Weighted sum of the values of each bag's rows: (n_rows, k) → (n_bags, k)."""
    w = np.ones(len(index)) if weights is None else weights.astype(np.float64)
    return sparse.csr_matrix((w, index, offsets), shape=(len(offsets) - 1, len(values))) @ values


def labelled_rows(X: Any, y: Any) -> Bags:
    """Bags with labels from ``fit(X, y)`` or ``fit(bags)``."""
    if not isinstance(X, Bags):
        if y is None:
            raise TypeError(
                "y: expected a label for each row of X, got None; this quantifier learns from labelled rows."
            )
        return Bags.from_labels(X, y)
    if y is not None or X.labels is None or X.classes is None:
        raise ValueError(
            "bags: this quantifier learns from labelled rows, got bags of known proportions; use fit(X, y), Bags with "
            "labels, or HistNetQ, which learns from proportions."
        )
    return X


def _check_posteriors(p: Floats, n_classes: int | None) -> Floats:
    if p.ndim != 2 or (n_classes is not None and p.shape[1] != n_classes):
        raise ValueError(f"posteriors: expected shape (n_rows, {n_classes or 'n_classes'}), got {p.shape}.")
    away = np.abs(p.sum(1) - 1)
    if not np.isfinite(p).all() or (p < 0).any() or (away > 1e-3).any():
        raise ValueError("posteriors: expected rows of probabilities that sum to 1; apply a softmax to scores first.")
    return p if away.max(initial=0) < 1e-12 else p / p.sum(1, keepdims=True)


def _column_order(names: list[str] | None, classes: NDArray) -> Any:
    """Which column of named posteriors belongs to each class; without names, or with 0, 1, …, as they stand."""
    wanted = [str(c) for c in classes]
    if names is None or names == wanted or names == [str(j) for j in range(len(classes))]:
        return slice(None)
    if sorted(names) != sorted(wanted):
        raise ValueError(f"posteriors: expected the columns {wanted}, got {names}; rename them.")
    return [names.index(name) for name in wanted]


def _codes(names: Any, classes: NDArray) -> Ints:
    """Class codes of the columns of a classifier that was fitted elsewhere, on names of the classes or on codes."""
    place = {name: j for j, name in enumerate(classes.tolist())}
    listed = np.asarray(names).tolist()
    if all(name in place for name in listed):
        return np.array([place[name] for name in listed], np.int64)
    if listed == list(range(len(classes))):
        return np.arange(len(classes))
    unknown = next(name for name in listed if name not in place)
    raise ValueError(
        f"classifier: it was fitted on a class {unknown!r} that is not among {shown(classes)}; "
        "fit it on the same class names."
    )


def _members(chosen: NDArray, n: int) -> NDArray[np.bool_]:
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return mask


def _folds(cv: int | float, labels: Ints, seed: int | None) -> Any:
    seed = 0 if seed is None else seed
    if isinstance(cv, bool) or not isinstance(cv, Real):
        raise TypeError(f"cv: expected a number of folds, a fraction between 0 and 1, or None, got {cv!r}.")
    counts = np.bincount(labels)
    rare = counts[counts > 0].min()
    if rare < 2:
        raise ValueError(
            f"y: expected at least 2 rows of each class for cross-fitting, got {rare} of one; add rows or use cv=None."
        )
    if isinstance(cv, float):
        if not 0 < cv < 1:
            raise ValueError(f"cv: expected a number of folds, a fraction between 0 and 1, or None, got {cv!r}.")
        return StratifiedShuffleSplit(1, test_size=cv, random_state=seed).split(np.zeros(len(labels)), labels)
    if cv < 2:
        raise ValueError(f"cv: expected at least 2 folds, a fraction between 0 and 1, or None, got {cv!r}.")
    folds = StratifiedKFold(min(cv, int(rare)), shuffle=True, random_state=seed)
    return folds.split(np.zeros(len(labels)), labels)


def _fit(model: Any, rows: Any, labels: Ints, weights: NDArray | None, chosen: Any) -> Any:
    if weights is None:
        return model.fit(_flat(rows), labels)
    steps = getattr(model, "steps", None)
    name = "sample_weight" if steps is None else f"{steps[-1][0]}__sample_weight"
    if not has_fit_parameter(model if steps is None else steps[-1][1], "sample_weight"):
        raise TypeError(
            f"classifier: expected one whose fit takes sample_weight, as the rows have weights, got {model!r}; "
            "choose another classifier or drop the weights."
        )
    return model.fit(_flat(rows), labels, **{name: weights[chosen]})


def _flat(rows: Any) -> Any:
    """Rows as a classifier takes them: sparse matrices and texts as they are, images as vectors."""
    return rows if sparse.issparse(rows) or rows.ndim == 1 else rows.reshape(len(rows), -1)
