"""Arrays that grow while rows are read, in memory or in a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.memmap import PoolFile, row_chunks
from histnetq.tables.budget import Charge
from histnetq.tables.places import local_path

_COPIES = 3  # copies of rows in memory: as read, in the order of the bags, and inside a method


class Grown:
    """An array that grows in place, without copying the existing rows."""

    def __init__(self, dtype: Any, shape: tuple[int, ...] = ()) -> None:
        self.array, self.dtype, self._charge = np.empty((0, *shape), dtype), np.dtype(dtype), Charge()

    def add(self, part: NDArray) -> None:
        """Add rows at the end."""
        n = len(self.array)
        n_bytes = _COPIES * (self.array.size + part.size) * self.array.itemsize
        self._charge.grow_to(n_bytes, f"{n + len(part):,} rows", "send the table in parts")
        self.array.resize((n + len(part), *self.array.shape[1:]), refcheck=False)
        self.array[n:] = part

    def all(self) -> NDArray:
        """Return all rows."""
        return self.array


def grown_rows(dtype: Any, n_features: int, scratch: Any) -> Any:
    """Return an empty array with `n_features` columns that grows in memory, or in a file in the directory `scratch`."""
    return (
        Grown(dtype, (n_features,))
        if scratch is None
        else PoolFile((n_features,), dtype, local_path(scratch, "scratch"))
    )


def copy_rows(rows: NDArray, into: Any, columns: Any = slice(None), means: NDArray | None = None) -> Any:
    """Append the chosen columns of these rows to a growing array, with NaN replaced by `means`."""
    for chunk in row_chunks(rows):
        part = rows[chunk, columns]
        into.add(part if means is None else np.where(np.isnan(part), means, part))
    return into
