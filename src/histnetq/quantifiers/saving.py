"""The model directory: ``config.json`` and ``model.safetensors``, nothing that runs code when it is read.

A directory is written beside its destination and moved there when it is complete; the configuration carries a
checksum of itself and the weights, so that a truncated or altered model is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dump_estimator", "load_estimator", "read_model", "write_model"]

FORMAT = 1
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


def write_model(
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


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
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


def dump_estimator(estimator: Any) -> bytes:
    """The skops form of a scikit-learn estimator."""
    import skops.io

    stored: bytes = skops.io.dumps(estimator)
    unsafe = _unsafe_types(stored)
    if unsafe:
        raise TypeError(
            f"save: the classifier holds a {unsafe[0]}, expected parts of scikit-learn alone; keep such a model with "
            "your own means and predict from its posteriors by predict_posteriors."
        )
    return stored


def _unsafe_types(stored: bytes) -> list[str]:
    """Types in a skops file that are neither known to skops nor classes of scikit-learn."""
    import skops.io

    return [name for name in skops.io.get_untrusted_types(data=stored) if not _is_class_of_sklearn(name)]


def _is_class_of_sklearn(name: str) -> bool:
    # A class is made without running its constructor; a function might be called, so none is let in.
    module, _, attribute = name.rpartition(".")
    if not module.startswith("sklearn."):
        return False
    try:
        return isinstance(getattr(importlib.import_module(module), attribute, None), type)
    except ImportError:
        return False


def load_estimator(stored: bytes) -> Any:
    """A scikit-learn estimator from its skops form, which holds no code; unknown types are refused."""
    import skops.io

    unsafe = _unsafe_types(stored)
    if unsafe:
        raise ValueError(f"path: the stored classifier uses {unsafe[0]}, not known to be safe; refit instead.")
    return skops.io.loads(stored, trusted=skops.io.get_untrusted_types(data=stored))


def _checksum(weights: Path, config: dict[str, Any]) -> str:
    """Of the weights and of the configuration without its checksum."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    with weights.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
