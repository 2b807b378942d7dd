"""The model directory: ``config.json`` and ``model.safetensors``, nothing that runs code when it is read.

A directory is written beside its destination and moved there when it is complete; the configuration carries a
checksum of itself and the weights, so that a truncated or altered model is refused.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import shutil
import uuid
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from histnetq.data import protocols
from histnetq.metrics import CostSensitiveAE
from histnetq.quantifiers.classifier_files import dump_classifier, from_plain, load_classifier, to_plain
from histnetq.quantifiers.registry import REGISTRY
from histnetq.training.options import Training
from histnetq.uncertainty.conformal import Calibration
from histnetq.uncertainty.trust import Trust

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier

Arrays = dict[str, NDArray]
FORMAT = 1
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_DATACLASSES = {t.__name__: t for t in (Training, CostSensitiveAE)} | {
    name: getattr(protocols, name) for name in protocols.__all__
}


class Stored:
    """A part of what a fitted model keeps in its directory."""

    def arrays(self, model: Any) -> Arrays:
        """Give the arrays to store, by name."""
        return {}

    def learned(self, model: Any) -> dict[str, Any]:
        """Give what else was learned, as JSON."""
        return {}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        """Put back into the model what `arrays` and `learned` gave."""
        raise NotImplementedError


class StoredArrays(Stored):
    """Arrays that are attributes of the model.

    Parameters
    ----------
    *attributes : str
        Names of the attributes, with a final underscore, which the names of the arrays lack.
    """

    def __init__(self, *attributes: str) -> None:
        self.attributes = attributes

    def arrays(self, model: Any) -> Arrays:
        return {name[:-1]: getattr(model, name) for name in self.attributes if hasattr(model, name)}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        for name in self.attributes:
            if name[:-1] in arrays:
                setattr(model, name, arrays[name[:-1]])


class StoredParts(Stored):
    """A dataclass of arrays that is an attribute of the model, if it is there.

    Parameters
    ----------
    attribute : str
        Name of the attribute; the names of the arrays begin with it.
    kind : class
        The dataclass.
    """

    def __init__(self, attribute: str, kind: type) -> None:
        self.attribute, self.kind, self.prefix = attribute, kind, f"{attribute[:-1]}/"

    def arrays(self, model: Any) -> Arrays:
        found = getattr(model, self.attribute, None)
        return {} if found is None else {f"{self.prefix}{name}": array for name, array in vars(found).items()}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        found = {k.removeprefix(self.prefix): v for k, v in arrays.items() if k.startswith(self.prefix)}
        if found:
            make = getattr(self.kind, "from_stored", None)
            setattr(model, self.attribute, self.kind(**found) if make is None else make(found))


_CALIBRATED = (StoredParts("calibration_", Calibration), StoredParts("trust_", Trust))


def save(model: Any, path: str | os.PathLike[str], overwrite: bool) -> None:
    """Write a fitted quantifier to a directory that `load` reads."""
    kind, classes = type(model), model.classes_.tolist()
    if model.classes_.dtype.kind not in "biufU":
        raise TypeError(f"classes: {classes[0]!r} cannot be stored, expected strings or numbers; rename classes.")
    arrays, learned = dict[str, NDArray](), dict[str, Any]()
    for part in (*model.stored, *_CALIBRATED):
        arrays |= part.arrays(model)
        learned |= part.learned(model)
    config = {
        "estimator": kind.__name__, "version": metadata.version("histnetq"), "classes": classes,
        "params": {name: _to_json(value) for name, value in model.get_params(deep=False).items()},
        "input_shape": list(model.input_shape_), "feature_names": model.feature_names_,
        "train_prevalences": model.train_prevalences_.tolist(), "learned": learned,
        "provenance": getattr(model, "provenance_", {}),
    }  # fmt: skip
    if kind.__name__ not in REGISTRY or kind is not REGISTRY[kind.__name__].load():
        config["own_class"] = True
    _write_model(path, config, arrays, overwrite)


def load(path: str | os.PathLike[str], *, estimator: type[Quantifier] | None = None, **custom: Any) -> Quantifier:
    """Read a quantifier that `save` wrote.

    Parameters
    ----------
    path : str or path
        The directory of the model.
    estimator : class, default=None
        The class of the model, if it is one of your own, such as a subclass of `EMQ`. A model of this library needs
        none, and never becomes one of another class.
    **custom : dict
        Parameters that cannot be stored, such as ``encoder=`` (a module of the same architecture) or ``loss=``, if the
        model was made with its own.

    Returns
    -------
    Quantifier
        The fitted quantifier.

    Examples
    --------
    >>> import tempfile, histnetq as hq
    >>> place = tempfile.mkdtemp()
    >>> hq.MLPE().fit([[0.0], [1.0]], ["a", "b"]).save(place)
    >>> hq.load(place).predict([[0.0]])
    array([0.5, 0.5])
    """
    config, arrays = _read_model(path)
    name = str(config.get("estimator"))
    if estimator is None:
        if name not in REGISTRY or config.get("own_class", False):
            raise ValueError(
                f"path: {path} holds an unknown estimator {name!r}; upgrade histnetq, or pass a class of your own as "
                "histnetq.load(path, estimator=…)."
            )
        estimator = REGISTRY[name].load()
    elif estimator.__name__ != name:
        raise ValueError(f"estimator: {path} holds a {name}, got {estimator.__name__}; pass the class that was saved.")
    try:
        params = {name: _from_json(name, value, custom) for name, value in config["params"].items()}
        if custom:
            told = f"load: {sorted(custom)[0]!r} was stored with the model and cannot be replaced; leave it out."
            raise TypeError(told)
        quantifier = estimator(**params)
        quantifier.provenance_ = config.get("provenance", {})
        prevalences = np.asarray(config["train_prevalences"], dtype=np.float64)
        quantifier.classes_, quantifier.train_prevalences_ = np.asarray(config["classes"]), prevalences
        quantifier.input_shape_, quantifier.feature_names_ = tuple(config["input_shape"]), config["feature_names"]
        learned = config["learned"]
    except (KeyError, AttributeError):
        raise ValueError(f"path: {path} has a configuration that save() did not write; save again.") from None
    for part in (*quantifier.stored, *_CALIBRATED):
        part.restore(quantifier, arrays, learned)
    return quantifier


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray | range | tuple | list):
        listed = [_to_json(v) for v in value]
        if not any(isinstance(v, dict) for v in listed):
            return listed
    plain = to_plain(value) if isinstance(value, BaseEstimator) else None
    if plain is not None and not plain[1]:
        return {"sklearn": plain[0]}
    if isinstance(value, BaseEstimator) and type(value).__module__.startswith("sklearn."):
        return {"skops": base64.b64encode(dump_classifier(value)).decode()}
    if type(value) in _DATACLASSES.values():
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "callbacks"}
        return {"type": type(value).__name__, "fields": {name: _to_json(field) for name, field in fields.items()}}
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
    if "sklearn" in value:
        return from_plain(value["sklearn"], {})
    if "skops" in value:
        return load_classifier(base64.b64decode(value["skops"]))
    kind = _DATACLASSES[value["type"]]
    return kind(**{k: _from_json(name, v, custom) for k, v in value["fields"].items()})


def _write_model(
    path: str | os.PathLike[str], config: dict[str, Any], weights: dict[str, NDArray], overwrite: bool
) -> None:
    """Write a model directory, all of it or nothing."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    target = Path(path)
    _refuse_occupied(target, overwrite)
    made, replaced = (target.with_name(f".{target.name}-{uuid.uuid4().hex}{end}") for end in ("", ".old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir()
        save_file({k: np.ascontiguousarray(v) for k, v in weights.items()}, made / _WEIGHTS)
        full = {"format": FORMAT, **config}
        full["sha256"] = _checksum(made / _WEIGHTS, full)
        (made / _CONFIG).write_text(json.dumps(full, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if target.exists():
            os.replace(target, replaced)
        os.replace(made, target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(f"path: {target} cannot be written ({reason}); choose another place.") from None
    finally:
        if replaced.exists() and not target.exists():
            os.replace(replaced, target)
        shutil.rmtree(made, ignore_errors=True)
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)


def _refuse_occupied(target: Path, overwrite: bool) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"path: {target} exists; choose another name or pass overwrite=True to replace it.")
    try:
        ours = {"format", "estimator", "sha256"} <= json.loads((target / _CONFIG).read_text(encoding="utf-8")).keys()
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours or {p.name for p in target.iterdir()} - {_CONFIG, _WEIGHTS}:
        raise FileExistsError(f"path: {target} exists and is not a model directory; it is left alone, choose another.")


def _read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read a model directory: its configuration and its weights, both checked."""
    from safetensors.numpy import load_file

    directory = Path(path)
    for name in (_CONFIG, _WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(
                f"path: {directory} is not a model directory, it has no {name}; "
                "give one that save() or histnetq fit wrote."
            )
    try:
        config = json.loads((directory / _CONFIG).read_text(encoding="utf-8"))
        version = config["format"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"path: {directory / _CONFIG} is damaged, expected the JSON that save() wrote; save again."
        ) from None
    if version != FORMAT:
        raise ValueError(
            f"path: {directory} has format {version!r}, this version of histnetq reads {FORMAT}; upgrade histnetq."
        )
    if config.pop("sha256", None) != _checksum(directory / _WEIGHTS, config):
        raise ValueError(
            f"path: {directory} does not match its checksum, it is truncated or was altered; copy it again."
        )
    return config, load_file(directory / _WEIGHTS)


def _checksum(weights: Path, config: dict[str, Any]) -> str:
    """Of the weights and of the configuration without its checksum."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    with weights.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
