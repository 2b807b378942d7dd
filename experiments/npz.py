"""Data sets in one ``.npz`` file: labelled rows, and bags of known proportions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from histnetq import Bags
from histnetq.datasets import Dataset

__all__ = ["read_npz"]

_KEYS = (
    "X",
    "y",
    "split",
    "class_names",
    "dev_bags",
    "dev_group",
    "dev_prevalences",
    "test_bags",
    "test_prevalences",
)


def read_npz(path: str | os.PathLike[str], *, standardize: bool = True) -> Dataset:
    """Read a data set from one ``.npz`` file.

    The file has the arrays `X` (rows), `y` (class codes), `split` (0 for labelled training rows), `class_names`,
    `dev_bags` and `test_bags` (row numbers, one line per bag), their `dev_prevalences` and `test_prevalences`, and
    `dev_group` (0: training, 1: validation, 2: calibration). With `standardize`, features get mean 0 and variance 1
    over the training rows.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: {path} does not exist; give the .npz file of a data set.")
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in _KEYS if key not in file.files]
        if missing:
            raise ValueError(f"path: {path} has no array {missing[0]!r}, expected {', '.join(_KEYS)}.")
        arrays = {key: file[key] for key in _KEYS}
    X, labelled, classes = arrays["X"].astype(np.float32), arrays["split"] == 0, arrays["class_names"]
    if standardize:
        scale = X[labelled].std(0)
        X = (X - X[labelled].mean(0)) / np.where(scale > 0, scale, 1)

    def bags(kind: str, chosen: Any) -> Bags:
        rows, prevalences = arrays[f"{kind}_bags"][chosen].astype(np.int64), arrays[f"{kind}_prevalences"][chosen]
        offsets = np.arange(len(rows) + 1) * rows.shape[1]
        return Bags(X, rows.ravel(), offsets, prevalences=prevalences, classes=classes, normalize=True)

    # Only the labels of training rows are kept, because the proportions of bags are all that is known about them.
    labels = np.where(labelled, arrays["y"].astype(np.int64), -1)
    train = Bags(X, np.flatnonzero(labelled), labels=labels, classes=classes).with_known_prevalences()
    learned, validation, calibration = (bags("dev", arrays["dev_group"] == group) for group in range(3))
    return Dataset(path.stem, train, learned, validation, calibration, bags("test", slice(None)))
