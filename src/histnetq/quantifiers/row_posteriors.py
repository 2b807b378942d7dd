"""Class probabilities of rows under the mix of their bag, and what they tell of a classifier there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.simplex import Floats, Ints, count_labels

if TYPE_CHECKING:
    import pandas as pd

_FLOOR = 1e-12  # of posteriors and prevalences, which may be 0, in logarithms
_LEAST = 1e-6  # of confusions that were never seen


def log_likelihoods(posteriors: Floats, prevalences: Floats) -> Floats:
    """Give log-likelihoods of the classes, up to a constant of the row, of posteriors in a mix: (n_rows, n_classes).

    Examples
    --------
    >>> np.exp(log_likelihoods(np.array([[0.5, 0.5]]), np.array([0.25, 0.75]))).round(2)
    array([[2.  , 0.67]])
    """
    return np.log(np.maximum(posteriors, _FLOOR)) - np.log(np.maximum(prevalences, _FLOOR))


def row_posteriors(likelihoods: Floats, index: Ints, prevalences: Floats, bags: Bags) -> Floats:
    """Give the class probabilities of each entry of bags.

    Parameters
    ----------
    likelihoods : (n_rows, n_classes)
        Log-likelihoods of the classes, up to a constant of the row.
    index : (n_entries,)
        The row of each entry.
    prevalences : (n_bags, n_classes)
        Prevalences of the classes in each bag.
    bags : Bags
        The bags.

    Returns
    -------
    (n_entries, n_classes)
        Rows of probabilities.
    """
    with np.errstate(divide="ignore"):
        logits = likelihoods[index] + np.log(prevalences)[bags.bag_of_entry]
    likely = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Floats = likely / likely.sum(1, keepdims=True)
    return probabilities


def expected_performance(assigned: Ints, confusions: Floats, prevalences: Floats, bags: Bags) -> pd.DataFrame:
    """Give the accuracy and the mean F1 that are expected in each bag.

    Rows that are assigned to one class have each class with a probability that its confusions and prevalence tell.

    Parameters
    ----------
    assigned : (n_entries,)
        Code of the class that each entry is assigned to.
    confusions : (n_classes, n_classes)
        How likely a row of each class, which stands in columns, is assigned to each class.
    prevalences : (n_bags, n_classes)
        Prevalences of the classes in each bag.
    bags : Bags
        The bags.

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
    joint = found[:, :, None] * likely / likely.sum(2, keepdims=True)  # bags, assigned and true classes
    right, there, total = np.diagonal(joint, axis1=1, axis2=2), joint.sum(1), found.sum(1)
    # A class without rows has no F1: one that no row is assigned to, and of which less than half a row is expected.
    some = (found > 0) | (there > 0.5 * (total / bags.sizes)[:, None])
    f1 = np.where(some, 2 * right / np.maximum(found + there, _FLOOR), np.nan)
    return pd.DataFrame(
        {"accuracy": right.sum(1) / total, "f1": np.nanmean(f1, axis=1)}, index=np.asarray(bags.ids)
    )  # fmt: skip


def misclassification(values: Floats, labels: Ints, weights: NDArray | None) -> Floats:
    """Mean value of each column given the true class: (n_rows, k) → (k, k), true classes in columns.

    A class without rows is taken to be recognised without error.
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
    """Give the share of each class's rows that is assigned to each class: (n_classes, n_classes), as above.

    Examples
    --------
    >>> confusions_of(np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1]), None)
    array([[1. , 0.5],
           [0. , 0.5]])
    """
    return misclassification(np.eye(posteriors.shape[1])[posteriors.argmax(1)], labels, weights)
