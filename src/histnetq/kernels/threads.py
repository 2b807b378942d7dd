"""Run a function on torch's own threads.

After each parallel operation torch's OpenMP threads spin for milliseconds, waiting for the next. Threads of any other
pool (Python's or numba's) then compete with them for the cores: on two cores, the hard histogram took 25 to 40 ms on
other threads and 12 to 18 ms on torch's threads. If torch has no GNU OpenMP, an ordinary thread pool is used.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from histnetq.kernels.cores import count_cores

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_forked = False


def run_threads(work: Callable[[], Any], n_threads: int) -> None:
    """Call `work` once in each of `n_threads` threads at the same time, this one among them, and wait."""
    if n_threads == 1:
        work()
        return
    errors: list[BaseException] = []

    def guarded(_: int | None = None) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    parallel = _openmp()
    if parallel is None:
        others = [_pool().submit(guarded) for _ in range(n_threads - 1)]
        guarded()
        wait(others)  # also after an error here, as these threads write to arrays that the caller may reuse
    else:
        parallel(_CALLBACK(guarded), None, n_threads, 0)
    if errors:
        raise errors[0]


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to this thread, as synchronising threads makes operations of a millisecond slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _openmp() -> Callable[..., None] | None:
    """Return ``GOMP_parallel`` of the library that torch has loaded, or None."""
    found = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    if _forked or not found or not torch.backends.openmp.is_available():
        return None
    try:
        parallel = ctypes.CDLL(str(found[0]), mode=os.RTLD_NOLOAD | os.RTLD_LAZY).GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [_CALLBACK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count_cores(), thread_name_prefix="histnetq")


def _after_fork() -> None:
    # A forked child does not have the parent's threads, and GNU OpenMP cannot start them again, so torch would wait
    # for them forever.
    global _forked
    _forked = True
    if _openmp.cache_info().currsize:
        torch.set_num_threads(1)
    _openmp.cache_clear()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
