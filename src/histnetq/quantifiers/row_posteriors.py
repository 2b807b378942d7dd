"""Class probabilities of rows given the prevalences of their bag, and expected performance of a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, Ints, count_labels

if TYPE_CHECKING:
    import pandas as pd

_FLOOR = 1e-12  # smallest posterior and prevalence in logarithms and ratios
_LEAST = 1e-6  # smallest probability of a confusion


def log_likelihoods(posteriors: Floats, prevalences: Floats) -> Floats:
    """Return log-likelihoods (n_rows, n_classes), up to a constant per row, from posteriors under these prevalences.

    Examples
    --------
    >>> np.exp(log_likelihoods(np.array([[0.5, 0.5]]), np.array([0.25, 0.75]))).round(2)
    array([[2.  , 0.67]])
    """
    return np.log(np.maximum(posteriors, _FLOOR)) - np.log(np.maximum(prevalences, _FLOOR))


def row_posteriors(likelihoods: Floats, index: Ints, prevalences: Floats, bags: Bags) -> Floats:
    """Return the class probabilities of each entry of the bags: (n_entries, n_classes).

    `likelihoods` (n_rows, n_classes) are log-likelihoods up to a constant per row, `index` (n_entries,) is the row of
    each entry, and `prevalences` (n_bags, n_classes) are the prevalences in each bag.
    """
    with np.errstate(divide="ignore"):
        logits = likelihoods[index] + np.log(prevalences)[bags.bag_of_entry]
    likely = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Floats = likely / likely.sum(1, keepdims=True)
    return probabilities


def expected_performance(assigned: Ints, confusions: Floats, prevalences: Floats, bags: Bags) -> pd.DataFrame:
    """Return the expected accuracy and mean F1 in each bag.

    `assigned` (n_entries,) has the predicted class of each entry. `confusions` (n_classes, n_classes) has the
    probability of each predicted class (rows) given the true class (columns). Bayes' rule with the `prevalences`
    (n_bags, n_classes) gives the probabilities of the true classes for each predicted class.

    Examples
    --------
    >>> confusions, half = np.array([[0.9, 0.3], [0.1, 0.7]]), np.array([[0.5, 0.5]])
    >>> expected_performance(np.array([0, 1]), confusions, half, Bags(np.zeros((2, 1)))).round(2)
       accuracy    f1
    0      0.81  0.81
    """
    import pandas as pd

    n_bags, n_classes = prevalences.shape
    found = count_labels(assigned, bags.bag_of_entry, n_bags, n_classes, bags.weights)
    likely = np.maximum(confusions, _LEAST) * np.maximum(prevalences, _FLOOR)[:, None, :]
    joint = found[:, :, None] * likely / likely.sum(2, keepdims=True)  # (n_bags, predicted class, true class)
    right, there, total = np.diagonal(joint, axis1=1, axis2=2), joint.sum(1), found.sum(1)
    # A class has no F1 if no row is predicted to be in it and less than half a row of it is expected.
    some = (found > 0) | (there > 0.5 * (total / bags.sizes)[:, None])
    f1 = np.where(some, 2 * right / np.maximum(found + there, _FLOOR), np.nan)
    columns = {"accuracy": right.sum(1) / total, "f1": np.nanmean(f1, axis=1)}
    return pd.DataFrame(columns, index=np.asarray(bags.ids))


def misclassification(values: Floats, labels: Ints, weights: NDArray | None) -> Floats:
    """Return a matrix (k, k): entry (i, j) is the mean of column i of the values (n_rows, k) over the rows of class j.

    The column of a class without rows is 1 for this class and 0 for others, as if it were always classified correctly.
    """
    n_classes = values.shape[1]
    w = np.ones(len(labels)) if weights is None else weights.astype(float)
    member = np.zeros((len(labels), n_classes))
    member[np.arange(len(labels)), labels] = w
    totals = member.sum(0)
    matrix = values.T @ member / np.where(totals > 0, totals, 1.0)
    matrix[:, totals == 0] = np.eye(n_classes)[:, totals == 0]
    return matrix


def confusions_of(posteriors: NDArray, labels: Ints, weights: NDArray | None) -> Floats:
    """Return the share of each predicted class (rows) among the rows of each true class: (n_classes, n_classes).

    Examples
    --------
    >>> confusions_of(np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1]), None)
    array([[1. , 0.5],
           [0. , 0.5]])
    """
    return misclassification(np.eye(posteriors.shape[1])[posteriors.argmax(1)], labels, weights)
