"""scikit-learn classifiers as data: the usual ones as plain arrays, any other in the format of skops.

A scaler and a logistic regression are numbers and parameters, and are stored as these. Only a classifier of the user's
needs skops, whose files hold no code; types that it does not know to be safe are refused.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

Arrays = dict[str, NDArray]
_PLAIN: dict[type, tuple[str, ...]] = {
    LogisticRegression: ("classes_", "coef_", "intercept_", "n_iter_"),
    StandardScaler: ("mean_", "scale_", "var_", "n_samples_seen_"),
}
_KINDS = {kind.__name__: kind for kind in _PLAIN}


def to_plain(estimator: Any, prefix: str = "") -> tuple[dict[str, Any], Arrays] | None:
    """Describe a scaler, a logistic regression or a pipeline of these by JSON and arrays; None for anything else.

    Examples
    --------
    >>> model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> from_plain(*to_plain(model)).predict([[0.0], [1.0]])
    array([0, 1])
    """
    if type(estimator) is Pipeline and repr(estimator.get_params(deep=False)) == repr(
        Pipeline(estimator.steps).get_params(deep=False)
    ):
        parts = [to_plain(step, f"{prefix}{i}/") for i, (_, step) in enumerate(estimator.steps)]
        if any(part is None for part in parts):
            return None
        steps = [[name, part[0]] for (name, _), part in zip(estimator.steps, parts, strict=True) if part is not None]
        return {"type": "Pipeline", "steps": steps}, {k: v for part in parts if part for k, v in part[1].items()}
    params = estimator.get_params(deep=False) if type(estimator) in _PLAIN else {"": object}
    if not all(value is None or isinstance(value, bool | int | float | str) for value in params.values()):
        return None
    learned = {name: getattr(estimator, name, None) for name in _PLAIN[type(estimator)]}
    arrays = {f"{prefix}{name}": np.asarray(value) for name, value in learned.items() if value is not None}
    if any(array.dtype.kind not in "biuf" for array in arrays.values()):
        return None
    return {"type": type(estimator).__name__, "params": params, "prefix": prefix}, arrays


def from_plain(described: dict[str, Any], arrays: Arrays) -> Any:
    """Make the estimator that `to_plain` described; nothing but these few kinds is ever made."""
    if described["type"] == "Pipeline":
        return Pipeline([(str(name), from_plain(step, arrays)) for name, step in described["steps"]])
    kind = _KINDS[described["type"]]
    estimator, prefix = kind(**described["params"]), described["prefix"]
    for name in _PLAIN[kind]:
        if prefix + name in arrays:
            setattr(estimator, name, arrays[prefix + name])
    wide = next((arrays[prefix + name] for name in ("coef_", "scale_", "mean_") if prefix + name in arrays), None)
    if wide is not None:
        estimator.n_features_in_ = wide.shape[-1]
    return estimator


def dump_classifier(estimator: Any) -> bytes:
    """Give the skops form of a scikit-learn estimator."""
    import skops.io

    stored: bytes = skops.io.dumps(estimator)
    unsafe = _unsafe_types(stored)
    if unsafe:
        raise TypeError(
            f"save: the classifier holds a {unsafe[0]}, expected parts of scikit-learn alone; keep such a model with "
            "your own means and predict from its posteriors by predict_posteriors."
        )
    return stored


def load_classifier(stored: bytes) -> Any:
    """Read a scikit-learn estimator from its skops form; unknown types are refused."""
    import skops.io

    unsafe = _unsafe_types(stored)
    if unsafe:
        raise ValueError(f"path: the stored classifier uses {unsafe[0]}, not known to be safe; refit instead.")
    return skops.io.loads(stored, trusted=skops.io.get_untrusted_types(data=stored))


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
