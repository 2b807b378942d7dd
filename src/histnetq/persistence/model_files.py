"""The files of a model directory: a manifest and the weights that it names, replaced together or not at all.

``config.json`` is the manifest: a description of the model, the name and checksum of the weights file, and a checksum
of the manifest itself. Weights are in ``weights-<checksum>-<random>.safetensors``. No other save uses this name, so a
file never changes once a manifest names it. A single rename of the manifest replaces the old model by the new one: a
save that is killed before the rename leaves the old model, and after the rename the new model.

In object storage, each file is written in one step, and the manifest is replaced the same way.

The old weights are then deleted. A reader that has just read the old manifest finds them missing, and reads the
manifest again. Files of killed saves are deleted by a later save if they are more than an hour old, as younger files
may belong to a save that is still running.

This module does not import scikit-learn or torch, and nothing in a file is imported, called or used as a path.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import stat
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from histnetq.bags.limits import LONGEST_NAME
from histnetq.errors import Command, ExistingFileError, FileInputError, InputError, MissingFileError, Option, Way
from histnetq.registry import REGISTRY
from histnetq.tables.files import open_at_once
from histnetq.tables.places import Address, as_place, count_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = 2
_CONFIG = "config.json"
_NAME = re.compile(r"weights-[0-9a-f]{16}-[0-9a-f]{16}\.safetensors")
_PARTIAL = re.compile(r"\.config-[0-9a-f]{16}\.json")
_LARGEST_CONFIG, _LARGEST_HEADER = 64 << 20, 64 << 20  # bytes
_MOST_ENTRIES = 1_000_000  # entries of all lists and mappings: Python objects take much more memory than their JSON
_DEEPEST = 100  # levels of nested lists and mappings
_GRACE = 3600.0  # seconds after which a file that no manifest names is left over from a killed save
FIT = Command("fit", "save()")
AGAIN = (Way("save again", on=("python", "service")), Way("fit again", on=("command",)))
_GIVE_DIRECTORY = ("give a directory that ", FIT, " wrote")
_DAMAGED = "does not match its checksum, it is truncated or was altered; copy it again."


def write_model(
    path: str | os.PathLike[str], config: dict[str, Any], arrays: dict[str, NDArray], overwrite: bool
) -> None:
    """Write a model directory completely or not at all."""
    import numpy as np
    from safetensors.numpy import save

    target = as_place(path)
    _refuse_occupied(target, overwrite)
    content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    digest, draw = hashlib.sha256(content).hexdigest(), uuid.uuid4().hex[:16]
    weights, partial = f"weights-{digest[:16]}-{draw}.safetensors", f".config-{draw}.json"
    full = {"format": FORMAT, **config, "weights": weights, "weights_sha256": digest}
    full["sha256"] = _checksum(full)
    try:
        text = json.dumps(full, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise ValueError(
            "save: a parameter or the provenance holds NaN or infinity, expected finite numbers; change it first."
        ) from None
    if _count_entries(text.encode()) > _MOST_ENTRIES:
        raise ValueError(
            f"save: the model has more than {_MOST_ENTRIES:,} names and parameters, expected fewer; leave out features."
        )
    if isinstance(target, Address):
        _upload(target, weights, content, text.encode())
        return
    made = not target.exists()
    try:
        os.makedirs(target, exist_ok=True)
        _write_durably(target / weights, content)
        _write_durably(target / partial, text.encode())
        _sync_directory(target)
        replaced = _named_weights(target)
        os.replace(target / partial, target / _CONFIG)
    except BaseException as error:
        with contextlib.suppress(OSError):
            if _named_weights(target) != weights:  # otherwise the interruption came after the rename
                _delete(target / partial, target / weights)
                if made:
                    os.rmdir(target)
        if not isinstance(error, OSError):
            raise
        problem = f"{target} cannot be written ({error.strerror or error})"
        raise FileInputError("path", problem=problem, remedy="choose another place") from None
    with contextlib.suppress(OSError):  # the model is complete; the next save deletes leftover files
        _sync_directory(target)
        if replaced is not None:
            _delete(target / replaced)
        _delete(*_leftovers(target))


def _upload(target: Address, weights: str, content: bytes, manifest: bytes) -> None:
    """Write a model to object storage: first the weights under a name of their own, then the manifest in one step."""
    replaced = _named_weights(target)
    try:
        (target / weights).write(content)
        (target / _CONFIG).write(manifest)
    except BaseException:
        with contextlib.suppress(OSError):
            if _named_weights(target) != weights:  # otherwise the interruption came after the manifest was replaced
                (target / weights).delete()
        raise
    if replaced is not None:
        with contextlib.suppress(OSError):  # the model is complete
            (target / replaced).delete()


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read and check the manifest and the weights of a model directory."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    directory, missed = as_place(path), None
    while True:
        config = read_manifest(directory)
        name = config["weights"]
        try:
            content = _read_file(directory / name, None)
            break
        except FileNotFoundError:
            if missed == name:
                raise _missing(directory, name) from None
            missed = name  # another save may have replaced the manifest and deleted these weights
    if config["weights_sha256"] != hashlib.sha256(content).hexdigest():
        raise ValueError(f"path: {directory} {_DAMAGED}")
    try:
        arrays = load(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"path: {directory / name} holds no arrays ({reason}); save the model again.") from None
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(
                f"path: {directory} has NaN or infinity in its array {name!r}, expected finite numbers; fit again."
            )
    return config, arrays


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the manifest without the weights, and check its checksum and the type of each entry."""
    directory = as_place(path)
    try:
        text = _read_file(directory / _CONFIG, _LARGEST_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(directory, _CONFIG) from None
    if (n_entries := _count_entries(text)) > _MOST_ENTRIES:
        raise ValueError(
            f"path: {directory / _CONFIG} has {n_entries:,} entries, expected at most {_MOST_ENTRIES:,}; save again."
        )
    try:
        config = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        version = config["format"]
        _refuse_deep(config)
        json.dumps(config, ensure_ascii=False).encode()  # raises an error for lone surrogates
    except (ValueError, KeyError, TypeError, RecursionError):
        problem = (f"{directory / _CONFIG} is damaged, expected the JSON that ", FIT, " wrote")
        raise InputError("path", problem=problem, remedy=AGAIN) from None
    if version != FORMAT:
        raise ValueError(
            f"path: {directory} has format {_shown(version)}, this version of histnetq reads {FORMAT}; "
            "upgrade histnetq."
        )
    if config.pop("sha256", None) != _checksum(config):
        raise ValueError(f"path: {directory} {_DAMAGED}")
    check_manifest(directory, config)
    return config


def _count_entries(text: bytes) -> int:
    """Return an upper bound of the entries of lists and mappings in JSON, without parsing it."""
    return sum(text.count(sign) for sign in (b",", b"[", b"{"))


def _refuse_constant(name: str) -> None:
    """Raise an error for NaN and infinity, which Python reads although JSON does not allow them."""
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    """Return a number; raise an error for a number such as 1e999, which Python reads as infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def _refuse_deep(config: Any) -> None:
    """Raise an error for lists and mappings that are nested too deep for recursive functions."""
    level, depth = [config], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            raise ValueError(f"it has more than {_DEEPEST} levels")
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]


def require_known_method(path: str | os.PathLike[str], config: dict[str, Any]) -> None:
    """Raise an error for a method that this library does not have, also if a user's class has the name of a method."""
    if config["estimator"] not in REGISTRY or config.get("own_class", False):
        raise ValueError(
            f"path: {path} holds an unknown estimator {config['estimator']!r}; upgrade histnetq, or pass a class of "
            "your own as histnetq.load(path, estimator=…)."
        )


def array_shapes(path: str | os.PathLike[str], config: dict[str, Any]) -> dict[str, list[int]]:
    """Return the shapes of the stored arrays by name; only the header of the weights file is read."""
    file = as_place(path) / config["weights"]
    try:
        content, size = _read_file(file, None, first=8), count_bytes(file)
        n_header = int.from_bytes(content, "little")
        if len(content) < 8 or n_header > _LARGEST_HEADER:
            raise ValueError
        listed = json.loads(_read_file(file, None, first=8 + n_header)[8:])
        listed.pop("__metadata__", None)
        shapes = {str(name): [int(n) for n in about["shape"]] for name, about in listed.items()}
        if size != 8 + n_header + max((int(about["data_offsets"][1]) for about in listed.values()), default=0):
            raise ValueError
    except FileNotFoundError:
        raise _missing(as_place(path), file.name) from None
    except (ValueError, KeyError, TypeError, LookupError, AttributeError, RecursionError):
        raise ValueError(f"path: {path} {_DAMAGED}") from None
    return shapes


def _write_durably(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power failure, on systems that can open directories."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _delete(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _leftovers(directory: Path) -> list[Path]:
    """Return the files that killed saves have left."""
    named, before = _named_weights(directory), time.time() - _GRACE
    ours = [p for p in directory.iterdir() if _is_ours(p.name) and p.name not in (named, _CONFIG)]
    return [p for p in ours if p.stat().st_mtime < before]


def _is_ours(name: str) -> bool:
    return name == _CONFIG or bool(_NAME.fullmatch(name) or _PARTIAL.fullmatch(name))


def _named_weights(directory: Path | Address) -> str | None:
    """Return the name of the weights file in the manifest, or None without a valid manifest."""
    try:
        return str(read_manifest(directory)["weights"])
    except (OSError, ValueError):
        return None


def _refuse_occupied(target: Path | Address, overwrite: bool) -> None:
    """Raise an error if the target exists, unless it is a model directory and `overwrite` is True."""
    if isinstance(target, Address):
        kind = target.kind()
        names = set(target.names()) if kind == "directory" else set() if kind is None else {""}
    elif not os.path.lexists(target):
        return
    else:
        names = {p.name for p in target.iterdir()} if target.is_dir() else {""}
    if all(_NAME.fullmatch(name) or _PARTIAL.fullmatch(name) for name in names):
        return  # it is empty, or has only files of a killed first save
    if not overwrite:
        remedy = ("choose another name", Way(" or pass ", Option("overwrite", True), " to replace it"))
        raise ExistingFileError("path", problem=f"{target} exists", remedy=remedy)
    try:
        found = json.loads(_read_file(target / _CONFIG, _LARGEST_CONFIG))
        ours = {"format", "estimator", "sha256"} <= found.keys()
    except (OSError, ValueError, AttributeError, RecursionError):
        ours = False
    if not ours or not all(_is_ours(name) for name in names):
        raise FileExistsError(f"path: {target} exists and is not a model directory; it is left alone, choose another.")


def _read_file(path: Path | Address, most: int | None, first: int = -1) -> bytes:
    """Read a regular file, or its first bytes; raise an error for a pipe or device instead of waiting for it."""
    if isinstance(path, Address):
        _refuse_large(path, path.n_bytes(), most)
        return path.read(first)
    try:
        with open(path, "rb", opener=open_at_once) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise InputError("path", problem=f"{path} is not a regular file", remedy=_GIVE_DIRECTORY)
            _refuse_large(path, about.st_size, most)
            return file.read(first)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise FileInputError("path", problem=problem, remedy=_GIVE_DIRECTORY) from None
    except MemoryError:
        raise InputError("path", problem=f"{path} does not fit into memory", remedy=_GIVE_DIRECTORY) from None


def _refuse_large(path: Path | Address, size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise ValueError(f"path: {path} has {size:,} bytes, expected at most {most:,}; save the model again.")


def _checksum(config: dict[str, Any]) -> str:
    """Return the checksum of a manifest that does not contain a checksum yet."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _missing(directory: Path | Address, name: str) -> FileNotFoundError:
    problem = f"{directory} is not a model directory, it has no {name}"
    return MissingFileError("path", problem=problem, remedy=("give one that ", FIT, " wrote"))


def check_manifest(directory: Path | Address, config: dict[str, Any], is_member: bool = False) -> None:
    """Raise an error for a manifest that `write_model` cannot have written; members of a model have no weights file."""
    for key, (fits, wanted) in _ENTRIES.items():
        if is_member and key in ("weights", "weights_sha256"):
            continue
        if not fits(config.get(key), config):
            raise ValueError(
                f"path: {directory / _CONFIG} has {key} {_shown(config.get(key))}, expected {wanted}; save again."
            )


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, list | dict) else f"of {len(value)} entries"
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63


def _are_short(value: list[Any]) -> bool:
    return all(isinstance(v, str) and len(v) <= LONGEST_NAME for v in value)


def _are_classes(value: Any, config: dict[str, Any]) -> bool:
    if not isinstance(value, list) or not value:
        return False
    of_one_kind = _are_short(value) or all(isinstance(v, bool) for v in value) or all(_is_number(v) for v in value)
    return of_one_kind and len(set(value)) == len(value)


def _are_prevalences(value: Any, config: dict[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == len(config["classes"])
        and all(_is_number(v) and v >= 0 for v in value)
        and math.isclose(sum(value), 1, abs_tol=1e-6)
    )


def _is_shape(value: Any, config: dict[str, Any]) -> bool:
    whole = isinstance(value, list) and all(type(v) is int and 0 <= v < 2**31 for v in value)
    return whole and len(value) <= 8 and math.prod(value) < 2**40


def _are_names(value: Any, config: dict[str, Any]) -> bool:
    named = isinstance(value, list) and _are_short(value)
    return (value is None and "feature_names" in config) or (named and config["input_shape"] == [len(value)])


def _is_scored(value: Any, config: dict[str, Any]) -> bool:
    fits = config["input_shape"] == [len(config["classes"])]
    return value is None or value is False or (value is True and fits)  # models of earlier versions have None


def _is_name(value: Any, config: dict[str, Any]) -> bool:
    return isinstance(value, str) and len(value) <= 200


# Types of the entries that reports, the command line and the service read; other entries may have any type.
_PROVENANCE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("command", "date", "why", "calibrated", "uncalibrated", "interrupted"), (str,)),
    **dict.fromkeys(("weight", "weight_kind"), (str,)),
    **dict.fromkeys(("bags", "rows", "calibration_bags", "dropped_rows", "filled_cells"), (int,)),
    **dict.fromkeys(("left_out", "versions", "errors"), (dict,)),
    "seconds": (int, float),
    "sources": (list,),
}


def _is_provenance(value: Any, config: dict[str, Any]) -> bool:
    if value is None or not isinstance(value, dict):
        return value is None and "provenance" in config
    fits = all(value.get(name) is None or type(value[name]) in kinds for name, kinds in _PROVENANCE.items())
    errors = value.get("errors")
    return fits and (errors is None or (type(errors.get("bags")) is int and _are_numbers(errors.get("ae"))))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and len(value) > 0 and all(_is_number(number) for number in value.values())


def _is_mapping(value: Any, config: dict[str, Any]) -> bool:
    return isinstance(value, dict)


_ENTRIES = {
    "estimator": (_is_name, "the name of a method"),
    "classes": (
        _are_classes,
        f"a list of different numbers, or of different texts of at most {LONGEST_NAME:,} characters",
    ),
    "train_prevalences": (_are_prevalences, "a share of each class, with sum 1"),
    "input_shape": (_is_shape, "the shape of a row"),
    "feature_names": (_are_names, f"a name of each feature of at most {LONGEST_NAME:,} characters, or null"),
    "scores": (_is_scored, "true for features that are probabilities of the classes, else false"),
    "params": (_is_mapping, "parameters by name"),
    "learned": (_is_mapping, "values by name"),
    "provenance": (_is_provenance, "values of known types by name"),
    "weights": (
        lambda value, config: isinstance(value, str) and bool(_NAME.fullmatch(value)),
        "the name of the file of the weights",
    ),
    "weights_sha256": (
        lambda value, config: isinstance(value, str),
        "the checksum of the weights",
    ),
}
