"""Compilation by numba, kept on disk for the next process where there is a place for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as numba's ``njit`` does, without a cache if it can be written nowhere.

    That is so in a read-only installation whose user has no home: every process compiles for itself there.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError:  # numba found no place for its cache
            return numba.njit(**options)(function)

    return compiled
