"""scikit-learn classifiers as data: those of the command line as plain arrays, any other in the format of skops.

Plain forms are numbers, texts and parameters of a fixed list of kinds, and are checked before anything is made of
them. Only a user's own classifier needs skops, whose files name the types that they are made of. Such a file is
inspected before skops sees it: nodes that call a function are refused, and so is each type that is neither on a fixed
list nor named by whoever loads the file.
"""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler

from histnetq.quantifiers.tree_files import (
    boosting_arrays,
    checked_array,
    forest_arrays,
    restore_boosting,
    restore_forest,
)

Arrays = dict[str, NDArray]
_DAMAGED = "path: the stored classifier is damaged"
_AGAIN = "save the model again."


def to_plain(estimator: Any, prefix: str = "") -> tuple[dict[str, Any], Arrays] | None:
    """Describe a classifier of the kinds in `_PLAIN`, or a pipeline of these, by JSON and arrays; None for any other.

    Examples
    --------
    >>> model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> from_plain(*to_plain(model)).predict([[0.0], [1.0]])
    array([0, 1])
    """
    if type(estimator) is Pipeline:
        return _pipeline_to_plain(estimator, prefix)
    if type(estimator) not in _PLAIN:
        return None
    params = {name: _plain_value(value) for name, value in estimator.get_params(deep=False).items()}
    described: dict[str, Any] = {"type": type(estimator).__name__, "params": params, "prefix": prefix}
    if any(value is _NOT_PLAIN for value in params.values()):
        return None
    arrays: Arrays | None = {}
    if hasattr(estimator, "n_features_in_"):
        described["n_features"] = int(estimator.n_features_in_)
        arrays = _PLAIN[type(estimator)][0](estimator)
    if arrays is None:
        return None
    if hasattr(estimator, "classes_"):
        classes = np.asarray(estimator.classes_)
        if all(isinstance(name, str) for name in classes.tolist()):
            described["classes"] = classes.tolist()
        else:
            arrays = {**arrays, "classes_": classes}
    if any(array.dtype.kind not in "biuf" for array in arrays.values()):
        return None
    arrays = {f"{prefix}{name}": array for name, array in arrays.items()}
    try:
        from_plain(described, arrays)
    except ValueError:  # such as a tree that splits off missing values, whose threshold is infinite
        return None
    return described, arrays


def from_plain(described: Any, arrays: Arrays) -> Any:
    """Make the estimator that `to_plain` described, fitted or not; nothing but these few kinds is ever made.

    Examples
    --------
    >>> from_plain({"type": "GaussianNB", "params": {}, "prefix": ""}, {})
    GaussianNB()
    """
    try:
        if described["type"] == "Pipeline":
            return _pipeline_from_plain(described, arrays)
        return _one_from_plain(described, arrays)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{_DAMAGED} ({' '.join(str(error).split())}); {_AGAIN}") from None


def _pipeline_to_plain(pipeline: Pipeline, prefix: str) -> tuple[dict[str, Any], Arrays] | None:
    if repr(pipeline.get_params(deep=False)) != repr(Pipeline(pipeline.steps).get_params(deep=False)):
        return None
    steps, arrays = list[Any](), Arrays()
    for i, (name, step) in enumerate(pipeline.steps):
        part = None if type(step) is Pipeline else to_plain(step, f"{prefix}{i}/")
        if part is None:
            return None
        steps.append([name, part[0]])
        arrays |= part[1]
    return {"type": "Pipeline", "steps": steps}, arrays


def _pipeline_from_plain(described: dict[str, Any], arrays: Arrays) -> Pipeline:
    steps = [(str(name), _one_from_plain(step, arrays)) for name, step in described["steps"]]
    *scalers, classifier = [step for _, step in steps]
    if any(type(step) is not StandardScaler for step in scalers) or type(classifier) is StandardScaler:
        raise ValueError("a pipeline has steps in another order than scalers and a classifier")
    if len({getattr(step, "n_features_in_", None) for _, step in steps}) > 1:
        raise ValueError("the steps of a pipeline have different numbers of features")
    return Pipeline(steps)


def _one_from_plain(described: dict[str, Any], arrays: Arrays) -> Any:
    kind = _KINDS[described["type"]]
    known = kind().get_params(deep=False)
    params = {str(name): _plain_value(value) for name, value in described["params"].items()}
    for name, value in params.items():
        if name not in known or value is _NOT_PLAIN:
            raise ValueError(f"{kind.__name__} takes no parameter {name!r} of this value in this scikit-learn")
    estimator = kind(**params)
    estimator._validate_params()
    if "n_features" not in described:
        return estimator
    prefix = str(described["prefix"])
    own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    n_features = described["n_features"]
    if type(n_features) is not int or not 0 < n_features < 2**31:
        raise ValueError(f"n_features is {n_features!r}, expected a whole number above 0")
    if kind is not StandardScaler:
        estimator.classes_ = _checked_classes(described.get("classes"), own)
    _PLAIN[kind][1](estimator, own, n_features)
    estimator.n_features_in_ = n_features
    return estimator


_NOT_PLAIN = object()


def _plain_value(value: Any) -> Any:
    """Give a value that JSON keeps, lists as tuples; `_NOT_PLAIN` for any other."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        listed = tuple(_plain_value(v) for v in value)
        if all(v is None or isinstance(v, bool | int | float | str) for v in listed):
            return listed
    return _NOT_PLAIN


def _checked_classes(texts: Any, arrays: Arrays) -> NDArray:
    if texts is not None:
        if not isinstance(texts, list) or not all(isinstance(name, str) for name in texts):
            raise ValueError("the classes are no list of texts")
        classes = np.array(texts, str)
    else:
        classes = checked_array(arrays, "classes_", (len(np.atleast_1d(arrays["classes_"])),), "biuf")
    if not len(classes) or len(np.unique(classes)) != len(classes):
        raise ValueError("a class is there twice, or there are none")
    return classes


def _attributes(*names: str) -> Callable[[Any], Arrays]:
    def learned(estimator: Any) -> Arrays:
        values = {name: getattr(estimator, name, None) for name in names}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    return learned


def _restore_logistic(estimator: Any, arrays: Arrays, n_features: int) -> None:
    n_scores = 1 if len(estimator.classes_) == 2 else len(estimator.classes_)
    estimator.coef_ = checked_array(arrays, "coef_", (n_scores, n_features))
    estimator.intercept_ = checked_array(arrays, "intercept_", (n_scores,))
    if "n_iter_" in arrays:
        estimator.n_iter_ = checked_array(arrays, "n_iter_", arrays["n_iter_"].shape, "iu")


def _restore_scaler(estimator: Any, arrays: Arrays, n_features: int) -> None:
    for name, used in (("mean_", estimator.with_mean), ("var_", estimator.with_std), ("scale_", estimator.with_std)):
        here = used or name in arrays
        setattr(estimator, name, checked_array(arrays, name, (n_features,)) if here else None)
    if estimator.with_std and not (estimator.scale_ > 0).all():
        raise ValueError("a scale is not above 0")
    if "n_samples_seen_" in arrays:
        seen = arrays["n_samples_seen_"]
        estimator.n_samples_seen_ = checked_array(arrays, "n_samples_seen_", seen.shape, "iuf")[()]


def _restore_bayes(estimator: Any, arrays: Arrays, n_features: int) -> None:
    n_classes = len(estimator.classes_)
    for name, shape in (
        ("theta_", (n_classes, n_features)), ("var_", (n_classes, n_features)), ("class_prior_", (n_classes,)),
        ("class_count_", (n_classes,)), ("epsilon_", ()),
    ):  # fmt: skip
        setattr(estimator, name, checked_array(arrays, name, shape))
    if not (estimator.var_ > 0).all() or not (estimator.class_prior_ >= 0).all():
        raise ValueError("a variance is not above 0, or a prior is negative")


def _mlp_arrays(estimator: Any) -> Arrays:
    coefs = {f"coef{i}": array for i, array in enumerate(estimator.coefs_)}
    return coefs | {f"bias{i}": array for i, array in enumerate(estimator.intercepts_)}


def _restore_mlp(estimator: Any, arrays: Arrays, n_features: int) -> None:
    n_classes, hidden = len(estimator.classes_), estimator.hidden_layer_sizes
    n_outputs = 1 if n_classes == 2 else n_classes
    hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    widths = (n_features, *hidden, n_outputs)
    if not all(type(width) is int and width > 0 for width in widths):
        raise ValueError("a hidden layer has no whole number above 0 as its size")
    shapes = list(itertools.pairwise(widths))
    estimator.coefs_ = [checked_array(arrays, f"coef{i}", shape) for i, shape in enumerate(shapes)]
    estimator.intercepts_ = [checked_array(arrays, f"bias{i}", shape[1:]) for i, shape in enumerate(shapes)]
    estimator.n_layers_, estimator.n_outputs_ = len(widths), n_outputs
    estimator.out_activation_ = "logistic" if n_outputs == 1 else "softmax"
    estimator._label_binarizer = LabelBinarizer().fit(estimator.classes_)


# How each kind gives its arrays, and how it is put together from checked ones.
_PLAIN: dict[type, tuple[Callable[[Any], Arrays | None], Callable[[Any, Arrays, int], None]]] = {
    LogisticRegression: (_attributes("coef_", "intercept_", "n_iter_"), _restore_logistic),
    StandardScaler: (_attributes("mean_", "var_", "scale_", "n_samples_seen_"), _restore_scaler),
    GaussianNB: (_attributes("theta_", "var_", "class_prior_", "class_count_", "epsilon_"), _restore_bayes),
    MLPClassifier: (_mlp_arrays, _restore_mlp),
    RandomForestClassifier: (forest_arrays, restore_forest),
    ExtraTreesClassifier: (forest_arrays, restore_forest),
    HistGradientBoostingClassifier: (boosting_arrays, restore_boosting),
}
_KINDS = {kind.__name__: kind for kind in _PLAIN}


def dump_classifier(estimator: Any) -> bytes:
    """Give the skops form of an estimator; refuse one that holds functions, which `load_classifier` would refuse."""
    import skops.io

    try:
        _refuse_caches(estimator)
        stored: bytes = skops.io.dumps(estimator)
        _types_to_trust(stored)
    except Exception as error:  # any object may be part of an estimator, and skops fails in many ways
        reason = " ".join(str(error).removeprefix(f"{_DAMAGED} (").split(");")[0].split())
        raise TypeError(
            f"save: the classifier cannot be stored ({reason}); keep such a model with your own means and predict "
            "from its posteriors by predict_posteriors."
        ) from None
    return stored


def require_trust(files: Iterable[bytes], trust: Iterable[str]) -> set[str]:
    """Refuse skops files with types that are neither on the fixed list nor in `trust`; give those that need trust."""
    needed, trusted = {name for stored in files for name in _types_to_trust(stored)}, set(trust)
    if not needed <= trusted:
        raise ValueError(
            f"path: the stored classifier holds {', '.join(sorted(needed - trusted))}, which can run code when it is "
            "loaded; if you trust where the model comes from, load it in Python by "
            f"histnetq.load(path, trust={sorted(needed)})."
        )
    return needed


def load_classifier(stored: bytes, trust: Iterable[str] = ()) -> Any:
    """Read an estimator from its skops form; types that are neither on the fixed list nor in `trust` are refused."""
    import skops.io

    needed = require_trust([stored], trust)
    for name in sorted(needed):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(found, type) or found.__module__ != module:
            raise ValueError(f"trust: {name} is not a class that is defined there; name the class itself.")
    try:
        estimator = skops.io.loads(stored, trusted=sorted(needed.union(*_WITHOUT_TRUST.values())))
        _refuse_caches(estimator)
        plain = to_plain(estimator)
        return estimator if plain is None else from_plain(*plain)
    except Exception as error:  # classes fail in many ways on attributes that are not theirs
        reason = " ".join(str(error).split())
        raise ValueError(f"{_DAMAGED} ({reason[:200]}); {_AGAIN}") from None


def _refuse_caches(estimator: Any) -> None:
    """Refuse a pipeline that keeps its steps in a directory, from which the next fit would unpickle."""
    for name, value in estimator.get_params().items():
        if name.rpartition("__")[2] == "memory" and value is not None:
            raise ValueError("a pipeline has a cache, expected memory=None")


# What nodes of a skops file may make without trust. Each is data, or a class that is made without its constructor.
_NUMBERS = frozenset(f"numpy.{name}" for name in (
    "bool", "bool_", "float32", "float64", "int32", "int64", "str_", "uint8"
))  # fmt: skip
_WITHOUT_TRUST: dict[str, frozenset[str]] = {
    "CachedNode": frozenset(),  # an object that stands elsewhere in the file
    "DTypeNode": frozenset({"numpy.dtype"}),  # the type of an empty array
    "DictNode": frozenset({"builtins.dict", "collections.OrderedDict", "sklearn.utils._bunch.Bunch"}),  # made empty
    "JsonNode": frozenset({"builtins.str"}),
    "ListNode": frozenset({"builtins.list"}),
    "MaskedArrayNode": frozenset({"numpy.ma.MaskedArray", "numpy.ma.core.MaskedArray"}),  # an array and a mask
    "NdArrayNode": frozenset({"numpy.ndarray"}) | _NUMBERS,
    "ObjectNode": frozenset({
        "sklearn.linear_model._logistic.LogisticRegression",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._data.StandardScaler",
    }),  # the default classifiers of models of version 0.1.0
    "RandomStateNode": frozenset({"numpy.random.mtrand.RandomState", "numpy.random.RandomState"}),  # numbers
    "SetNode": frozenset({"builtins.set"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    # Called on the keys of dictionaries, which are texts; or the type of a vectoriser's numbers.
    "TypeNode": frozenset({"builtins.bool", "builtins.float", "builtins.int", "builtins.str"}) | _NUMBERS,
}  # fmt: skip
# What may make more with trust: an object without its constructor, a tree of arrays, and a loss by its constructor.
_WITH_TRUST = {"ObjectNode": "", "TreeNode": "sklearn.tree._tree.", "LossNode": "sklearn._loss."}


def _types_to_trust(stored: bytes) -> set[str]:
    """Inspect a skops file without importing or calling anything that it names; give the types that need trust."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(stored))
        members = archive.infolist()
        stored_plainly = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        if not stored_plainly or sum(member.file_size for member in members) > len(stored):
            raise ValueError("its parts are larger than the file")
        if len({member.filename for member in members}) != len(members):
            raise ValueError("it has a part twice")
        for member in members:
            if member.filename != "schema.json":
                _check_numpy_file(archive.read(member))
        return _types_of_nodes(json.loads(archive.read("schema.json")))
    except (ValueError, TypeError, LookupError, EOFError, OSError, RecursionError, NotImplementedError,
            RuntimeError, zipfile.BadZipFile) as error:  # fmt: skip
        raise ValueError(f"{_DAMAGED} ({' '.join(str(error).split())}); {_AGAIN}") from None


def _types_of_nodes(schema: Any) -> set[str]:
    needed, waiting = set(), [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
            if "__loader__" in value:
                needed |= _type_to_trust(value)
        elif isinstance(value, list):
            waiting.extend(value)
    return needed


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
    """Refuse an array of objects, or one that is larger than its file."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell() or any(n < 0 for n in shape):
        raise ValueError("it has an array of objects or of another size than its file")
