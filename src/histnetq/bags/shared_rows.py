"""Detection of rows that several bags share: the same pool rows, or rows with the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags

_CHUNK = 1 << 22  # numbers hashed at a time


def part_shared(bags: Bags, by_content: bool = False) -> float:
    """Return the fraction of the entries whose row is also in another bag.

    With `by_content`, different pool rows with the same values or texts count as the same row.

    Examples
    --------
    >>> from histnetq import Bags
    >>> bags = Bags(np.array([[1.0], [2.0], [2.0]]), offsets=[0, 1, 2, 3])
    >>> part_shared(bags), round(part_shared(bags, by_content=True), 2)
    (0.0, 0.67)
    """
    names = row_hashes(bags.rows, bags.index) if by_content else bags.index
    order = np.lexsort((bags.bag_of_entry, names))
    names, bag = names[order], bags.bag_of_entry[order]
    starts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])
    counts = np.diff(np.r_[starts, len(names)])
    several = bag[starts] != bag[starts + counts - 1]
    return float(counts[several].sum() / len(names))


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
