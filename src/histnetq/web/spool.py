"""Directories for what lives as long as the server, and bodies of requests that stream to files in them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import anyio

from histnetq.web.limits import Limits
from histnetq.web.refusals import RefusedError

_LOCK = "lock"
_STARTING = 60.0  # seconds for which a directory may have no lock yet
_AT_ONCE = 1 << 20  # bytes that are written together
_IDLE = 30.0  # seconds to wait for the next part of a body
_LONGEST = 3600.0  # seconds for a whole body


class Spool:
    """A directory that nobody else may read, and that a later start deletes if this process is killed.

    The process holds a lock on a file in it as long as it lives, by which the directories of others are known to be in
    use or not.

    Parameters
    ----------
    parent : path
        Where it is made.
    prefix : str
        With what its name begins.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        delete_abandoned(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def make(self, name: str) -> Path:
        """Make a directory in it."""
        place = self.path / name
        place.mkdir(mode=0o700)
        return place

    def close(self) -> None:
        """Delete it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def delete_abandoned(parent: Path, prefix: str) -> None:
    """Delete the directories of processes that were killed."""
    for place in parent.glob(f"{prefix}*"):
        if place.is_symlink() or not place.is_dir() or place.stat().st_uid != os.getuid():
            continue
        with contextlib.suppress(OSError):
            if _is_abandoned(place):
                shutil.rmtree(place, ignore_errors=True)


def _is_abandoned(place: Path) -> bool:
    try:
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - place.stat().st_mtime > _STARTING
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


@dataclass
class Received:
    """What is known of a body that was written to a file: its size, line breaks and first bytes."""

    n_bytes: int = 0
    n_lines: int = 0
    begin: bytes = b""

    def add(self, file: IO[bytes], part: bytes) -> None:
        """Write a part."""
        file.write(part)
        self.n_bytes += len(part)
        self.n_lines += part.count(b"\n")
        self.begin = (self.begin + part[:4])[:4]


async def receive(stream: AsyncIterator[bytes], path: Path, limits: Limits) -> Received:
    """Write a body to a file as it comes; refuse it as soon as it is too large, or if it comes to a halt."""
    received, waiting = Received(), bytearray()
    n_bytes, began = 0, time.monotonic()
    with path.open("wb") as file:
        while True:
            try:
                with anyio.fail_after(_IDLE):
                    part = await anext(stream, None)
            except TimeoutError:
                raise RefusedError(408, f"body: nothing came for {_IDLE:.0f} seconds; send it again.") from None
            n_bytes += len(part or b"")
            limits.check_bytes(n_bytes)
            if time.monotonic() - began > _LONGEST:
                raise RefusedError(408, f"body: expected all of it within {_LONGEST:.0f} seconds; send a smaller file.")
            waiting += part or b""
            if part is None or len(waiting) >= _AT_ONCE:
                await asyncio.to_thread(received.add, file, bytes(waiting))
                waiting.clear()
            if part is None:
                return received
