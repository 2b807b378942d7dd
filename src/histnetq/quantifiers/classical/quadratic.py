"""Exact solutions of small quadratic programmes with variables of at least 0, for all bags at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from histnetq.simplex import Floats, project

_RIDGE = 1e-10  # fraction of the mean diagonal entry that is added to it, which makes the solution unique


def solve_quadratic(gram: Floats, linear: Floats, *, simplex: bool = True) -> Floats:
    """Minimise ``½ pᵀ gram p − linear · p`` over ``p ≥ 0``, on the simplex by default.

    Block principal pivoting guesses which entries are positive, solves the resulting equations, and exchanges the
    entries that contradict the guess. Each round solves one stack of small linear systems, one per bag.

    Parameters
    ----------
    gram : (n_classes, n_classes), or (n_bags, n_classes, n_classes)
        Positive semidefinite; entries of about 1.
    linear : (n_bags, n_classes)
    simplex : bool
        Whether entries must sum to 1.

    Returns
    -------
    (n_bags, n_classes)

    References
    ----------
    Kim & Park (2011), *Fast nonnegative matrix factorization: an active-set-like method*.

    Examples
    --------
    >>> solve_quadratic(np.eye(2), np.array([[0.9, 0.3], [2.0, -1.0]]))
    array([[0.8, 0.2],
           [1. , 0. ]])
    >>> solve_quadratic(np.eye(2), np.array([[0.9, 0.3], [2.0, -1.0]]), simplex=False)
    array([[0.9, 0.3],
           [2. , 0. ]])
    """
    n_bags, n_classes = linear.shape
    mean = np.trace(gram, axis1=-2, axis2=-1) / n_classes
    ridge = _RIDGE * np.where(mean > 0, mean, 1.0)
    gram = np.broadcast_to(gram + ridge[..., None, None] * np.eye(n_classes), (n_bags, n_classes, n_classes))
    free = np.ones((n_bags, n_classes), bool)
    solution = np.empty((n_bags, n_classes))
    fewest, patience = np.full(n_bags, n_classes + 1), np.full(n_bags, 3)
    todo = np.arange(n_bags)
    for _ in range(100 * n_classes):
        p, pull = _solve_free(gram[todo], linear[todo], free[todo], simplex)
        wrong = np.where(free[todo], p < -1e-12, pull < -1e-12)
        count = wrong.sum(1)
        solution[todo[count == 0]] = p[count == 0]
        better = count < fewest[todo]
        fewest[todo] = np.minimum(count, fewest[todo])
        patience[todo] = np.where(better, 3, patience[todo] - 1)
        # Exchange all contradicting entries while that helps, and then only the last one, which always converges.
        last = n_classes - 1 - wrong[:, ::-1].argmax(1)
        single = np.arange(n_classes) == last[:, None]
        free[todo] ^= np.where((better | (patience[todo] > 0))[:, None], wrong, wrong & single)
        if simplex:  # at least one entry must be positive
            free[todo] |= ~free[todo].any(1, keepdims=True)
        todo = todo[count > 0]
        if todo.size == 0:
            break
    rest = _solve_free(gram[todo], linear[todo], np.ones((len(todo), n_classes), bool), simplex)[0]
    solution[todo] = project(rest) if simplex else rest
    solution = np.maximum(solution, 0)
    return solution / solution.sum(1, keepdims=True) if simplex else solution


def _solve_free(gram: Floats, linear: Floats, free: NDArray[np.bool_], simplex: bool) -> tuple[Floats, Floats]:
    """Return the solution with all entries at 0 that are not free, and the gradient of each entry."""
    n, k = linear.shape
    system = np.zeros((n, k + simplex, k + simplex))
    system[:, :k, :k] = np.where(free[:, :, None] & free[:, None, :], gram, np.eye(k))
    right = np.where(free, linear, 0.0)
    if simplex:
        system[:, :k, k] = system[:, k, :k] = free
        right = np.concatenate([right, np.ones((n, 1))], axis=1)
    answer = np.linalg.solve(system, right[:, :, None])[:, :, 0]
    p = np.where(free, answer[:, :k], 0.0)
    price = answer[:, k:] if simplex else 0.0
    return p, (p[:, None, :] @ gram)[:, 0] - linear + price
