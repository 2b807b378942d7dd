"""The built-in scikit-learn classifiers as plain arrays; `skops_files` stores all other classifiers.

The stored form consists of numbers, texts and parameters of a fixed list of classes. Everything is checked before a
classifier is constructed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler

from histnetq.persistence.tree_files import (
    boosting_arrays,
    checked_array,
    forest_arrays,
    restore_boosting,
    restore_forest,
)

Arrays = dict[str, NDArray]
DAMAGED = "path: the stored classifier is damaged"
# With these limits, scaled features and their products with coefficients stay finite for all float32 rows.
_LEAST_SCALE = 1e-150  # smallest scale or variance
_LARGEST = float(np.finfo(np.float32).max)  # largest mean or coefficient
_AGAIN = "save the model again."
_VERSION = re.compile(r"(\d{1,4}\.\d{1,4})(\.\w{1,10}){0,3}", re.ASCII)


def to_plain(estimator: Any, prefix: str = "") -> tuple[dict[str, Any], Arrays] | None:
    """Return JSON and arrays of a classifier in `_PLAIN` or a pipeline of these, or None for any other classifier.

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
    described: dict[str, Any] = {
        "type": type(estimator).__name__, "params": params, "prefix": prefix, "scikit_learn": sklearn.__version__,
    }  # fmt: skip
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
    except ValueError:  # for example a tree that splits off missing values, whose threshold is infinite
        return None
    return described, arrays


def from_plain(described: Any, arrays: Arrays) -> Any:
    """Construct an estimator, fitted or not, from the result of `to_plain`; no other classes are ever constructed.

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
        raise unreadable(error, described) from None


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
    if len({name for name, _ in steps}) < len(steps):
        raise ValueError("two steps of a pipeline have the same name")
    if len({getattr(step, "n_features_in_", None) for _, step in steps}) > 1:
        raise ValueError("a step of a pipeline expects another number of features than the step before it returns")
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
    """Return a value that JSON can store, with lists as tuples, or `_NOT_PLAIN` for any other value."""
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
            raise ValueError("the classes are not a list of texts")
        classes = np.array(texts, str)
    else:
        classes = checked_array(arrays, "classes_", (len(np.atleast_1d(arrays["classes_"])),), "biuf")
    if not len(classes) or len(np.unique(classes)) != len(classes):
        raise ValueError("a class occurs twice, or there are no classes")
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
    if any((np.abs(numbers) > _LARGEST).any() for numbers in (estimator.coef_, estimator.intercept_)):
        raise ValueError(f"a coefficient is above {_LARGEST:g}")
    if "n_iter_" in arrays:
        estimator.n_iter_ = checked_array(arrays, "n_iter_", arrays["n_iter_"].shape, "iu")


def _restore_scaler(estimator: Any, arrays: Arrays, n_features: int) -> None:
    for name, used in (("mean_", estimator.with_mean), ("var_", estimator.with_std), ("scale_", estimator.with_std)):
        here = used or name in arrays
        setattr(estimator, name, checked_array(arrays, name, (n_features,)) if here else None)
    if estimator.with_std and not (estimator.scale_ > _LEAST_SCALE).all():
        raise ValueError("a scale is not above 0")
    if estimator.with_mean and not (np.abs(estimator.mean_) <= _LARGEST).all():
        raise ValueError(f"the mean of a feature is above {_LARGEST:g}")
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
    if not (estimator.var_ > _LEAST_SCALE).all() or not (estimator.class_prior_ >= 0).all():
        raise ValueError("a variance is not above 0, or a prior is negative")
    if not (np.abs(estimator.theta_) <= _LARGEST).all() or not estimator.class_prior_.any():
        raise ValueError(f"the mean of a feature is above {_LARGEST:g}, or all priors are 0")


def _mlp_arrays(estimator: Any) -> Arrays:
    coefs = {f"coef{i}": array for i, array in enumerate(estimator.coefs_)}
    return coefs | {f"bias{i}": array for i, array in enumerate(estimator.intercepts_)}


def _restore_mlp(estimator: Any, arrays: Arrays, n_features: int) -> None:
    n_classes, hidden = len(estimator.classes_), estimator.hidden_layer_sizes
    n_outputs = 1 if n_classes == 2 else n_classes
    hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    widths = (n_features, *hidden, n_outputs)
    if not all(type(width) is int and width > 0 for width in widths):
        raise ValueError("the size of a hidden layer is not a whole number above 0")
    shapes = list(itertools.pairwise(widths))
    estimator.coefs_ = [checked_array(arrays, f"coef{i}", shape) for i, shape in enumerate(shapes)]
    estimator.intercepts_ = [checked_array(arrays, f"bias{i}", shape[1:]) for i, shape in enumerate(shapes)]
    estimator.n_layers_, estimator.n_outputs_ = len(widths), n_outputs
    estimator.out_activation_ = "logistic" if n_outputs == 1 else "softmax"
    estimator._label_binarizer = LabelBinarizer().fit(estimator.classes_)


# For each class, a function that returns the arrays of an estimator, and one that checks and sets them.
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


def unreadable(reason: Any, described: Any = None) -> ValueError:
    """Return the error about a classifier that was saved with another scikit-learn version or is damaged."""
    inner = " ".join(str(reason).removeprefix(f"{DAMAGED} (").removesuffix(f"); {_AGAIN}").split())[:200]
    written = other_version(described)
    if written:
        return ValueError(
            f"path: the stored classifier was written by scikit-learn {written}, expected one that the installed "
            f"{sklearn.__version__} can read ({inner}); install scikit-learn {written}, or fit the model again."
        )
    return ValueError(f"{DAMAGED} ({inner}); {_AGAIN}")


def other_version(described: Any) -> str:
    """Return the stored scikit-learn version if its first two numbers differ from the installed version, else ""."""
    stored = [node.get("scikit_learn", node.get("_sklearn_version")) for node in nodes(described)]
    texts = [one.get("content") if isinstance(one, dict) else one for one in stored]
    versions = [text.strip('"') for text in texts if isinstance(text, str)]
    known = _VERSION.match(sklearn.__version__)
    found = [_VERSION.fullmatch(version) for version in versions]
    return next((one[0] for one in found if one and known and one[1] != known[1]), "")


def nodes(described: Any) -> Iterator[dict[str, Any]]:
    """Yield each mapping of a description, at any depth."""
    waiting = [described]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
            yield value
        elif isinstance(value, list):
            waiting.extend(value)
