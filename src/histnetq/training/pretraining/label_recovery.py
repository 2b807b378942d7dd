"""Recovery of row labels from the proportions of all bags that contain the rows.

A row that is in many bags probably belongs to a class that is common in them. The rows of a bag cannot all belong to
one class if the proportions of the bag contradict it. Given prior class probabilities r of each row, the recovered
probabilities q are the closest to r, by Kullback-Leibler divergence, among all that agree with the proportions:

    q_i = softmax(log r_i + Σ_b w_bi λ_b),    Σ_i w_bi q_i = n_b (p_b − s λ_b)    for every bag b,

where w are the weights of the rows in the bags, n the sizes of the bags and p their proportions. The multipliers λ are
the solution of one convex problem. The slack s allows counts to be slightly wrong, which keeps the multipliers finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, softmax

from histnetq.bags.bags import Bags

_SLACK = 0.02
_STEPS = 60  # largest number of solver steps; with slack, it converges within a few dozen

Floats = NDArray[np.float64]


def memberships(bags: Bags, entries: NDArray[np.int64], n_rows: int) -> csr_matrix:
    """Return the weight of each row in each bag, ``(n_bags, n_rows)``; the weights in a bag sum to its size."""
    sized = bags.sized_weights()
    weights = np.ones(len(entries)) if sized is None else sized.astype(np.float64)
    return csr_matrix((weights, (bags.bag_of_entry, entries)), shape=(len(bags), n_rows))


def recover_labels(members: csr_matrix, prevalences: Floats, logits: Floats) -> Floats:
    """Return the class probabilities ``(n_rows, n_classes)`` closest to the given ones that agree with the proportions.

    Parameters
    ----------
    members : (n_bags, n_rows)
        Weights of rows in bags, from `memberships`.
    prevalences : (n_bags, n_classes)
        Proportions of the bags.
    logits : (n_rows, n_classes)
        Log probabilities without the proportions, up to a constant per row.

    Examples
    --------
    The second row is in both bags. It gets class 1, so that each bag has one row of each class:

    >>> members = csr_matrix([[1.0, 1, 0], [0, 1, 1]])
    >>> recover_labels(members, np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0, 0.0], [0, 1], [0, 0]])).argmax(1)
    array([0, 1, 0])
    """
    sizes = np.asarray(members.sum(1))
    counts, slack, transposed = prevalences * sizes, _SLACK * sizes, members.T.tocsr()

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        pulls = multipliers.reshape(counts.shape)
        tilted = logits + transposed @ pulls
        likely = log_softmax(tilted, axis=1)
        value = (tilted - likely)[:, 0].sum() - (pulls * counts).sum() + 0.5 * (slack * pulls**2).sum()
        return float(value), (members @ np.exp(likely) - counts + slack * pulls).ravel()

    found = minimize(dual, np.zeros(counts.size), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    recovered: Floats = softmax(logits + transposed @ found.x.reshape(counts.shape), axis=1)
    return recovered
