"""Compilation by numba, with a cache on disk if it can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as numba's ``njit`` does, without a cache if no directory for it is writable.

    For example, a user of a read-only installation may have no home directory. Then every process compiles again.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError:  # numba found no place for its cache
            return numba.njit(**options)(function)

    return compiled
