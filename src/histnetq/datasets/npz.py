"""A data set in one ``.npz`` file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.datasets.common import Dataset

__all__ = ["read_npz"]

_GROUPS = {"bags": 0, "validation": 1, "calibration": 2}
_KEYS = (
    "X", "y", "split", "class_names", "dev_bags", "dev_group", "dev_prevalences", "test_bags", "test_prevalences",
)  # fmt: skip


def read_npz(path: str | os.PathLike[str], *, standardize: bool = True) -> Dataset:
    """Read a data set from one ``.npz`` file.

    Parameters
    ----------
    path : file with the arrays
        `X` (rows), `y` (codes), `split` (0 for labelled training rows), `class_names`, `dev_bags` and `test_bags` (row
        numbers, one line per bag), their `dev_prevalences` and `test_prevalences`, and `dev_group` (0 to learn from, 1
        to validate, 2 to calibrate).
    standardize : bool
        Bring features to mean 0 and variance 1 by the training rows.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} does not exist; give the .npz file of a data set.")
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in _KEYS if key not in file.files]
        if missing:
            raise ValueError(f"path: {path} has no array {missing[0]!r}, expected {', '.join(_KEYS)}.")
        arrays = {key: file[key] for key in _KEYS}
    X, labelled = arrays["X"].astype(np.float32), arrays["split"] == 0
    if standardize:
        scale = X[labelled].std(0)
        X = (X - X[labelled].mean(0)) / np.where(scale > 0, scale, 1)
    classes = arrays["class_names"]
    # Labels of other rows than the training rows stay unread: bags are known by their proportions alone.
    labels = np.where(labelled, arrays["y"].astype(np.int64), -1)
    train = Bags(X, np.flatnonzero(labelled), labels=labels, classes=classes)
    train = train.with_prevalences(train.label_prevalences())
    development = {
        name: _bags(X, arrays["dev_bags"], arrays["dev_prevalences"], classes, arrays["dev_group"] == group)
        for name, group in _GROUPS.items()
    }
    test = _bags(X, arrays["test_bags"], arrays["test_prevalences"], classes, slice(None))
    return Dataset(path.stem, train, **development, test_bags=test)


def _bags(X: NDArray, rows: NDArray, prevalences: NDArray, classes: NDArray, chosen: Any) -> Bags:
    rows, prevalences = rows[chosen].astype(np.int64), prevalences[chosen]
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    return Bags(X, rows.ravel(), offsets, prevalences=prevalences, classes=classes, normalize=True)
