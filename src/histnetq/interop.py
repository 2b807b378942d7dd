"""Conversions to and from QuaPy: quantifiers, bags, collections and protocols.

QuaPy always sorts classes, so everything converted to QuaPy has its columns sorted by class. QuaPy is imported on first
use.
"""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.bags.classifier_rows import require_numbers
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats, Ints
from histnetq.training.supervision import labelled_rows

__all__ = ["QuapyQuantifier", "bags_from_quapy", "bags_to_quapy", "from_quapy", "to_quapy"]


def to_quapy(quantifier: Quantifier) -> Any:
    """Wrap a quantifier, fitted or not, as a `quapy.method.base.BaseQuantifier`.

    The result is a view: fitting it fits `quantifier`. It has the same parameters as `quantifier`, so that
    `GridSearchQ` can search them. Columns are sorted by class, as everywhere in QuaPy.

    Parameters
    ----------
    quantifier : Quantifier
        Any quantifier of this library.

    Returns
    -------
    quapy.method.base.BaseQuantifier
        The view, with ``fit(X, y)``, ``predict(X) → (n_classes,)`` and `classes_`.

    Examples
    --------
    >>> from histnetq import CC
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> to_quapy(CC()).fit(X, y).predict([[0.0], [1.0], [1.0], [1.0]])
    array([0.25, 0.75])
    """
    if isinstance(quantifier, QuapyQuantifier):
        return getattr(quantifier, "quantifier_", quantifier.quantifier)
    if not isinstance(quantifier, Quantifier):
        raise _wrong_type("quantifier", "a quantifier of histnetq", quantifier, "make one such as EMQ()")
    return _adapter()(quantifier)


def from_quapy(quantifier: Any, classes: Sequence[Any] | None = None) -> Quantifier:
    """Wrap a quantifier of QuaPy, fitted or not, as a quantifier of this library.

    Parameters
    ----------
    quantifier : quapy.method.base.BaseQuantifier
        A quantifier of QuaPy. It is never fitted in place: `fit` fits a copy.
    classes : sequence or None, default None
        Names of the classes, for a fitted quantifier without a list of its classes.

    Returns
    -------
    Quantifier
        A `QuapyQuantifier`, fitted if `quantifier` is fitted. For a result of `to_quapy`, the quantifier inside it.

    Examples
    --------
    >>> import quapy as qp
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    >>> q = from_quapy(qp.method.aggregative.CC()).fit(X, y)
    >>> q.predict(Bags(X, offsets=[0, 4, 7, 20])).round(2)
    array([[0.5 , 0.5 ],
           [0.67, 0.33],
           [0.46, 0.54]])
    """
    if not isinstance(quantifier, _quapy("method.base").BaseQuantifier):
        way_out = "make one such as quapy.method.aggregative.EMQ()"
        raise _wrong_type("quantifier", "a quantifier of QuaPy", quantifier, way_out)
    if isinstance(quantifier, _adapter()):
        return quantifier.quantifier
    wrapped = QuapyQuantifier(quantifier)
    names = _classes_of(quantifier) if classes is None else np.asarray(classes)
    if names is not None:
        wrapped.quantifier_, wrapped.classes_ = quantifier, names
    return wrapped


def bags_from_quapy(source: Any) -> Bags:
    """Convert a collection or protocol of QuaPy to bags.

    Parameters
    ----------
    source : quapy.data.LabelledCollection or quapy.protocol.AbstractProtocol
        A collection becomes one bag. A protocol becomes the bags that calling it yields. If it draws from one
        collection, as APP, UPP and NPP do, the collection is the pool and no row is copied; else samples are stacked.

    Returns
    -------
    Bags
        The bags with their prevalences, and with the labels of their rows if QuaPy has them.

    Examples
    --------
    >>> import quapy as qp
    >>> collection = qp.data.LabelledCollection(np.zeros((6, 1)), list("aabbbb"))
    >>> bags_from_quapy(qp.protocol.UPP(collection, sample_size=10, repeats=3))
    Bags(n_bags=3, sizes=10, rows=(6, 1) float64, classes=['a', 'b'], prevalences, labels)
    """
    protocol, collection = _quapy("protocol"), _quapy("data").LabelledCollection
    if isinstance(source, collection):
        return Bags.from_labels(source.instances, source.labels, classes=source.classes_)
    if not isinstance(source, protocol.AbstractProtocol):
        expected = "a LabelledCollection or a protocol of QuaPy"
        raise _wrong_type("source", expected, source, "pass the .training or .test of a Dataset")
    on_collection = protocol.OnLabelledCollectionProtocol
    if isinstance(source, protocol.ProtocolFromIndex):
        pool, samples = source.data, list(source.indexes)
    elif isinstance(source, on_collection) and type(source).sample is on_collection.sample:
        pool, samples = source.get_labelled_collection(), list(_uncollated(source, sample=lambda index: index)())
    elif isinstance(source, protocol.IterateProtocol):
        pool, samples = None, list(source.samples)
    else:
        stochastic = isinstance(source, protocol.AbstractStochasticSeededProtocol)
        pool, samples = None, list((_uncollated(source) if stochastic else source)())
    if not samples:
        raise ValueError("source: expected a protocol that yields samples, got none from it; check its parameters.")
    if pool is None:
        parts = [bags_from_quapy(s) if isinstance(s, collection) else Bags(s[0], prevalences=[s[1]]) for s in samples]
        stacked = Bags.concat(parts)
        return stacked.drawn(stacked.index, stacked.offsets, None, stacked.prevalences)
    offsets = np.concatenate([[0], np.cumsum([len(index) for index in samples])])
    drawn = bags_from_quapy(pool).drawn(np.concatenate(samples).astype(np.int64), offsets, None, None)
    return drawn.with_known_prevalences()


def bags_to_quapy(bags: Bags) -> Any:
    """Wrap bags as a `quapy.protocol.AbstractProtocol` that yields the rows and prevalences of each bag.

    In `GridSearchQ`, use it with ``refit=False``, because the rows of bags may have no labels.

    Parameters
    ----------
    bags : Bags
        Bags with prevalences, or with labels of their rows.

    Returns
    -------
    quapy.protocol.AbstractProtocol
        The protocol, whose columns are sorted by class.

    Examples
    --------
    >>> protocol = bags_to_quapy(Bags(np.eye(3), offsets=[0, 1, 3], prevalences=[[1, 0], [0.5, 0.5]]))
    >>> [(rows.shape, prevalence.tolist()) for rows, prevalence in protocol()]
    [((1, 3), [1.0, 0.0]), ((2, 3), [0.5, 0.5])]
    >>> protocol.total()
    2
    """
    if not isinstance(bags, Bags):
        raise _wrong_type("bags", "Bags", bags, "make them with Bags.from_arrays")
    bags = bags.with_known_prevalences()
    _copies(bags)
    return _bag_protocol()(bags)


class QuapyQuantifier(Quantifier):
    """A quantifier of QuaPy with the methods of this library; `from_quapy` returns it.

    Parameters
    ----------
    quantifier : quapy.method.base.BaseQuantifier
        The quantifier; `fit` fits a copy of it.

    Attributes
    ----------
    quantifier_ : quapy.method.base.BaseQuantifier
        The fitted quantifier.
    classes_ : array of shape (n_classes,)
        Names of the columns.
    train_prevalences_ : array of shape (n_classes,)
        Proportions of the classes in the training rows, if it was fitted here.

    Examples
    --------
    >>> import quapy as qp
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), list("nnyy") * 5
    >>> QuapyQuantifier(qp.method.aggregative.PCC()).fit(X, y).classes_
    array(['n', 'y'], dtype='<U1')
    """

    input_shape_: tuple[int, ...] | None = None  # type: ignore[assignment]
    feature_names_ = None

    def __init__(self, quantifier: Any) -> None:
        self.quantifier = quantifier

    def fit(self, X: Any, y: Any = None) -> QuapyQuantifier:
        """Learn from labelled rows, or from Bags whose rows are labelled.

        Parameters
        ----------
        X : array of shape (n_rows, n_features) or Bags
            The rows.
        y : array of shape (n_rows,) or None, default None
            Labels of the rows; None with Bags, which contain them.

        Returns
        -------
        QuapyQuantifier
            The quantifier itself.
        """
        given = labelled_rows(X, y)
        require_numbers(given.rows)
        index, codes = _copies(given)[0], np.asarray(given.labels)
        index = index[codes[index] >= 0]
        labels = np.asarray(given.classes)[codes[index]]
        whole = np.array_equal(index, np.arange(given.rows.shape[0]))
        quantifier = copy.deepcopy(self.quantifier)
        quantifier.fit(given.rows if whole else given.rows[index], labels)
        found, self.quantifier_ = _classes_of(quantifier), quantifier
        self.classes_ = np.unique(labels) if found is None else found
        self.train_prevalences_ = (labels == self.classes_[:, None]).mean(1)
        self.input_shape_, self.feature_names_ = tuple(given.rows.shape[1:]), given.feature_names
        return self

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Raise a TypeError, because a model of QuaPy can only be pickled.

        Parameters
        ----------
        path : path
            Any path; nothing is written.
        overwrite : bool, default False
            Without effect.

        Examples
        --------
        >>> import quapy as qp
        >>> from_quapy(qp.method.aggregative.CC()).save("model")
        Traceback (most recent call last):
            ...
        TypeError: save: CC is QuaPy's and has no format without code; pickle quantifier_, or use a quantifier of ...
        """
        raise TypeError(
            f"save: {type(self.quantifier).__name__} is QuaPy's and has no format without code; pickle quantifier_, "
            "or use a quantifier of histnetq."
        )

    def _predict(self, bags: Bags) -> Floats:
        index, offsets = _copies(bags)
        aggregative, rows, estimate = _quapy("method.aggregative"), bags.rows, self.quantifier_.predict
        # A class with its own `predict` may do something other than classify and aggregate.
        if getattr(type(self.quantifier_), "predict", None) is aggregative.AggregativeQuantifier.predict:
            used, index = used_rows(index, bags.rows.shape[0])
            rows, estimate = self.quantifier_.classify(bags.rows[used]), self.quantifier_.aggregate
        estimates = [estimate(rows[index[a:b]]) for a, b in itertools.pairwise(offsets)]
        return np.stack([np.asarray(p, dtype=np.float64) for p in estimates])

    def _are_several(self, X: Any, row_axes: int | None = None) -> bool:
        # The shape of rows is unknown for a quantifier that was fitted elsewhere; most rows are vectors.
        return super()._are_several(X, 1 if row_axes is None and self.input_shape_ is None else row_axes)

    def _require_same_features(self, bags: Bags, streamed: bool = False) -> None:
        if self.input_shape_ is not None:
            super()._require_same_features(bags, streamed)

    def __sklearn_clone__(self) -> QuapyQuantifier:
        # scikit-learn's clone fails here: some of QuaPy's constructors change or refuse their own parameters.
        return QuapyQuantifier(copy.deepcopy(self.quantifier))


def _quapy(module: str) -> Any:
    if find_spec("quapy") is None:
        raise ImportError("interop: needs QuaPy; pip install quapy.")
    return importlib.import_module(f"quapy.{module}")


@functools.cache
def _adapter() -> Any:
    class Adapter(_quapy("method.base").BaseQuantifier):  # type: ignore[misc]
        def __init__(self, quantifier: Quantifier) -> None:
            self.quantifier = quantifier

        def fit(self, X: Any, y: Any) -> Any:
            self.quantifier.fit(X, y)
            return self

        def predict(self, X: Any) -> Floats:
            return self.quantifier.predict(X)[np.argsort(self.quantifier.classes_)]

        @property
        def classes_(self) -> NDArray:
            return np.sort(self.quantifier.classes_)

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            return self.quantifier.get_params(deep)

        def set_params(self, **params: Any) -> Any:
            self.quantifier.set_params(**params)
            return self

        def __sklearn_clone__(self) -> Any:
            return to_quapy(clone(self.quantifier))

        def __reduce__(self) -> Any:  # pickle cannot find a class that is created in a function
            return to_quapy, (self.quantifier,)

        def __repr__(self, N_CHAR_MAX: int = 700) -> str:
            return f"to_quapy({self.quantifier!r})"

    return Adapter


@functools.cache
def _bag_protocol() -> Any:
    class BagProtocol(_quapy("protocol").AbstractProtocol):  # type: ignore[misc]
        def __init__(self, bags: Bags) -> None:
            self.bags = bags

        def __call__(self) -> Iterator[tuple[Any, Floats]]:
            index, offsets = _copies(self.bags)
            prevalences = self.bags.prevalences[:, np.argsort(self.bags.classes)]  # type: ignore[index,arg-type]
            for (a, b), prevalence in zip(itertools.pairwise(offsets), prevalences, strict=True):
                yield self.bags.rows[index[a:b]], prevalence

        def total(self) -> int:
            return len(self.bags)

        def __reduce__(self) -> Any:
            return bags_to_quapy, (self.bags,)

        def __repr__(self) -> str:
            return f"bags_to_quapy({self.bags!r})"

    return BagProtocol


def _classes_of(quantifier: Any) -> NDArray | None:
    """Return the classes of a fitted quantifier of QuaPy; None if it is not fitted or does not store them."""
    quantifier = getattr(quantifier, "best_model_", quantifier)
    found = (getattr(quantifier, name, None) for name in ("classes_", "_classes_", "classes"))
    return next((np.asarray(names) for names in found if names is not None), None)


def _copies(bags: Bags) -> tuple[Ints, Ints]:
    """Return the index and offsets of the bags, with each entry repeated by its weight."""
    if bags.weights is None:
        return bags.index, bags.offsets
    if bags.weight_kind != "count":
        raise ValueError(
            f"weights: QuaPy knows no weights, expected none or counts, got {bags.weight_kind} weights; "
            "make the bags without weights or with weight_kind='count'."
        )
    ends = np.concatenate([[0], np.cumsum(bags.weights)])
    return np.repeat(bags.index, bags.weights), ends[bags.offsets]


def _uncollated(protocol: Any, **changed: Any) -> Any:
    """Return a copy of the protocol that draws the same samples and yields them with their labels."""
    bare = copy.copy(protocol)
    vars(bare).update(changed, collator=lambda sample, params: sample)
    return bare


def _wrong_type(argument: str, expected: str, given: Any, way_out: str) -> TypeError:
    return TypeError(f"{argument}: expected {expected}, got {type(given).__name__}; {way_out}.")
