"""Which labels the rows have, as far as the proportions of all the bags they are in tell.

A row that is in many bags is likely of a class that is common in them, and rows that a classifier calls alike cannot
all be of one class where the proportions say otherwise. Given how likely each class of each row is, the labels are
those that stay closest to it, by Kullback-Leibler divergence, among all that agree with the proportions:

    q_i = softmax(log r_i + Σ_b w_bi λ_b),    Σ_i w_bi q_i = n_b (p_b − s λ_b)    for every bag b,

with the weights w of the rows in the bags, the sizes n and the proportions p of these. One convex problem has the
multipliers λ for its solution. The slack s, the variance per row of counts that are nearly right, keeps them finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, softmax

from histnetq.bags.bags import Bags

_SLACK = 0.02
_STEPS = 60  # of the solver; with slack, nothing changes after a few dozen

Floats = NDArray[np.float64]


def memberships(bags: Bags, entries: NDArray[np.int64], n_rows: int) -> csr_matrix:
    """Weights ``(n_bags, n_rows)`` of rows in bags, a bag's adding up to its size; ``entries`` are rows."""
    sized = bags.sized_weights()
    weights = np.ones(len(entries)) if sized is None else sized.astype(np.float64)
    return csr_matrix((weights, (bags.bag_of_entry, entries)), shape=(len(bags), n_rows))


def recover_labels(members: csr_matrix, prevalences: Floats, logits: Floats) -> Floats:
    """Class probabilities of the rows that agree with the bags' proportions and are otherwise as given.

    Parameters
    ----------
    members : (n_bags, n_rows)
        As `memberships` gives them.
    prevalences : (n_bags, n_classes)
    logits : (n_rows, n_classes)
        Logarithms of the probabilities without regard to the bags, up to a constant of the row.

    Returns
    -------
    (n_rows, n_classes)

    Examples
    --------
    The second row is in both bags, and of class 1, as both can have it so:

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
