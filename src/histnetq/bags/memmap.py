"""Pools of rows that are larger than memory, in memory-mapped temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 24  # numbers processed at a time


class PoolFile:
    """A temporary file that rows are appended to; it is deleted with the last array that uses it.

    `shape` is the shape of one row, and `directory` is by default the system's directory for temporary files.

    Examples
    --------
    >>> pool = PoolFile((2,), np.float32)
    >>> pool.add(np.ones((3, 2)))
    >>> type(pool.all()).__name__, pool.all().shape
    ('memmap', (3, 2))
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, directory: str | os.PathLike[str] | None = None) -> None:
        self.shape, self.dtype, self.n = shape, np.dtype(dtype), 0
        try:
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - stays open with this object
        except OSError as error:
            way_out = "name a directory with room for the rows"
            raise OSError(f"scratch: {directory} cannot be written to ({error.strerror}); {way_out}.") from None

    def add(self, part: NDArray) -> None:
        np.ascontiguousarray(part, self.dtype).tofile(self._file)
        self.n += len(part)

    def all(self) -> NDArray:
        """Return the memory-mapped rows, (n_rows, ...)."""
        self._file.flush()
        return np.memmap(self._file, self.dtype, "r", shape=(self.n, *self.shape))


def join_on_disk(pools: Sequence[NDArray]) -> NDArray:
    """Return the concatenated rows of all pools, memory-mapped."""
    joined = PoolFile(pools[0].shape[1:], np.result_type(*pools))
    for pool in pools:
        for chunk in row_chunks(pool):
            joined.add(pool[chunk])
    return joined.all()


def row_chunks(pool: NDArray) -> Iterator[slice]:
    """Yield slices of rows that are small enough to be processed at a time."""
    step = max(1, _CHUNK // max(1, int(np.prod(pool.shape[1:]))))
    return (slice(start, start + step) for start in range(0, len(pool), step))
