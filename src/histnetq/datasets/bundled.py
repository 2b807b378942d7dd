"""A data set that needs no files: scikit-learn brings it along."""

from __future__ import annotations

from histnetq.data.bags import Bags
from histnetq.data.protocols import APP
from histnetq.datasets.common import Examples

__all__ = ["digits"]


def digits(n_bags: int = 500, bag_size: int = 100, random_state: int = 0) -> Examples:
    """scikit-learn's handwritten digits: half of them labelled, and test bags drawn by APP from the other half.

    Parameters
    ----------
    n_bags, bag_size : int
        Number and size of the test bags.
    random_state : int
        Seed of the split, which keeps the classes' shares, and of the bags.

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
