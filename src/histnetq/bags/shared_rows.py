"""Detection of rows that several bags share: the same pool rows, or copies of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import take_dense
from histnetq.bags.classifier_rows import ClassifierRows

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags

_CHUNK = 1 << 22  # numbers hashed at a time
_MOST_ROWS = 20_000  # distinct rows whose columns are inspected
_COLUMNS_AT_ONCE = 64
_FEWEST_DIFFERENT, _FEWEST_PART = 50, 0.25  # rows, and part of the rows: fewer are answers, not measurements
_BY_CHANCE = 0.01  # equal rows are chance if independent columns would repeat at least this fraction of the rows
_DISAGREEING = 0.01  # equal rows are chance if at least this fraction of them has different labels


def part_shared(bags: Bags) -> float:
    """Return the fraction of the entries whose pool row is also in another bag.

    Examples
    --------
    >>> from histnetq import Bags
    >>> part_shared(Bags(np.array([[1.0], [2.0], [2.0]]), index=[0, 1, 1, 2], offsets=[0, 2, 4]))
    0.5
    """
    return float(_shared(bags, bags.index).mean())


def part_copied(bags: Bags) -> float:
    """Return the fraction of the entries that have a copy in another bag.

    Rows with the same values or texts are copies, unless chance explains them. They are equal by chance if their labels
    differ, or if their columns have few different values, such as the answers of people to a few questions.

    Examples
    --------
    >>> from histnetq import Bags
    >>> measured = np.random.default_rng(0).normal(size=(50, 3))
    >>> part_copied(Bags(np.concatenate([measured, measured]), offsets=[0, 50, 100]))
    1.0
    >>> answers = measured.round()
    >>> part_copied(Bags(np.concatenate([answers, answers]), offsets=[0, 50, 100]))
    0.0
    """
    names = row_hashes(bags.rows, bags.index)
    shared = _shared(bags, names)
    if not shared.any() or _labels_differ(bags, names, shared) or _few_values(bags, names):
        return 0.0
    return float(shared.mean())


def same_rows(bags: Bags) -> tuple[NDArray, float]:
    """Return a number for each entry, equal for copies of a row, and the fraction of entries that are further copies.

    Copies of rows are found as in `part_copied`, but within bags, too. Few different rows, rows of one number, and
    texts are equal by chance.

    Examples
    --------
    >>> from histnetq import Bags
    >>> measured = np.random.default_rng(0).normal(size=(50, 3))
    >>> numbers, part = same_rows(Bags(np.concatenate([measured, measured])))
    >>> bool((numbers[:50] == numbers[50:]).all()), part
    (True, 0.5)
    """
    names = row_hashes(bags.rows, bags.index)
    n_rows, n_different = len(np.unique(bags.index)), len(np.unique(names))
    few = n_different < max(_FEWEST_DIFFERENT, _FEWEST_PART * n_rows)
    if n_different == n_rows or few or bags.rows.ndim == 1 or bags.rows.shape[1:] == (1,):
        return bags.index, 0.0
    if _labels_differ(bags, names, np.ones(len(names), bool)) or _few_values(bags, names):
        return bags.index, 0.0
    return names, 1 - n_different / n_rows


def _shared(bags: Bags, names: NDArray) -> NDArray[np.bool_]:
    """Return whether the row of each entry, given by its name, is also in another bag: (n_entries,)."""
    order = np.lexsort((bags.bag_of_entry, names))
    sorted_names, bag = names[order], bags.bag_of_entry[order]
    starts = np.flatnonzero(np.r_[True, sorted_names[1:] != sorted_names[:-1]])
    counts = np.diff(np.r_[starts, len(names)])
    found = np.empty(len(names), bool)
    found[order] = np.repeat(bag[starts] != bag[starts + counts - 1], counts)
    return found


def _labels_differ(bags: Bags, names: NDArray, shared: NDArray[np.bool_]) -> bool:
    """Return whether shared rows with the same name have different labels."""
    if bags.labels is None:
        return False
    labels = bags.labels[bags.index[shared]]
    _, first, group = np.unique(names[shared], return_index=True, return_inverse=True)
    return bool((labels != labels[first][group]).mean() >= _DISAGREEING)


def _few_values(bags: Bags, names: NDArray) -> bool:
    """Return whether so few values occur in each column that independent columns would repeat some rows.

    Labels alone decide about texts and about rows with a single column.
    """
    n_features = int(np.prod(bags.rows.shape[1:]))
    if bags.rows.ndim == 1 or (n_features == 1 and bags.labels is not None):
        return False
    distinct = bags.index[np.unique(names, return_index=True)[1]]
    some = distinct[:: max(1, len(distinct) // _MOST_ROWS)][:_MOST_ROWS]
    pool = bags.rows.codes() if isinstance(bags.rows, ClassifierRows) else bags.rows
    rows = pool[some].reshape(len(some), n_features)
    repeated = float(len(some))
    for start in range(0, n_features, _COLUMNS_AT_ONCE):
        for column in take_dense(rows, np.s_[:, start : start + _COLUMNS_AT_ONCE]).T:
            shares = np.unique(column, return_counts=True)[1] / len(some)
            repeated *= (shares**2).sum()
        if repeated < _BY_CHANCE:
            return False
    return True


def row_hashes(pool: Any, index: NDArray) -> NDArray[np.uint64]:
    """Return a hash of the pool row of each entry, (n_entries,); rows with the same values have the same hash.

    Examples
    --------
    >>> first, second, third = row_hashes(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]), np.arange(3))
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    from pandas.util import hash_array

    if pool.ndim == 1:
        return hash_array(pool[index])
    if isinstance(pool, ClassifierRows):
        pool = pool.codes()
    n_features = int(np.prod(pool.shape[1:]))
    factors = hash_array(np.arange(n_features)) | np.uint64(1)
    found = np.empty(len(index), np.uint64)
    step = max(1, _CHUNK // n_features)
    for start in range(0, len(index), step):
        rows = pool[index[start : start + step]]
        if hasattr(rows, "tocsr"):
            terms = np.r_[np.uint64(0), np.cumsum(hash_array(rows.data) * factors[rows.indices])]
            found[start : start + step] = terms[rows.indptr[1:]] - terms[rows.indptr[:-1]]
        else:
            values = hash_array(np.ascontiguousarray(rows).ravel()).reshape(len(rows), -1)
            found[start : start + step] = (values * factors).sum(1, dtype=np.uint64)
    return found
