"""Child processes of the server: their environment, signals and memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_FIRST_TO_GO = "500"  # of 1000: the kernel kills workers before the server if memory is full
_MALLOC = {  # the numbers of the settings in malloc.h
    -8: 1,  # M_ARENA_MAX: all threads share the free memory
    -3: 32 << 20,  # M_MMAP_THRESHOLD: larger arrays go back to the system at once
    -1: 64 << 20,  # M_TRIM_THRESHOLD: up to this size, free memory at the end of the heap is kept
}


def environment() -> dict[str, str]:
    """Return the environment of a child, which imports this very package and nothing from its working directory."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def send(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a running child and to the processes that it started; the child must lead its session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends. This works on Linux only."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit


def limit_memory(n_bytes: int) -> None:
    """Limit the memory of this process to `n_bytes`: more raises MemoryError, or ends the process."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def keep_memory() -> None:
    """Let this process reuse freed memory instead of returning it to the system.

    By default, the C library gives each thread its own memory and returns the memory of large arrays at once, which
    costs thousands of page faults per request. Call this before the process has threads.
    """
    with contextlib.suppress(AttributeError, OSError):  # C libraries other than glibc have no such settings
        for setting, value in _MALLOC.items():
            ctypes.CDLL(None).mallopt(setting, value)


def machine_memory() -> int:
    """Return the size of this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes(pid: int) -> int | None:
    """Return the bytes of memory that a process uses, or None if the system does not report them."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
