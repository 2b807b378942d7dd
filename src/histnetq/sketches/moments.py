"""Sums of the features of a bag's rows and of their squares, which add up over parts of the bag."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from histnetq.data.bags import Bags
from histnetq.kernels.jit import njit

Floats = NDArray[np.float64]


def bag_moments(bags: Bags) -> Floats | None:
    """Mean and standard deviation of each feature in each bag, (n_bags, 2 · n_features); None if rows are texts.

    Examples
    --------
    >>> bag_moments(Bags.from_arrays([[[1.0], [3.0]], [[5.0]]]))
    array([[2., 1.],
           [5., 0.]])
    """
    if bags.rows.dtype.kind not in "biuf":
        return None
    origin = np.zeros(bags.n_features)
    if not sparse.issparse(bags.rows):
        origin = bags.rows[:1000].reshape(-1, bags.n_features).mean(0, dtype=np.float64)
    return finish_moments(moment_sums(bags, origin), _totals(bags), origin)


def moment_sums(bags: Bags, origin: Floats) -> Floats:
    """Sums over each bag of the features' distances from the origin, and of their squares: (n_bags, 2 · n_features).

    Parts of a bag add up. The origin should be near the values, so that squares lose no digits.
    """
    rows, weights = bags.rows, None if bags.weights is None else bags.weights.astype(np.float64)
    if sparse.issparse(rows):
        ones = np.ones(len(bags.index)) if weights is None else weights
        entries = sparse.csr_matrix((ones, bags.index, bags.offsets), shape=(len(bags), rows.shape[0]))
        first, second = (np.asarray((entries @ part).todense()) for part in (rows, rows.multiply(rows)))
        totals = _totals(bags)[:, None]
        return np.hstack([first - totals * origin, second - 2 * origin * first + totals * origin**2])
    flat = rows.reshape(len(rows), -1)
    flat = flat if flat.dtype.kind in "iuf" else flat.astype(np.uint8)
    out = np.zeros((len(bags), 2 * flat.shape[1]))
    _add_moments(flat, bags.index, bags.offsets, np.ones(1) if weights is None else weights, origin, out)
    return out


def finish_moments(sums: Floats, totals: NDArray, origin: Floats) -> Floats:
    """What `bag_moments` gives, from the sums over all parts of each bag and the total weights ``(n_bags,)``."""
    first, second = np.split(sums / np.asarray(totals)[:, None], 2, axis=1)
    return np.hstack([first + origin, np.sqrt(np.maximum(second - first**2, 0))])


def _totals(bags: Bags) -> NDArray:
    return np.diff(bags.offsets) if bags.weights is None else np.add.reduceat(bags.weights, bags.offsets[:-1])


@njit(cache=True, nogil=True)
def _add_moments(rows, index, offsets, weights, origin, out):  # type: ignore[no-untyped-def]
    n_features, weighted = rows.shape[1], len(weights) == len(index)
    for bag in range(len(offsets) - 1):
        for entry in range(offsets[bag], offsets[bag + 1]):
            w, row = weights[entry if weighted else 0], index[entry]
            for j in range(n_features):
                away = rows[row, j] - origin[j]
                out[bag, j] += w * away
                out[bag, n_features + j] += w * away * away
