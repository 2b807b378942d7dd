"""`Quantifier`: the contract that every estimator keeps."""

from __future__ import annotations

import base64
import dataclasses
import os
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from histnetq.data import protocols
from histnetq.data.bags import Bags
from histnetq.metrics import CostSensitiveAE
from histnetq.quantifiers.registry import REGISTRY
from histnetq.quantifiers.saving import dump_estimator, load_estimator, read_model, write_model
from histnetq.quantifiers.sketching import Sketching
from histnetq.sketches.moments import bag_moments, finish_moments
from histnetq.sketches.sketch import BagSketch
from histnetq.training.options import Training
from histnetq.uncertainty.conformal import Calibration, Intervals
from histnetq.uncertainty.trust import Trust

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Quantifier", "load"]

_CALIBRATION, _TRUST = "calibration/", "trust/"
_STORABLE = {t.__name__: t for t in (Training, CostSensitiveAE)} | {n: getattr(protocols, n) for n in protocols.__all__}


class Quantifier(Sketching, BaseEstimator):
    """Base of all quantifiers.

    A subclass sets `classes_`, `input_shape_`, `feature_names_` and `train_prevalences_` in `fit` and implements
    `_predict`, `_weights` and `_restore`; see `Sketching` for what streams. Parameters, cloning and printing
    are scikit-learn's.
    """

    training: Training
    classes_: NDArray
    input_shape_: tuple[int, ...]
    feature_names_: list[str] | None
    train_prevalences_: NDArray[np.float64]
    calibration_: Calibration
    trust_: Trust
    provenance_: dict[str, Any]

    def fit(self, X: Any, y: Any = None) -> Quantifier:
        """Learn from bags of known proportions, or from labelled rows."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Estimate the prevalence of each class.

        Parameters
        ----------
        X : Bags, or one bag as an array of rows, or a BagSketch

        Returns
        -------
        (n_bags, n_classes), or (n_classes,) for an array and its sketch; columns in the order of `classes_`.
        """
        if isinstance(X, BagSketch):
            self._require_own(X)
            estimates = self._from_state(X.values, X.totals)
        else:
            bags = self._bags_to_estimate(X)
            self._require_same_features(bags)
            estimates = self._predict(bags)
        return estimates if _many(X) else estimates[0]

    def calibrate(self, bags: Bags, *, random_state: int = 0) -> Quantifier:
        """Learn from bags of known proportions how far estimates are from the truth, and what bags look like.

        After it, `predict_interval` gives intervals and `trust` tells bags that look otherwise.

        Parameters
        ----------
        bags : Bags
            Of rows not used in training: on rows that were learned from, estimates are too good. As alike as can be to
            the bags to be estimated, in sizes and in how their proportions came about.
        random_state : int
            One third of the bags, drawn by this seed, fits the scale of the errors; the others are the yardstick.
        """
        if not isinstance(bags, Bags):
            raise TypeError(f"bags: expected Bags, got {type(bags).__name__}; make them with Bags.from_arrays.")
        self._require_fitted()
        bags = bags.with_known_prevalences().with_classes(self.classes_)
        assert bags.prevalences is not None
        self.calibration_ = Calibration.of(bags.prevalences, self.predict(bags), bags.sizes, random_state)
        moments = bag_moments(bags)
        moments = np.empty((len(bags), 0)) if moments is None else moments
        self.trust_ = Trust.of(moments, bags.sizes, random_state)
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Intervals:
        """Estimate with an interval for each class and a joint region for each bag, by split-conformal prediction.

        The intervals hold the truth with probability `coverage`, whatever the quantifier, if the bags are exchangeable
        with the calibration bags; on average over such bags, not for each kind of bag.

        Parameters
        ----------
        X : Bags, or one bag as an array of rows, or a BagSketch
        coverage : float between 0 and 1

        Returns
        -------
        Intervals
            With `estimates`, `lower` and `upper` in the shape that `predict` gives, and `region`.
        """
        bags = X if isinstance(X, BagSketch) else self._bags_to_estimate(X)
        self._require_calibrated()
        found = self.calibration_.intervals(np.atleast_2d(self.predict(bags)), bags.sizes, coverage)
        return found if _many(X) else found.of_one()

    def trust(self, X: Any) -> pd.DataFrame:
        """Tell whether bags look like the calibration bags, by the mean and spread of their features.

        Parameters
        ----------
        X : Bags, or one bag as an array of rows, or a BagSketch that was made after `calibrate`

        Returns
        -------
        DataFrame, one row per bag
            `p_value`: part of the calibration bags that are at least as far from the usual, NaN for texts; `small`:
            smaller than every calibration bag; `trust`: "ok", or what is doubted, "unusual" and "small". Estimates and
            intervals of bags that are not "ok" have no promise.
        """
        self._require_fitted()
        self._require_calibrated()
        if isinstance(X, BagSketch):
            self._require_own(X)
            origin, ids = X.maker.origin, [0] if X.ids is None else X.ids
            moments = None if origin is None else finish_moments(X.moments, X.totals, np.array(origin))
            return self.trust_.judge(moments, X.sizes).set_index(np.asarray(ids))
        bags = self._bags_to_estimate(X)
        self._require_same_features(bags)
        return self.trust_.judge(bag_moments(bags), bags.sizes).set_index(np.asarray(bags.ids))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted quantifier to a directory that `histnetq.load` reads."""
        self._require_fitted()
        if self.classes_.dtype.kind not in "biufU":
            raise TypeError(
                f"classes: {self.classes_.tolist()[0]!r} cannot be stored, expected strings or numbers; rename classes."
            )
        config = {
            "estimator": type(self).__name__,
            "version": metadata.version("histnetq"),
            "params": {name: _to_json(value) for name, value in self.get_params(deep=False).items()},
            "classes": self.classes_.tolist(),
            "input_shape": list(self.input_shape_),
            "feature_names": self.feature_names_,
            "train_prevalences": self.train_prevalences_.tolist(),
            "learned": self._learned(),
            "provenance": getattr(self, "provenance_", {}),
        }
        arrays = self._weights()
        if hasattr(self, "calibration_"):
            arrays |= {f"{_CALIBRATION}{name}": a for name, a in self.calibration_.to_arrays().items()}
            arrays |= {f"{_TRUST}{name}": a for name, a in self.trust_.to_arrays().items()}
        write_model(path, config, arrays, overwrite)

    def set_params(self, **params: Any) -> Quantifier:
        """Set parameters; those of `training` are reached as ``training__lr`` and the like."""
        nested = {k.removeprefix("training__"): params.pop(k) for k in list(params) if k.startswith("training__")}
        super().set_params(**params)
        if nested:
            valid = self.training.get_params()
            for name in nested:
                if name not in valid:
                    raise ValueError(f"training: no parameter {name!r}, expected one of {', '.join(valid)}.")
            self.training = dataclasses.replace(self.training, **nested)
        return self

    def _forget_calibration(self) -> None:
        """And the provenance: of an earlier fit."""
        for name in ("calibration_", "trust_", "provenance_"):
            self.__dict__.pop(name, None)

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        raise NotImplementedError

    def _weights(self) -> dict[str, NDArray]:
        """Arrays to store."""
        raise NotImplementedError

    def _learned(self) -> dict[str, Any]:
        """Other learned things to store, as JSON."""
        return {}

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        """Become fitted again from what `_weights` and `_learned` gave."""
        raise NotImplementedError

    def _bags_to_estimate(self, X: Any) -> Bags:
        """Bags, or one bag as an array of rows, as `Bags`; refused if there are none, or nothing was learned."""
        self._require_fitted()
        bags = X if isinstance(X, Bags) else Bags(X)
        if len(bags) == 0:
            raise ValueError("X: expected at least one bag, got none; check how the bags were selected.")
        return bags

    def _require_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted; call fit first, or load a saved model.")

    def _require_calibrated(self) -> None:
        if not hasattr(self, "calibration_"):
            raise NotFittedError(
                f"{type(self).__name__} is not calibrated; call calibrate with bags of rows not used in training first."
            )

    def _require_same_features(self, bags: Bags) -> None:
        shape = tuple(bags.rows.shape[1:])
        if shape != self.input_shape_:
            raise ValueError(
                f"rows: expected {_shape_text(self.input_shape_)} as in training, got {_shape_text(shape)}; "
                "give the same columns in the same order."
            )
        if None not in (bags.feature_names, self.feature_names_) and bags.feature_names != self.feature_names_:
            pairs = zip(bags.feature_names or (), self.feature_names_ or (), strict=True)
            i, (got, expected) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
            raise ValueError(
                f"rows: column {i} is {got!r}, expected {expected!r} as in training; "
                "give the same columns in the same order."
            )


def load(path: str | os.PathLike[str], **custom: Any) -> Quantifier:
    """Read a quantifier that `save` wrote.

    Parameters
    ----------
    path : the directory
    **custom
        Parameters that cannot be stored, such as ``encoder=`` (a module of the same architecture) or ``loss=``, if the
        model was made with its own.
    """
    config, weights = read_model(path)
    entry = REGISTRY.get(str(config.get("estimator")))
    if entry is None:
        raise ValueError(f"path: {path} holds an unknown estimator {config.get('estimator')!r}; upgrade histnetq.")
    try:
        params = {name: _from_json(name, value, custom) for name, value in config["params"].items()}
        if custom:
            raise TypeError(
                f"load: {sorted(custom)[0]!r} was stored with the model and cannot be replaced; leave it out."
            )
        quantifier: Quantifier = entry.load()(**params)
        quantifier.classes_ = np.asarray(config["classes"])
        quantifier.input_shape_ = tuple(config["input_shape"])
        quantifier.feature_names_ = config["feature_names"]
        quantifier.train_prevalences_ = np.asarray(config["train_prevalences"], dtype=np.float64)
        quantifier.provenance_ = config.get("provenance", {})
        learned = config["learned"]
    except (KeyError, AttributeError):
        raise ValueError(f"path: {path} has a configuration that save() did not write; save again.") from None
    calibration, trust = (_taken(weights, prefix) for prefix in (_CALIBRATION, _TRUST))
    quantifier._restore(weights, learned)
    if calibration:
        quantifier.calibration_, quantifier.trust_ = Calibration(**calibration), Trust(**trust)
    return quantifier


def _many(X: Any) -> bool:
    """Whether these are bags, and not one bag that was given as an array."""
    return X.ids is not None if isinstance(X, BagSketch) else isinstance(X, Bags)


def _taken(weights: dict[str, NDArray], prefix: str) -> dict[str, NDArray]:
    """The arrays whose names start so, without this start; the others are left."""
    return {name.removeprefix(prefix): weights.pop(name) for name in list(weights) if name.startswith(prefix)}


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray | range):
        return [_to_json(v) for v in value]
    if isinstance(value, tuple | list) and all(not isinstance(_to_json(v), dict) for v in value):
        return [_to_json(v) for v in value]
    if isinstance(value, BaseEstimator) and type(value).__module__.startswith("sklearn."):
        return {"skops": base64.b64encode(dump_estimator(value)).decode()}
    if type(value).__name__ in _STORABLE and dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "callbacks"}
        return {"type": type(value).__name__, "fields": {k: _to_json(v) for k, v in fields.items()}}
    return {"custom": type(value).__name__}


def _from_json(name: str, value: Any, custom: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(name, v, custom) for v in value)
    if not isinstance(value, dict):
        return value
    if "custom" in value:
        if name not in custom:
            raise ValueError(
                f"{name}: this model was made with its own {name} ({value['custom']}), which is not stored; "
                f"pass it as histnetq.load(path, {name}=…)."
            )
        return custom.pop(name)
    if "skops" in value:
        return load_estimator(base64.b64decode(value["skops"]))
    kind = _STORABLE[value["type"]]
    return kind(**{k: _from_json(name, v, custom) for k, v in value["fields"].items()})


def _shape_text(shape: tuple[int, ...]) -> str:
    if not shape:
        return "texts"
    return f"{shape[0]} features" if len(shape) == 1 else f"rows of shape {shape}"
