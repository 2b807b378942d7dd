"""Estimates of the test bags of a LeQua task, and their errors."""

from __future__ import annotations

from histnetq.datasets import Dataset, lequa_errors
from histnetq.quantifiers.base import Quantifier
from histnetq.simplex import Floats


def estimate_test_bags(model: Quantifier, data: Dataset) -> Floats:
    """(n_bags, n_classes): estimate the test bags of a task, with the classes in the order of the task."""
    codes = {str(name): code for code, name in enumerate(model.classes_)}
    if codes.keys() != {str(name) for name in data.classes}:
        raise ValueError(
            f"model: expected the classes of {data.name} ({len(data.classes)}), got other classes ({len(codes)}); fit "
            "a model to the data of this task."
        )
    return model.predict(data.test)[:, [codes[str(name)] for name in data.classes]]


def score_test_bags(task: str, data: Dataset, estimates: Floats) -> dict[str, float]:
    """Return the official errors of estimates; none if the truth is unknown."""
    return {} if data.test.prevalences is None else lequa_errors(task, data.test, estimates)
