"""`Quantifier`: the contract that every estimator keeps.

Its parts are in `bag_inputs` (bags that it takes), `sketching` and `calibrating` (intervals and trust).
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.class_names import add_columns, with_all_classes
from histnetq.metrics import ae
from histnetq.persistence.saving import Stored, save
from histnetq.quantifiers.calibrating import Calibrating
from histnetq.quantifiers.row_posteriors import expected_performance, row_posteriors
from histnetq.simplex import check_estimates, check_prevalences
from histnetq.sketches.sketch import BagSketch
from histnetq.training.options import Training

if TYPE_CHECKING:
    import pandas as pd

_OTHER_NAMES = {
    "quantify": "what QuaPy calls quantify is predict here",
    "aggregate": "what QuaPy calls aggregate is predict_posteriors here, which methods on posteriors such as PACC have",
}


class Quantifier(Calibrating):
    """Base of all quantifiers.

    A method implements `fit`, which ends with ``_learned_from``, and ``_predict``. It holds what else it can do as
    objects: ``_sketcher()`` gives the `Sketcher` that summarises bags, ``stored`` lists the parts of a model directory,
    and `histnetq.uncertainty.methods` has the ways to intervals. Parameters, cloning and printing are scikit-learn's.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.
    feature_names_ : list of str, or None
        Names of the columns that were learned from, if they had names.
    feature_names_in_ : (n_features,)
        The same as an array, as scikit-learn has it; absent without names.
    n_features_in_ : int
        Numbers in one row.

    Examples
    --------
    >>> from histnetq import EMQ
    >>> issubclass(EMQ, Quantifier)
    True
    """

    stored: ClassVar[tuple[Stored, ...]] = ()
    renamed_params: ClassVar[dict[str, str]] = {}  # former names of parameters, which stored models may have
    training: Training

    def fit(self, X: Any, y: Any = None) -> Quantifier:
        """Learn from bags of known proportions, or from labelled rows.

        Parameters
        ----------
        X : Bags, or array of rows
            Bags with prevalences or labels; or labelled rows.
        y : array, default=None
            The label of each row; None with bags.

        Returns
        -------
        Quantifier
            The fitted quantifier itself.
        """
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Estimate the prevalence of each class.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; several bags as a list with the array of each one's rows; or one bag as an
            array, or a list, of its rows.

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
            estimates = self._sketcher().estimate(X.values, X.totals)
        else:
            estimates = self._predict(self._bags_to_estimate(X))
        check_estimates(estimates)
        return estimates if self._are_several(X) else estimates[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Tell how good the estimates are: the negative mean absolute error, so that higher is better.

        It has the signature that scikit-learn's tools expect, such as ``cross_val_score`` and ``GridSearchCV`` on
        labelled rows, where the rows of each fold are one bag.

        Parameters
        ----------
        X : Bags, list of arrays, or array of rows
            Bags of known proportions, or with labels to count them from; or arrays with `y`.
        y : array, default=None
            The prevalences ``(n_bags, n_classes)`` of several bags, in the order of their classes or else of
            `classes_`; or the label of each row of one bag that is an array. None for bags that know their own.

        Returns
        -------
        float
            Minus the mean of ``histnetq.evaluate(quantifier, bags)["ae"]``: 0 for estimates without error. A class that
            was not in training counts as estimated 0.

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

    def predict_rows(self, X: Any, prevalences: ArrayLike | None = None) -> NDArray[np.float64]:
        """Estimate the class probabilities of the rows, given the prevalences of their bag.

        Methods on posteriors, `EMNetQ`, and all methods that learned from scores can tell. Posteriors are rescaled by
        the labels of training first, as "bcts" of `EMQ` does it, and then shifted from the mix of training to that of
        the bag.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.
        prevalences : (n_bags, n_classes) for bags, (n_classes,) for rows, default=None
            Prevalences of the classes in each bag; None takes the estimates.

        Returns
        -------
        (n_rows, n_classes)
            Probabilities of the classes; of bags, one row per entry, in the order of ``bags.index``.

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

    def class_weights(self, X: Any) -> NDArray[np.float64]:
        """Tell how much more common each class is than in training: the ratio of prevalences.

        Training rows with these weights by class are like a sample of the bag, under prior shift.

        Parameters
        ----------
        X : Bags, BagSketch, list of arrays, or array of rows
            Several bags; their sketches; or arrays as in `predict`.

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array and its sketch
            Estimated prevalences over those of training; infinite for a class that is estimated and was not there.

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
        """Estimate how accurate a classifier is in bags without labels, if only their proportions have shifted.

        The classifier is the one whose posteriors, or whose scores, the method reads; it assigns each row to the class
        of the highest. How often it confuses classes is known from the labelled rows of training, and how common these
        are from the estimate of the bag.

        Parameters
        ----------
        X : Bags, or array of rows
            Several bags, or one bag as an array of its rows.

        Returns
        -------
        DataFrame
            One row per bag: `accuracy`, and `f1`, the mean over the classes that are expected in the bag or assigned
            to some of its rows.

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
        assigned, confusions = self._assigned(bags)
        return expected_performance(assigned, confusions, check_estimates(self._predict(bags)), bags)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted quantifier to a directory that `histnetq.load` reads.

        Parameters
        ----------
        path : str or path
            The directory, which is made.
        overwrite : bool, default=False
            Whether a model that is there already is replaced.

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

    def set_params(self, **params: Any) -> Quantifier:
        """Set parameters; those of `training` are reached as ``training__lr`` and the like.

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

    if not TYPE_CHECKING:  # to a type checker, an unknown name stays unknown

        def __getattr__(self, name: str) -> Any:
            """Tell our name of what QuaPy calls otherwise."""
            if name in _OTHER_NAMES:
                raise AttributeError(f"{type(self).__name__} has no {name!r}; {_OTHER_NAMES[name]}.")
            return self.__getattribute__(name)  # raises what it raised before

    def _check_params(self) -> None:
        """Refuse wrong parameters; `fit` calls this before any work, and `histnetq.load` before anything is restored.

        Each class checks the type, the range and the upper limit of its own parameters, after its base class.
        """

    def _log_likelihoods(self, bags: Bags) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Log-likelihoods of the classes, up to a constant of the row, of rows in use; and the row of each entry."""
        kind = type(self).__name__
        raise TypeError(f"predict_rows: {kind} gives no probabilities of rows; use EMNetQ, or a method such as EMQ.")

    def _assigned(self, bags: Bags) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Tell the class of each entry by the classifier that the method reads, and the confusions of this."""
        kind = type(self).__name__
        raise TypeError(
            f"estimate_performance: {kind} keeps no confusions of a classifier; use a method on posteriors such as "
            "EMQ, or learn from scores of labelled rows."
        )

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        """Estimate bags that have been checked: (n_bags, n_classes)."""
        raise NotImplementedError
