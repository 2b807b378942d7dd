"""Processes that the server starts and may kill, and their memory."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_FIRST_TO_GO = "500"  # of 1000: the kernel kills workers before the server where memory is full
_MALLOC = {  # by the numbers that malloc.h has for the settings
    -8: 1,  # M_ARENA_MAX: all threads share what is free
    -3: 32 << 20,  # M_MMAP_THRESHOLD: larger arrays go back to the system at once
    -1: 64 << 20,  # M_TRIM_THRESHOLD: so much stays, where it is the last part that is free
}


def environment() -> dict[str, str]:
    """Return the variables of a child: it uses this very package, and imports nothing from its directory."""
    package = str(Path(__file__).parents[2])
    others = os.environ.get("PYTHONPATH")
    path = package if not others else f"{package}{os.pathsep}{others}"
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def send(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to a child that has not ended and leads its session, and to the processes that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, whatever this process does then; Linux alone can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit


def limit_memory(n_bytes: int) -> None:
    """Let this process have so many bytes of memory of its own: more raises MemoryError, or ends it."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = n_bytes if hard == resource.RLIM_INFINITY else min(n_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)


def keep_memory() -> None:
    """Let this process use memory again that it has freed, in place of giving it back and having it cleared anew.

    The C library gives each thread memory of its own, and large arrays memory that goes back at once: one request
    costs thousands of page faults by that. This is for the whole process, before it has threads.
    """
    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such settings
        for setting, value in _MALLOC.items():
            ctypes.CDLL(None).mallopt(setting, value)


def machine_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes(pid: int) -> int | None:
    """Return the bytes of memory that a process uses, or None where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
