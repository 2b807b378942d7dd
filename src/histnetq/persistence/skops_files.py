"""scikit-learn classifiers that are not built-in, in the format of skops.

Only a user's own classifier needs skops. A skops file names the types of its objects, and is inspected before skops
reads it: nodes that call a function are an error, and so is each type that is neither on a fixed list nor trusted by
the user who loads the file.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import math
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from histnetq.persistence.classifier_files import DAMAGED, from_plain, nodes, other_version, to_plain, unreadable


def dump_classifier(estimator: Any) -> bytes:
    """Return an estimator in the format of skops; raise an error if `load_classifier` would refuse it."""
    import skops.io

    try:
        _refuse_caches(estimator)
        stored: bytes = skops.io.dumps(estimator)
        _types_to_trust(stored)
    except Exception as error:  # any object may be part of an estimator, and skops fails in many ways
        reason = " ".join(str(error).removeprefix(f"{DAMAGED} (").split(");")[0].split())
        raise TypeError(
            f"save: the classifier cannot be stored ({reason}); keep such a model with your own means and predict "
            "from its posteriors by predict_posteriors."
        ) from None
    return stored


def require_trust(files: Iterable[bytes], trust: Iterable[str]) -> set[str]:
    """Return the types in skops files that need trust; raise an error if one of them is not in `trust`."""
    needed, trusted = {name for stored in files for name in _types_to_trust(stored)}, set(trust)
    if not needed <= trusted:
        raise ValueError(
            f"path: the stored classifier holds {', '.join(sorted(needed - trusted))}, which can run code when it is "
            "loaded; if you trust where the model comes from, load it in Python by "
            f"histnetq.load(path, trust={sorted(needed)})."
        )
    return needed


def load_classifier(stored: bytes, trust: Iterable[str] = ()) -> Any:
    """Read an estimator in the format of skops; raise an error for types neither on the fixed list nor in `trust`."""
    import skops.io

    needed = require_trust([stored], trust)
    for name in sorted(needed):
        module, _, attribute = name.rpartition(".")
        found = None
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(_MODULES.get(module, module)), attribute, None)
        if not isinstance(found, type) or found.__module__ != module:
            if other_version(_schema(stored)):
                raise unreadable(f"{name} is not there", _schema(stored))
            raise ValueError(f"trust: {name} is not a class that is defined there; name the class itself.")
    try:
        estimator = skops.io.loads(stored, trusted=sorted(needed.union(*_WITHOUT_TRUST.values())))
        _refuse_caches(estimator)
        plain = to_plain(estimator)
        return estimator if plain is None else from_plain(*plain)
    except Exception as error:  # wrong attributes raise many kinds of errors in scikit-learn
        raise unreadable(error, _schema(stored)) from None


def _schema(stored: bytes) -> Any:
    """Return the description of the objects in a skops file that was inspected before."""
    return json.loads(zipfile.ZipFile(io.BytesIO(stored)).read("schema.json"))


def _refuse_caches(estimator: Any) -> None:
    """Raise an error for a pipeline that caches its steps in a directory, as the next fit would unpickle them.

    All objects in the estimator are inspected, as `get_params` shows only one of two steps with the same name.
    """
    waiting, seen = [estimator], dict[int, Any]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # a reference, so that no other object gets the same id
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            waiting.extend(value)
        elif isinstance(value, np.ndarray):
            waiting.extend(value.ravel().tolist() if value.dtype == object else ())
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            held = vars(value)
            if isinstance(value, BaseEstimator) and held.get("memory") is not None:
                raise ValueError("a pipeline has a cache, expected memory=None")
            waiting.extend(held.values())


# Types that a skops file may contain without trust: data, or classes whose constructor is not called.
_NUMBERS = frozenset(f"numpy.{name}" for name in (
    "bool", "bool_", "float32", "float64", "int32", "int64", "str_", "uint8"
))  # fmt: skip
_WITHOUT_TRUST: dict[str, frozenset[str]] = {
    "CachedNode": frozenset(),  # a reference to another object in the file
    "DTypeNode": frozenset({"numpy.dtype"}),  # the type of an empty array
    "DictNode": frozenset({"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"}),
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "MaskedArrayNode": frozenset({"numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray"}),  # an array and a mask
    "NdArrayNode": frozenset({"numpy.ndarray"}) | _NUMBERS,
    "ObjectNode": frozenset({
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.StandardScaler",
    }),  # the default classifiers in models of version 0.1.0
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState", "numpy.random.RandomState"}),  # numbers
    "SetNode": frozenset({"builtins.set"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    # Types that convert the keys of dictionaries, which are texts, or the type of a vectoriser's numbers.
    "TypeNode": frozenset({"builtins.bool", "builtins.float", "builtins.int", "builtins.str"}) | _NUMBERS,
}  # fmt: skip
# Nodes that are allowed with trust: objects without calling their constructor, trees of arrays, and losses.
_WITH_TRUST: dict[str, tuple[str, ...]] = {
    "ObjectNode": ("",), "TreeNode": ("sklearn.tree._tree.",), "LossNode": ("sklearn._loss.", "_loss."),
}  # fmt: skip
# scikit-learn before 1.9 used this name for its compiled losses; no other module of this name is ever imported.
_MODULES = {"_loss": "sklearn._loss._loss"}


def _types_to_trust(stored: bytes) -> set[str]:
    """Inspect a skops file without importing or calling anything in it, and return the types that need trust."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(stored))
        members = archive.infolist()
        stored_plainly = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored_plainly or sum(member.file_size for member in members) > len(stored):
            raise ValueError("its parts are compressed, or together larger than the file")
        if len({member.filename for member in members}) != len(members):
            raise ValueError("two of its parts have the same name")
        for member in members:
            if member.filename != "schema.json":
                _check_numpy_file(archive.read(member))
        found = nodes(json.loads(archive.read("schema.json")))
        return {name for node in found if "__loader__" in node for name in _type_to_trust(node)}
    except (ValueError, TypeError, LookupError, EOFError, OSError, RecursionError, NotImplementedError,
            RuntimeError, zipfile.BadZipFile) as error:  # fmt: skip
        raise unreadable(error) from None


def _type_to_trust(node: dict[str, Any]) -> set[str]:
    loader, module, name = (node.get(key) for key in ("__loader__", "__module__", "__class__"))
    if not isinstance(loader, str) or not isinstance(module, str) or not isinstance(name, str) or "." in name:
        raise ValueError("it has a part without a type")
    full = f"{module}.{name}"
    if loader == "CachedNode" or full in _WITHOUT_TRUST.get(loader, ()):
        return set()
    if loader not in _WITH_TRUST or not full.startswith(_WITH_TRUST[loader]):
        raise ValueError(f"it would call or make {full[:80]} by {loader[:40]}, which no model may")
    return {full}


def _check_numpy_file(content: bytes) -> None:
    """Raise an error for an array of objects, or with a wrong size."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell() or any(n < 0 for n in shape):
        raise ValueError("it has an array of objects or of another size than its file")
