"""Conversion of quantifiers to JSON and arrays, and back; loading a model never runs code from its directory.

Everything in a file is checked before it is used. A model that `save` cannot have written is an error, even if its
checksums are right.
"""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from histnetq.bags import protocols
from histnetq.bags.limits import LONGEST_NAME, brief
from histnetq.bags.text_features import N_HASHED, TextFeatures
from histnetq.metrics import CostSensitiveAE
from histnetq.persistence.classifier_files import from_plain, to_plain
from histnetq.persistence.model_files import write_model
from histnetq.persistence.skops_files import dump_classifier, load_classifier, require_trust
from histnetq.registry import REGISTRY
from histnetq.training.options import Training
from histnetq.uncertainty.conformal import Calibration
from histnetq.uncertainty.trust import Trust

Arrays = dict[str, NDArray]
_DATACLASSES = {t.__name__: t for t in (Training, CostSensitiveAE)} | {
    name: getattr(protocols, name) for name in protocols.__all__
}


class Stored:
    """A part of a fitted model that is stored in the model directory."""

    def arrays(self, model: Any) -> Arrays:
        """Return the arrays to store, by name."""
        return {}

    def learned(self, model: Any) -> dict[str, Any]:
        """Return the learned values that are not arrays, as JSON."""
        return {}

    def described(self, model: Any) -> tuple[Arrays, dict[str, Any]]:
        """Return arrays and learned values; a part overrides only this method if one computation gives both."""
        return self.arrays(model), self.learned(model)

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        """Set the attributes of the model from the result of `described`."""
        raise NotImplementedError


class StoredArrays(Stored):
    """Arrays that are attributes of the model.

    Parameters
    ----------
    **attributes : str
        Shape of the array in each attribute, in words such as "rows classes". Equal words mean equal sizes, "classes"
        is the number of classes, and a final "?" means that a model may lack the array. A key of `_KINDS` may come
        first, as in "share: rows classes". The array has the name of the attribute without its final underscore.
    """

    def __init__(self, **attributes: str) -> None:
        self.attributes = attributes

    def arrays(self, model: Any) -> Arrays:
        found = {name[:-1]: getattr(model, name) for name in self.attributes}
        return {name: array for name, array in found.items() if array is not None}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        sizes = {"classes": len(model.classes_)}
        for name, words in self.attributes.items():
            if name[:-1] in arrays:
                setattr(model, name, checked_numbers(name[:-1], arrays[name[:-1]], words.rstrip("?"), sizes))
            elif words.endswith("?"):
                setattr(model, name, None)
            else:
                raise ValueError(f"path: the array {name[:-1]!r} is missing; save the model again.")


class StoredParts(Stored):
    """A dataclass of arrays that is an optional attribute of the model.

    The names of the arrays begin with the name of the attribute, and `sizes` are their shapes in words, as in
    `StoredArrays`. A class that checks its own arrays, or reads those of earlier versions, has a classmethod
    ``from_stored(arrays, n_features, n_classes)``, which raises a `ValueError` for wrong arrays.
    """

    def __init__(self, attribute: str, kind: type, **sizes: str) -> None:
        self.attribute, self.kind, self.prefix, self.sizes = attribute, kind, f"{attribute[:-1]}/", sizes

    def arrays(self, model: Any) -> Arrays:
        found = getattr(model, self.attribute)
        return {} if found is None else {f"{self.prefix}{name}": array for name, array in vars(found).items()}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        found = {k.removeprefix(self.prefix): v for k, v in arrays.items() if k.startswith(self.prefix)}
        if not found:
            return
        if hasattr(self.kind, "from_stored"):
            n_features = int(np.prod(model.input_shape_))
            setattr(model, self.attribute, self.kind.from_stored(found, n_features, len(model.classes_)))
            return
        known = {"classes": len(model.classes_)}
        fields = dataclasses.fields(self.kind)
        optional = {field.name for field in fields if field.default_factory is not dataclasses.MISSING}
        if {*found} | optional != {field.name for field in fields}:
            raise ValueError(f"path: arrays of {self.prefix} are missing or unknown; calibrate and save again.")
        for name in (name for name in self.sizes if name in found):
            checked_numbers(f"{self.prefix}{name}", found[name], self.sizes[name], known)
        setattr(model, self.attribute, self.kind(**{name: array.astype(np.float64) for name, array in found.items()}))


_ROUNDED = 1e-3  # largest rounding error of a share below 0 or above 1
# Kinds of numbers: numpy's kinds of types, the lowest and the highest value, and the name in messages.
_KINDS: dict[str, tuple[str, float, float, str]] = {
    "": ("f", -np.inf, np.inf, "numbers"),
    "share": ("f", -_ROUNDED, 1 + _ROUNDED, "numbers from 0 to 1"),
    "posterior": ("f", -_ROUNDED, 1 + _ROUNDED, "numbers from 0 to 1"),
    "size": ("f", 0, np.inf, "numbers of at least 0"),
    "amount": ("iuf", 0, np.inf, "numbers of at least 0"),
    "whole": ("iu", -np.inf, np.inf, "whole numbers"),
}


def checked_numbers(name: str, array: NDArray, words: str, known: dict[str, int]) -> NDArray:
    """Raise an error if the shape or the numbers do not match the words; add the sizes of new words to `known`.

    The array is converted to the type that compiled code expects: int32, int64, float64, or float32 for posteriors.
    """
    kind, _, sizes = words.rpartition(": ")
    types, low, high, numbers = _KINDS[kind]
    wanted = sizes.split()
    fits = array.ndim == len(wanted) and array.dtype.kind in types
    for word, size in zip(wanted, array.shape, strict=False):
        fits &= size == (int(word) if word.isdigit() else known.setdefault(word, size))
    if not fits:
        raise ValueError(
            f"path: the array {name!r} is {array.dtype} of shape {array.shape}, expected {numbers} "
            f"({', '.join(wanted)}); save the model again."
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float32 if kind == "posterior" else np.float64, copy=False)
    elif array.dtype != np.int32:
        array = array.astype(np.int64, copy=False)
    if not ((array >= low) & (array <= high)).all():
        raise ValueError(f"path: the array {name!r} has other numbers than {numbers}; save the model again.")
    return array


class StoredText(Stored):
    """The conversion of a text column to features, if the model has one."""

    def described(self, model: Any) -> tuple[Arrays, dict[str, Any]]:
        text = model.text_
        if text is None:
            return {}, {}
        return {"text/weights": text.weights, "text/directions": text.directions}, {"text_column": text.column}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        column = learned.get("text_column")
        if column is None:
            return
        if (
            not isinstance(column, str)
            or len(column) > LONGEST_NAME
            or not {"text/weights", "text/directions"} <= arrays.keys()
        ):
            raise ValueError("path: the model's text features are missing or damaged; save the model again.")
        known: dict[str, int] = {"hashed": N_HASHED}
        weights = checked_numbers("text/weights", arrays["text/weights"], "hashed", known)
        directions = checked_numbers("text/directions", arrays["text/directions"], "directions hashed", known)
        text = TextFeatures(column, weights.astype(np.float32), directions.astype(np.float32))
        if not set(text.names) <= set(model.feature_names_ or ()):
            raise ValueError("path: the model's features do not match its text features; save the model again.")
        model.text_ = text


_CALIBRATED = (
    StoredParts("calibration_", Calibration, coefficients="amount: classes 4", joint_coefficients="amount: 2",
                scores="amount: scores classes", joint_scores="amount: scores", least="amount: 1"),
    StoredParts("trust_", Trust),
    StoredText(),
)  # fmt: skip


def save(model: Any, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Write a fitted quantifier to a directory that `load` reads."""
    arrays = dict[str, NDArray]()
    write_model(path, to_config(model, arrays), arrays, overwrite)


def to_config(model: Any, arrays: Arrays) -> dict[str, Any]:
    """Return the JSON of a fitted quantifier, and add its arrays to `arrays`."""
    kind, classes = type(model), model.classes_.tolist()
    if model.classes_.dtype.kind not in "biufU":
        raise TypeError(f"classes: {classes[0]!r} cannot be stored, expected strings or numbers; rename classes.")
    learned = dict[str, Any]()
    for part in (*model.stored, *_CALIBRATED):
        own_arrays, own_learned = part.described(model)
        arrays |= own_arrays
        learned |= own_learned
    config = {
        "estimator": kind.__name__, "version": metadata.version("histnetq"), "classes": classes,
        "params": {name: _to_json(name, value, arrays) for name, value in model.get_params(deep=False).items()},
        "input_shape": list(model.input_shape_), "feature_names": model.feature_names_,
        "double": model.double_, "scores": model.scores_, "train_prevalences": model.train_prevalences_.tolist(),
        "learned": learned, "provenance": model.provenance_,
    }  # fmt: skip
    if not _is_registered(kind):
        config["own_class"] = True
    return config


def _is_registered(kind: type) -> bool:
    return kind.__name__ in REGISTRY and kind is REGISTRY[kind.__name__].load()


def restored(
    estimator: type[Any], config: dict[str, Any], arrays: Arrays, trust: Sequence[str], custom: dict[str, Any]
) -> Any:
    """Construct a fitted quantifier from the result of `to_config`."""
    files = [base64.b64decode(value["skops"]) for value in config["params"].values() if _is_file(value)]
    require_trust([*files, *(arrays[name].tobytes() for name in ("classifier",) if name in arrays)], trust)
    params = {name: _from_json(name, value, arrays, trust, custom) for name, value in config["params"].items()}
    quantifier = _constructed(estimator, params)
    quantifier.provenance_ = config.get("provenance") or {}
    quantifier.classes_ = np.asarray(config["classes"])
    if len(np.unique(quantifier.classes_)) < len(config["classes"]):  # numpy drops final NUL bytes and rounds numbers
        raise ValueError("path: two classes of the model have the same name; save the model again.")
    quantifier.train_prevalences_ = np.asarray(config["train_prevalences"], dtype=np.float64)
    quantifier.input_shape_, quantifier.feature_names_ = tuple(config["input_shape"]), config["feature_names"]
    quantifier.double_, quantifier.scores_ = bool(config.get("double")), bool(config.get("scores"))
    quantifier._check_params()
    learned = {**config["learned"], "trust": tuple(trust)}
    for part in (*quantifier.stored, *_CALIBRATED):
        part.restore(quantifier, arrays, learned)
    return quantifier


def _constructed(estimator: type[Any], params: dict[str, Any]) -> Any:
    """Construct a quantifier from stored parameters; models of earlier versions may use former names."""
    return estimator(**{estimator.renamed_params.get(name, name): value for name, value in params.items()})


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and "skops" in value


def is_own(value: Any) -> bool:
    """Return whether a parameter, or a field of it, is the user's own object, which is not stored."""
    if not isinstance(value, dict):
        return False
    fields = value.get("fields")
    return "custom" in value or (isinstance(fields, dict) and any(map(is_own, fields.values())))


def _to_json(name: str, value: Any, arrays: Arrays) -> Any:
    """Return the JSON of a parameter, and add the arrays of a fitted classifier to `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray | range | tuple | list):
        listed = [_to_json(f"{name}/{i}", v, arrays) for i, v in enumerate(value)]
        if not any(isinstance(v, dict) and "quantifier" not in v for v in listed):
            return listed
    if hasattr(value, "stored"):
        return _quantifier_to_json(name, value, arrays)
    plain = to_plain(value, f"params/{name}/") if isinstance(value, BaseEstimator) else None
    if plain is not None:
        arrays |= plain[1]
        return {"sklearn": plain[0]}
    if isinstance(value, BaseEstimator) and type(value).__module__.startswith("sklearn."):
        return {"skops": base64.b64encode(dump_classifier(value)).decode()}
    if type(value) in _DATACLASSES.values():
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "callbacks"}
        stored = {field: _to_json(name, given, arrays) for field, given in fields.items()}
        return {"type": type(value).__name__, "fields": stored}
    return {"custom": type(value).__name__}


def _quantifier_to_json(name: str, value: Any, arrays: Arrays) -> dict[str, Any]:
    """Return the JSON of a quantifier that is a parameter of another quantifier."""
    kind, given = type(value), value.get_params(deep=False)
    params = {own: _to_json(f"{name}/{own}", v, arrays) for own, v in given.items()}
    unknown = [own for own, stored in params.items() if is_own(stored)]
    if unknown or not _is_registered(kind):
        what = f"with its own {unknown[0]}" if unknown else "of a class of your own"
        raise TypeError(
            f"{name}: a {kind.__name__} {what} cannot be stored within another quantifier; save it by itself."
        )
    return {"quantifier": kind.__name__, "params": params}


def _from_json(name: str, value: Any, arrays: Arrays, trust: Sequence[str], custom: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(name, v, arrays, trust, custom) for v in value)
    if not isinstance(value, dict):
        return value
    if "custom" in value:
        if name not in custom:
            own = brief(value["custom"])[1:-1]
            raise ValueError(
                f"{name}: this model was made with its own {name} ({own}), which is not stored; pass it as "
                f"histnetq.load(path, {name}=…)."
            )
        return custom[name]
    if "quantifier" in value:
        params = {own: _from_json(own, v, arrays, trust, {}) for own, v in value["params"].items()}
        return _constructed(REGISTRY[value["quantifier"]].load(), params)
    if "sklearn" in value:
        return from_plain(value["sklearn"], arrays)
    if _is_file(value):
        return load_classifier(base64.b64decode(value["skops"]), trust)
    kind = _DATACLASSES[value["type"]]
    if "callbacks" in value["fields"]:
        raise ValueError(
            f"path: {name} has callbacks, which are never written to a model, so the file was changed; save the model "
            "again."
        )
    return kind(**{k: _from_json(name, v, arrays, trust, custom) for k, v in value["fields"].items()})
