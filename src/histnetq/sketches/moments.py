"""Sums of features, their squares and products over the rows of a bag; the sums of parts of a bag add up exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from histnetq.bags.bags import Bags
from histnetq.bags.fingerprint import digest_arrays
from histnetq.kernels.jit import njit
from histnetq.simplex import Ints

Floats = NDArray[np.float64]
FARTHEST = 8.0  # units at which values are clipped, so that single outliers have a limited effect
STEPS = 1024  # values are rounded to 1/1024 units, so that sums of whole numbers are the same in any order
_MOST = FARTHEST * STEPS
_BLOCK = 120  # rows processed at a time


@dataclass(frozen=True)
class Moments:
    """Definition of the sums.

    A value becomes its distance from the origin in units, clipped at ±8 and rounded to 1/1024. All sums are sums of
    functions of single rows, so their mean over a bag is a mixture of their means over the classes. Without weights,
    or with counts as weights, they are sums of whole numbers, and equal for rows in any order and in any parts.

    Attributes
    ----------
    columns : (n_columns,) of int
        The features that are summed.
    origin, unit : (n_columns,)
        Location and scale of each feature.
    paired : (n_paired, n_columns)
        Directions whose products are summed for all pairs; the identity pairs the features themselves.
    """

    columns: Ints
    origin: Floats
    unit: Floats
    paired: Floats

    @property
    def n_sums(self) -> int:
        """Return the number of sums: values and squares of the features, and products of pairs."""
        return 2 * len(self.origin) + len(self.paired) * (len(self.paired) + 1) // 2

    def fingerprint(self) -> str:
        """Return a checksum of the definition."""
        return digest_arrays(self.columns, self.origin, self.unit, self.paired)

    def sums(self, bags: Bags) -> Floats:
        """Return the sums over each bag, (n_bags, n_sums), in units of 1/1024 for values and 1/1024² for products.

        Examples
        --------
        >>> moments = Moments(np.arange(1), np.zeros(1), np.ones(1), np.eye(1))
        >>> moments.means(moments.sums(Bags.from_arrays([[[1.0], [3.0]], [[1e12]]])), np.array([2, 1]))
        array([[ 2.,  5.,  5.],
               [ 8., 64., 64.]])
        """
        weights = np.ones(1) if bags.weights is None else bags.weights.astype(np.float64)
        out = np.zeros((len(bags), self.n_sums))
        if sparse.issparse(bags.rows):
            self._add_sparse(bags, weights, out)
        else:
            flat = bags.rows.reshape(len(bags.rows), -1)
            flat = flat if flat.dtype.kind in "iuf" else flat.astype(np.uint8)
            plain = np.array_equal(self.paired, np.eye(len(self.origin)))
            how = self.columns, self.origin, STEPS / self.unit, self.paired, plain
            _add_sums(flat, bags.index, bags.offsets, weights, *how, out)
        return out

    def means(self, sums: Floats, totals: NDArray) -> Floats:
        """Return the means over bags, (n_bags, n_sums), from their sums and total weights, (n_bags,)."""
        n = len(self.origin)
        steps = np.repeat([STEPS, STEPS**2], [n, self.n_sums - n])
        return sums / np.asarray(totals, dtype=np.float64)[:, None] / steps

    def of_rows(self, rows: Any) -> tuple[Floats, Floats]:
        """Return the rounded values of the features and of the paired directions of dense or sparse rows."""
        rows = rows if sparse.issparse(rows) else rows.reshape(len(rows), -1)
        rows = rows[:, self.columns]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        values = _round((rows.astype(np.float64) - self.origin) * (STEPS / self.unit))
        return values / STEPS, _round(values @ self.paired.T) / STEPS

    def _add_sparse(self, bags: Bags, weights: Floats, out: Floats) -> None:
        """Add the sums of sparse rows: the differences from a row of zeros, plus the sums of rows of zeros.

        Only the paired directions are ever dense.
        """
        rows, n = sparse.csr_array(bags.rows)[:, self.columns], len(self.origin)
        scale = STEPS / self.unit
        empty = _round(-self.origin * scale)
        values = _round((rows.data - self.origin[rows.indices]) * scale[rows.indices])
        at_zero = empty[rows.indices]
        w = np.broadcast_to(weights, len(bags.index))
        entries = sparse.csr_array((w, bags.index, bags.offsets), shape=(len(bags), rows.shape[0]))
        totals = entries.sum(1)[:, None]
        for place, power in ((slice(0, n), 1), (slice(n, 2 * n), 2)):
            moved = sparse.csr_array((values**power - at_zero**power, rows.indices, rows.indptr), shape=rows.shape)
            out[:, place] = (entries @ moved).toarray() + totals * empty**power
        if len(self.paired):
            moved = sparse.csr_array((values - at_zero, rows.indices, rows.indptr), shape=rows.shape)
            directed = _round(moved @ self.paired.T + empty @ self.paired.T)
            none, every = np.zeros(len(self.paired)), np.eye(len(self.paired))
            parts = np.zeros((len(bags), 2 * len(every) + out.shape[1] - 2 * n))
            how = np.arange(len(every)), none, none + 1, every, True
            _add_sums(directed, bags.index, bags.offsets, weights, *how, parts)
            out[:, 2 * n :] = parts[:, 2 * len(every) :]


def total_weights(bags: Bags) -> NDArray:
    """Return the total weight of each bag's entries, (n_bags,)."""
    return np.diff(bags.offsets) if bags.weights is None else np.add.reduceat(bags.weights, bags.offsets[:-1])


def _round(steps: Floats) -> Floats:
    return np.rint(np.clip(steps, -_MOST, _MOST))


@njit(cache=True, nogil=True)
def _add_sums(rows, index, offsets, weights, columns, origin, scale, paired, plain, out):  # type: ignore[no-untyped-def]
    n_columns, n_paired, weighted = len(columns), len(paired), len(weights) == len(index)
    values, times = np.empty((n_columns, _BLOCK)), np.empty(_BLOCK)
    directed = values if plain else np.empty((n_paired, _BLOCK))
    for bag in range(len(offsets) - 1):
        sums = out[bag]
        for start in range(offsets[bag], offsets[bag + 1], _BLOCK):
            n = min(_BLOCK, offsets[bag + 1] - start)
            for i in range(n):
                row = index[start + i]
                for j in range(n_columns):
                    steps = (rows[row, columns[j]] - origin[j]) * scale[j]
                    values[j, i] = np.rint(min(max(steps, -_MOST), _MOST))
            if not plain:
                for k in range(n_paired):
                    times[:] = 0
                    for j in range(n_columns):
                        for i in range(n):
                            times[i] += paired[k, j] * values[j, i]
                    for i in range(n):
                        directed[k, i] = np.rint(min(max(times[i], -_MOST), _MOST))
            for j in range(n_columns):
                for i in range(n):
                    times[i] = values[j, i] * weights[start + i if weighted else 0]
                sums[j] += _total(times, n)
                sums[n_columns + j] += _product(times, values[j], n)
            place = 2 * n_columns
            for j in range(n_paired):
                for i in range(n):
                    times[i] = directed[j, i] * weights[start + i if weighted else 0]
                for k in range(j, n_paired):
                    sums[place] += _product(times, directed[k], n)
                    place += 1


# Sums of whole numbers have no rounding errors, so their order does not matter (fastmath).
@njit(cache=True, nogil=True, fastmath=True)
def _total(a, n):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(n):
        total += a[i]
    return total


@njit(cache=True, nogil=True, fastmath=True)
def _product(a, b, n):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total
