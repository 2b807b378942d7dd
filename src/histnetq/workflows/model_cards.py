"""Facts about fitted models, and about stored models without reading their weights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from histnetq.persistence.model_files import array_shapes, read_manifest, require_known_method
from histnetq.persistence.parameter_text import describe_call

if TYPE_CHECKING:
    from histnetq.quantifiers.base import Quantifier


def describe_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the method, classes, features, parameters, calibration and provenance of a stored model."""
    about = read_manifest(path)
    if not about.get("own_class", False):
        require_known_method(path, about)
    provenance, learned = about["provenance"] or {}, about["learned"]
    n_scores = sum(array_shapes(path, about).get("calibration/joint_scores", []))
    return {
        "method": about["estimator"],
        "classes": about["classes"],
        "features": about["feature_names"],
        "train_prevalences": about["train_prevalences"],
        "calibration_bags": provenance.get("calibration_bags") or n_scores,
        "parameters": describe_call(about["estimator"], about["params"]),
        "split": str(learned.get("split", "")),
        "interrupted": str(provenance.get("interrupted") or learned.get("interrupted", "")),
        "learned_nothing": str(learned.get("learned_nothing", "")),
        "scores": bool(about.get("scores")),
        "provenance": provenance,
    }


def describe_fitted(model: Quantifier) -> dict[str, Any]:
    """Return the method, training data, classes and calibration of a model from a `Workbench`."""
    known = model.provenance_
    return {
        "method": type(model).__name__,
        "bags": known["bags"],
        "calibration_bags": known["calibration_bags"],
        "features": model.feature_names_ or [],
        "classes": model.classes_.tolist(),
        "why": known.get("why"),
        "left_out": known.get("left_out", {}),
        "dropped_rows": known.get("dropped_rows", 0),
        "filled_cells": known.get("filled_cells", 0),
        "scores": model.scores_,
    }
