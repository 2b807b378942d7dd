"""Posteriors of labelled rows from a classifier that was not trained on them, by cross-fitting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from threading import Lock
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from histnetq.bags.bags import Bags
from histnetq.bags.checks import shown
from histnetq.bags.classifier_rows import ClassifierRows
from histnetq.bags.limits import brief
from histnetq.bags.shared_rows import same_rows
from histnetq.errors import InputError, Option, Way
from histnetq.kernels.cores import count_cores
from histnetq.quantifiers.classical.classifiers import is_logistic, last_step, prepared, shares_cores
from histnetq.quantifiers.classical.posterior_checks import check_posteriors
from histnetq.simplex import Floats, Ints

CV = int | float | None
# Classifiers are fitted in threads if the rows have this many bytes. Smaller fits end before threads have started (and
# BLAS uses one thread for them). Larger fits hold one or two copies of the rows, so that several would need too much.
_SIDE_BY_SIDE = range(1 << 16, 1 << 30)
_MOST_FOLDS = 1_000_000
_MANY_COPIES = 0.1  # fraction of rows
_one_limit = Lock()


@dataclass(frozen=True)
class CrossFitted:
    """Posteriors of labelled rows from classifiers that were not trained on them, and the final classifier.

    Attributes
    ----------
    classifier : classifier or None
        The classifier, fitted to all rows, or as it was given with ``cv=None``; None if the rows are posteriors.
    columns : (n_columns,) or None
        Class code of each column of the classifier's posteriors.
    posteriors : (n_held_out, n_classes)
        Held-out posteriors of the rows.
    labels : (n_held_out,)
        Class codes of these rows.
    weights : (n_held_out,) or None
        Weights of these rows.
    source : Bags
        The training data.
    """

    classifier: Any
    columns: Ints | None
    posteriors: Floats
    labels: Ints
    weights: NDArray | None
    source: Bags


def cross_fit(base: Any, cv: CV, random_state: int | None, given: Bags) -> CrossFitted:
    """Cross-fit clones of a classifier on the labelled rows of bags, and fit one clone to all of them.

    If `cv` is None, `base` is fitted already and is used as it is. The seed is of the split, and of a classifier that
    has none. Rows without a label, which have the code -1, are ignored.
    """
    assert given.classes is not None
    entries, labels, weights = entries_with_labels(given)
    pool, classes = given.rows, given.classes
    if cv is None:
        columns = columns_of(base, cv, classes)
        posteriors = posteriors_of(base, pool[entries], columns, len(classes))
        return CrossFitted(base, columns, posteriors, labels, weights, given)
    base = prepared(base, pool, random_state)
    p = np.zeros((len(labels), len(classes)))
    # Folds divide rows, not entries: a row in several bags, or a copy, must not be both trained on and held out.
    rows, copied = same_rows(given.drawn(entries, np.array([0, len(entries)]), None, None))
    if copied > _MANY_COPIES:
        warnings.warn(
            f"y: {copied:.0%} of the labelled rows are copies of other rows, which are kept in the same fold; drop the "
            "copies, or pass their numbers as counts, as Bayesian intervals and trust take each copy for another row.",
            UserWarning,
            stacklevel=4,
        )
    _, first, place = np.unique(rows, return_index=True, return_inverse=True)
    folds = [np.isin(place, held_rows) for _, held_rows in _folds(cv, labels[first], classes, random_state)]

    names = np.array(given.feature_names, object) if given.feature_names and _selects_columns(base) else None

    def learn(held: NDArray[np.bool_]) -> Any:
        kept = ~held
        rows = _named(_flat(pool[entries[kept]]), names)
        return _fit(clone(base), rows, labels[kept], None if weights is None else weights[kept])

    def score(held: NDArray[np.bool_]) -> None:
        model = learn(held)
        p[held] = posteriors_of(model, pool[entries[held]], columns_of(model, cv, classes), len(classes))

    fits = [*(partial(score, held) for held in folds), partial(learn, np.zeros(len(labels), bool))]
    n_bytes = (pool.data if sparse.issparse(pool) else pool).nbytes * len(entries) // pool.shape[0]
    in_threads = shares_cores(base) and n_bytes in _SIDE_BY_SIDE
    *_, whole = _side_by_side(fits) if in_threads else [fit() for fit in fits]
    scored = np.any(folds, axis=0)
    w = None if weights is None else weights[scored]
    return CrossFitted(whole, columns_of(whole, cv, classes), p[scored], labels[scored], w, given)


def check_cv(cv: Any) -> None:
    """Refuse anything but a number of folds, a fraction of rows to hold out, or None."""
    if cv is None:
        return
    if isinstance(cv, bool) or not isinstance(cv, Real):
        raise TypeError(f"cv: expected a number of folds, a fraction between 0 and 1, or None, got {brief(cv)}.")
    if not isinstance(cv, Integral) and not 0 < float(cv) < 1:
        raise ValueError(f"cv: expected a number of folds, a fraction between 0 and 1, or None, got {cv!r}.")
    if isinstance(cv, Integral) and cv < 2:
        raise ValueError(f"cv: expected at least 2 folds, a fraction between 0 and 1, or None, got {cv!r}.")
    if isinstance(cv, Integral) and int(cv) > _MOST_FOLDS:
        raise ValueError(f"cv: expected at most {_MOST_FOLDS:,} folds, got {brief(cv)}; lower it.")


def entries_with_labels(given: Bags) -> tuple[Ints, Ints, NDArray | None]:
    """Return the rows, class codes and weights of the entries with a label, whose code is not -1."""
    assert given.labels is not None
    kept = given.labels[given.index] >= 0
    entries = given.index[kept]
    return entries, given.labels[entries], _weights_of_one_sample(given, kept)


def _side_by_side(fits: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run fits in threads and return their results; BLAS uses one thread in each, so that rounding is reproducible."""
    # The limit is for the whole process: if two overlapped, the process would keep it.
    with _one_limit, threadpool_limits(1, "blas"):
        return Parallel(n_jobs=count_cores(), backend="threading")(delayed(fit)() for fit in fits)


def _weights_of_one_sample(bags: Bags, kept: NDArray[np.bool_]) -> NDArray | None:
    """Return the weights of these entries, scaled to their size: the sum of the weights matters to classifiers."""
    if bags.weights is None:
        return None
    index, weights = bags.index[kept], bags.weights[kept]
    return bags.drawn(index, np.array([0, len(index)]), weights, None).sized_weights()


def columns_of(classifier: Any, cv: CV, classes: NDArray) -> Ints:
    """Return the class code of each column of a classifier, which may have been fitted elsewhere on names or codes."""
    if not hasattr(classifier, "predict_proba"):
        raise TypeError(
            f"classifier: expected one with predict_proba, got {type(classifier).__name__}; "
            "wrap it in sklearn's CalibratedClassifierCV."
        )
    listed, place = np.asarray(classifier.classes_).tolist(), {name: j for j, name in enumerate(classes.tolist())}
    if cv is not None or (listed == list(range(len(classes))) and not all(name in place for name in listed)):
        return np.array(listed, np.int64)
    unknown = [name for name in listed if name not in place]
    if unknown:
        raise ValueError(
            f"classifier: it was fitted on a class {unknown[0]!r} that is not among {shown(classes)}; "
            "fit it on the same class names."
        )
    return np.array([place[name] for name in listed], np.int64)


def posteriors_of(classifier: Any, rows: Any, columns: Ints, n_classes: int) -> Floats:
    """Return checked posteriors with one column per class code; a class that the classifier never saw gets 0."""
    if is_logistic(classifier) and isinstance(rows, np.ndarray) and rows.dtype == np.float32:
        # Single precision would lose digits of small posteriors, and depend on the order of adding.
        rows = rows.astype(np.float64)
    p = np.asarray(classifier.predict_proba(_named(_flat(rows), getattr(classifier, "feature_names_in_", None))))
    if p.shape != (rows.shape[0], len(columns)):
        raise ValueError(
            f"classifier: returned probabilities of shape {p.shape}, expected {(rows.shape[0], len(columns))}, "
            "one row per example and one column per class; check the classifier."
        )
    full = np.zeros((len(p), n_classes))
    full[:, columns] = p
    return check_posteriors(full, n_classes, of_classifier=True)


def _named(rows: Any, names: NDArray | None) -> Any:
    """Return rows as a data frame if the classifier was fitted to one, because it may select columns by name."""
    if names is None or not isinstance(rows, np.ndarray) or rows.shape[1:] != names.shape:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def _selects_columns(classifier: Any) -> bool:
    """Return whether a part of the classifier is a `ColumnTransformer`, which may select columns by name."""
    # Importing the class would take longer than many fits.
    return any(hasattr(part, "transformers") for part in (classifier, *classifier.get_params().values()))


def _folds(cv: int | float, labels: Ints, classes: NDArray, random_state: int | None) -> Any:
    """Return pairs of training and held-out positions, both with rows of every class."""
    counts = np.bincount(labels)
    rare = counts[counts > 0].min()
    if rare < 2:
        remedy = ("add rows, or correct the label", Way(", or use ", Option("cv", None)))
        got = f"1 of {brief(classes[counts == rare].tolist()[0])}"
        raise InputError("y", "at least 2 rows of each class for cross-fitting", got, remedy)
    # Without a seed, scikit-learn would draw from the global generator.
    seed = int(np.random.default_rng().integers(2**31)) if random_state is None else random_state
    if not isinstance(cv, Integral):
        return StratifiedShuffleSplit(1, test_size=float(cv), random_state=seed).split(np.zeros(len(labels)), labels)
    folds = StratifiedKFold(min(int(cv), int(rare)), shuffle=True, random_state=seed)
    return folds.split(np.zeros(len(labels)), labels)


def _fit(model: Any, rows: Any, labels: Ints, weights: NDArray | None) -> Any:
    weighted = {} if weights is None else {_weight_name(model): weights}
    if type(model).__module__ != "sklearn.ensemble._forest":
        return model.fit(rows, labels, **weighted)
    # Trees are fitted in threads. Their posteriors are added up in one thread, because rounding depends on the order.
    with parallel_config(backend="threading", n_jobs=-1):
        return model.fit(rows, labels, **weighted)


def _weight_name(model: Any) -> str:
    """Return the name of the argument of `fit` that takes the weights of rows, also in a pipeline."""
    prefix, last = last_step(model)
    if not has_fit_parameter(last, "sample_weight"):
        raise TypeError(
            f"classifier: expected one whose fit takes sample_weight, as the rows have weights, got {model!r}; "
            "choose another classifier or drop the weights."
        )
    return f"{prefix}sample_weight"


def _flat(rows: Any) -> Any:
    """Return rows in the form that classifiers take: images become vectors, and other rows stay as they are."""
    if isinstance(rows, ClassifierRows):
        return rows.values
    return rows if sparse.issparse(rows) or rows.ndim == 1 else rows.reshape(len(rows), -1)
