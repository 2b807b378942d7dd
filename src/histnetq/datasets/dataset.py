"""What a data set is made of, and two that need no reader of their own: scikit-learn's digits and ``.npz`` files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import APP

_KEYS = (
    "X", "y", "split", "class_names", "dev_bags", "dev_group", "dev_prevalences", "test_bags", "test_prevalences",
)  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """Labelled rows and bags of known proportions, on one pool of rows.

    Parameters
    ----------
    name : str
        Name of the data set.
    train : Bags
        The labelled rows, as one bag, or as several where the data come in labelled bags.
    bags : Bags
        Bags of known proportions to learn from, without labels of their rows.
    validation : Bags
        Such bags to choose by; they share no rows with `bags`.
    calibration : Bags or None, default None
        Further such bags to calibrate by, where the data have them.
    test_bags : Bags or None, default None
        The bags of `test`, None where the data were read without them. They have no prevalences where these are
        not yet public.

    Examples
    --------
    >>> rows = Bags.from_labels(np.zeros((2, 1)), ["no", "yes"])
    >>> data = Dataset("small", train=rows, bags=rows, validation=rows)
    >>> data.classes
    array(['no', 'yes'], dtype='<U3')
    >>> data.test
    Traceback (most recent call last):
        ...
    ValueError: test: small was read without test bags, expected its test files beside the others; add them ...
    """

    name: str
    train: Bags
    bags: Bags
    validation: Bags
    calibration: Bags | None = None
    test_bags: Bags | None = None

    @property
    def test(self) -> Bags:
        """The bags for the final score only; an error where the data were read without them."""
        if self.test_bags is None:
            raise ValueError(
                f"test: {self.name} was read without test bags, expected its test files beside the others; "
                "add them and read it again, or use validation."
            )
        return self.test_bags

    @property
    def classes(self) -> NDArray:
        """The names of the classes."""
        return np.asarray(self.train.classes)


@dataclass(frozen=True)
class Examples:
    """Labelled examples, for which bags are drawn by a protocol.

    Parameters
    ----------
    name : str
        Name of the data set.
    train : Bags
        The labelled rows to learn from, as one bag.
    test : Bags
        For the final score only: labelled rows as one bag to draw from, or bags already drawn from such rows.
    validation : Bags or None, default None
        Labelled rows to choose by, as one bag, where the data have such a part.

    Examples
    --------
    >>> rows = Bags.from_labels(np.zeros((2, 1)), ["no", "yes"])
    >>> Examples("small", train=rows, test=rows).classes
    array(['no', 'yes'], dtype='<U3')
    """

    name: str
    train: Bags
    test: Bags
    validation: Bags | None = None

    @property
    def classes(self) -> NDArray:
        """The names of the classes."""
        return np.asarray(self.train.classes)


def digits(n_bags: int = 500, bag_size: int = 100, random_state: int = 0) -> Examples:
    """Load scikit-learn's handwritten digits: half of them labelled, the other half in test bags drawn by APP.

    Parameters
    ----------
    n_bags : int, default 500
        Number of test bags.
    bag_size : int, default 100
        Number of digits in a test bag.
    random_state : int, default 0
        Seed of the split, which keeps the classes' shares, and of the bags.

    Returns
    -------
    Examples
        The labelled half as one bag, and the test bags.

    Examples
    --------
    >>> data = digits(n_bags=20, bag_size=50)
    >>> len(data.train.index), data.train.rows.shape, len(data.test)
    (898, (898, 64), 20)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=random_state)
    test = APP(bag_size).draw(Bags.from_labels(X_test, y_test), n_bags, random_state=random_state + 1)
    return Examples("digits", Bags.from_labels(X, y), test)


def read_npz(path: str | os.PathLike[str], *, standardize: bool = True) -> Dataset:
    """Read a data set from one ``.npz`` file.

    Parameters
    ----------
    path : path
        The file, with the arrays `X` (rows), `y` (codes), `split` (0 for labelled training rows), `class_names`,
        `dev_bags` and `test_bags` (row numbers, one line per bag), their `dev_prevalences` and `test_prevalences`, and
        `dev_group` (0 to learn from, 1 to validate, 2 to calibrate).
    standardize : bool, default True
        Whether to bring features to mean 0 and variance 1 by the training rows.

    Returns
    -------
    Dataset
        All parts of the data set, on one pool of rows.

    Examples
    --------
    >>> import tempfile
    >>> bags, half = np.array([[2, 3], [2, 2], [3, 3]]), np.full((3, 2), 0.5)
    >>> arrays = {"X": np.eye(4), "y": [0, 1, 0, 1], "split": [0, 0, 1, 1], "class_names": ["a", "b"]}
    >>> arrays |= {"dev_bags": bags, "dev_prevalences": half, "dev_group": [0, 1, 2]}
    >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
    ...     np.savez(file, **arrays, test_bags=bags, test_prevalences=half)
    ...     _ = file.seek(0)
    ...     read_npz(file.name).test
    Bags(n_bags=3, sizes=2, rows=(4, 4) float32, classes=['a', 'b'], prevalences)
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

    # Labels of other rows than the training rows stay unread: bags are known by their proportions alone.
    labels = np.where(labelled, arrays["y"].astype(np.int64), -1)
    train = Bags(X, np.flatnonzero(labelled), labels=labels, classes=classes).with_known_prevalences()
    learned, validation, calibration = (bags("dev", arrays["dev_group"] == group) for group in range(3))
    return Dataset(path.stem, train, learned, validation, calibration, bags("test", slice(None)))
