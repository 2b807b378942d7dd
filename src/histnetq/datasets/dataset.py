"""`Dataset` and `Examples`, the parts of a data set, and scikit-learn's digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import APP


@dataclass(frozen=True)
class Dataset:
    """A data set of labelled rows and bags of known proportions, on one pool of rows.

    Parameters
    ----------
    name : str
        Name of the data set.
    train : Bags
        Labelled rows, as one bag, or as several bags if the data come in labelled bags.
    bags : Bags
        Training bags of known proportions, without labels of their rows.
    validation : Bags
        Validation bags of known proportions, which share no rows with `bags`.
    calibration : Bags or None, default None
        Bags of known proportions to calibrate intervals, if the data set has them.
    test_bags : Bags or None, default None
        Test bags, or None if the data set was read without them. They have no prevalences if these are not public.

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
        """The test bags; an error if the data set was read without them."""
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
    """A data set of labelled rows; bags are drawn from it by a protocol.

    Parameters
    ----------
    name : str
        Name of the data set.
    train : Bags
        Labelled training rows, as one bag.
    test : Bags
        Labelled test rows as one bag, or bags drawn from them.
    validation : Bags or None, default None
        Labelled validation rows as one bag, if the data set has them.

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
    """Load scikit-learn's handwritten digits: one half is labelled, test bags are drawn from the second half by APP.

    Parameters
    ----------
    n_bags : int, default 500
        Number of test bags.
    bag_size : int, default 100
        Number of digits in a test bag.
    random_state : int, default 0
        Seed of the split, which is stratified by class, and of the bags.

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
