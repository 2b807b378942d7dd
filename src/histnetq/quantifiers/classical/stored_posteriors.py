"""Stored parts of a classifier-based method: its classifier, and the posteriors and labels that it learned from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import check_weights
from histnetq.persistence.classifier_files import from_plain, to_plain
from histnetq.persistence.saving import Arrays, Stored, StoredArrays
from histnetq.persistence.skops_files import dump_classifier, load_classifier
from histnetq.quantifiers.classical.cross_fitting import columns_of
from histnetq.quantifiers.classical.posterior_checks import describe_fault


class StoredClassifier(Stored):
    """The classifier, and the class of each of its columns."""

    def described(self, model: Any) -> tuple[Arrays, dict[str, Any]]:
        if model.classifier_ is None:
            return {}, {}
        plain, columns = to_plain(model.classifier_, "classifier/"), model.columns_.tolist()
        if plain is not None:
            return plain[1], {"columns": columns, "classifier": plain[0]}
        stored = np.frombuffer(dump_classifier(model.classifier_), np.uint8)
        return {"classifier": stored}, {"columns": columns, "classifier": None}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        model.classifier_ = model.columns_ = None
        if "classifier" in arrays:
            model.classifier_ = load_classifier(arrays["classifier"].tobytes(), learned["trust"])
        elif learned.get("classifier"):
            model.classifier_ = from_plain(learned["classifier"], arrays)
        if model.classifier_ is not None:
            found = learned.get("columns")  # absent in models of version 0.1.0
            known = columns_of(model.classifier_, model.cv, model.classes_).tolist() if found is None else found
            n_columns, n_features = len(model.classifier_.classes_), getattr(model.classifier_, "n_features_in_", None)
            places = set(range(len(model.classes_)))
            fits = isinstance(known, list) and all(type(c) is int and c in places for c in known)
            if not fits or not len(known) == len(set(known)) == n_columns:
                raise ValueError("path: the stored classifier has other classes than the model; save again.")
            # Images are flattened for the classifier.
            width = math.prod(model.input_shape_) if model.input_shape_ else None
            if n_features is not None and width != n_features:
                raise ValueError(
                    f"path: the stored classifier reads {n_features} features, the model rows of shape "
                    f"{model.input_shape_}; save again."
                )
            model.columns_ = np.array(known, np.int64)
        elif model.input_shape_ != (len(model.classes_),):
            raise ValueError(
                f"path: a model without a classifier reads a probability of each of the {len(model.classes_)} classes, "
                f"not rows of shape {model.input_shape_}; save again."
            )
        model.scores_ = model.classifier_ is None


class StoredTraining(StoredArrays):
    """The posteriors and labels that the method learned from."""

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        super().restore(model, arrays, learned)
        labels = model.training_labels_
        if not len(labels):
            raise ValueError("path: the array 'training_labels' has no rows; save the model again.")
        if not ((labels >= 0) & (labels < len(model.classes_))).all():
            raise ValueError("path: the array 'training_labels' has other numbers than class codes; save again.")
        posteriors = arrays.get("training_posteriors", np.zeros((0, 1)))
        if posteriors.dtype.kind != "f" or describe_fault(posteriors.astype(np.float64)) is not None:
            raise ValueError("path: the array 'training_posteriors' has other numbers than probabilities; save again.")
        weights = arrays.get("training_weights", np.ones(1))
        if not _are_weights(weights):
            raise ValueError("path: the array 'training_weights' has other numbers than weights of rows; save again.")


def _are_weights(weights: NDArray) -> bool:
    """Return whether these are valid weights of rows: not all 0, and counts whose sum is exact in float64."""
    try:
        found = check_weights(weights, "survey" if weights.dtype.kind == "f" else "count", len(weights))
    except (ValueError, TypeError):
        return False
    return 0 < found.sum(dtype=np.float64) < (2**53 if found.dtype.kind == "i" else np.inf)
