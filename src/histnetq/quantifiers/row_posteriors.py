"""Class probabilities of rows under the mix of their bag, and what they tell of a classifier there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from histnetq.data.bags import Bags
from histnetq.simplex import Floats, Ints

if TYPE_CHECKING:
    import pandas as pd

_FLOOR = 1e-12  # of posteriors and prevalences, which may be 0, in logarithms


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


def expected_performance(assigned: Ints, likely: Floats, bags: Bags) -> pd.DataFrame:
    """Give the accuracy and the mean F1 that are expected in each bag.

    Parameters
    ----------
    assigned : (n_entries,)
        Code of the class that each entry is assigned to.
    likely : (n_entries, n_classes)
        Probabilities of the class that it has.
    bags : Bags
        The bags.

    Examples
    --------
    >>> likely = np.array([[0.9, 0.1], [0.5, 0.5]])
    >>> expected_performance(np.array([0, 1]), likely, Bags(np.zeros((2, 1)))).round(2)
       accuracy    f1
    0       0.7  0.71
    """
    import pandas as pd

    weights, starts = bags.entry_weights()[:, None].astype(np.float64), bags.offsets[:-1]
    mine = np.zeros_like(likely)
    mine[np.arange(len(assigned)), assigned] = 1
    right, found, there = (np.add.reduceat(weights * part, starts) for part in (mine * likely, mine, likely))
    total = found.sum(1, keepdims=True)
    # A class without rows has no F1: one that no row is assigned to, and of which less than half a row is expected.
    some = (found > 0) | (there > 0.5 * total / bags.sizes[:, None])
    f1 = np.where(some, 2 * right / np.maximum(found + there, _FLOOR), np.nan)
    accuracy = right.sum(1) / total[:, 0]
    return pd.DataFrame({"accuracy": accuracy, "f1": np.nanmean(f1, axis=1)}, index=np.asarray(bags.ids))
