"""Temporary directories of the server, and bodies of requests that are streamed to files."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import anyio

from histnetq.web.errors import RefusedError
from histnetq.web.limits import TableLimits

_LOCK = "lock"
_STARTING = 60.0  # seconds: a younger directory may have no lock yet
_AT_ONCE = 4 << 20  # bytes that are written together
_MOST_PARTS = 1000  # parts in memory: small ones take much more memory than their bytes
_IDLE = 30.0  # seconds to wait for the next part of a body
_SLOWEST = 64 << 10  # smallest rate in bytes per second, averaged over the last `_IDLE` seconds
_LONGEST = 3600.0  # seconds for a whole body


class Spool:
    """A private directory in `parent`, which a later start deletes if this process is killed.

    The process holds a lock on a file in the directory until it ends. A directory without a locked file is abandoned.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        delete_abandoned(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def make(self, name: str) -> Path:
        """Create a subdirectory."""
        place = self.path / name
        place.mkdir(mode=0o700)
        return place

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Path]:
        """Create a subdirectory, and delete it after the block."""
        # A worker that is being killed may still write there, which makes deleting fail.
        with tempfile.TemporaryDirectory(prefix="r_", dir=self.path, ignore_cleanup_errors=True) as place:
            yield Path(place)

    def close(self) -> None:
        """Delete the directory and its content."""
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


class Body:
    """The body of a request, which is written to the file `path` while it arrives.

    `n_bytes` is the number of received bytes. `n_lines` is the number of written line breaks, if `counts` is true.
    """

    def __init__(self, path: Path, counts: bool) -> None:
        self.path, self.counts, self.n_bytes, self.n_lines = path, counts, 0, 0
        self._waiting: list[bytes] = []
        self._n_waiting = 0
        self._file: IO[bytes] | None = None

    async def receive(self, stream: AsyncIterator[bytes], limits: TableLimits) -> None:
        """Receive the body; refuse it as soon as it is too large or too slow.

        `finish` writes the last part.
        """
        latest = anyio.current_time() + _LONGEST
        with anyio.move_on_after(_IDLE) as patience:
            async for part in stream:
                self.n_bytes += len(part)
                limits.check_bytes(self.n_bytes)
                self._waiting.append(part)
                self._n_waiting += len(part)
                if len(self._waiting) > _MOST_PARTS:
                    self._waiting = [b"".join(self._waiting)]
                if self._n_waiting >= _AT_ONCE:
                    await asyncio.to_thread(self._write)
                earned = patience.deadline + len(part) / _SLOWEST
                patience.deadline = min(anyio.current_time() + _IDLE, earned, latest)
        if patience.cancelled_caught:
            raise RefusedError(
                408, f"body: nothing came for {_IDLE:.0f} seconds, or less than {_SLOWEST:,} bytes per second; send "
                "it again.",
            )  # fmt: skip

    def finish(self) -> None:
        """Write the rest, and close the file."""
        self._write()
        with _refused_if_full():
            self.close()

    def close(self) -> None:
        """Close the file without writing the rest."""
        self._waiting.clear()
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        with _refused_if_full():
            if self._file is None:
                self._file = self.path.open("xb")
            for part in self._waiting:
                self._file.write(part)
        if self.counts:
            self.n_lines += sum(part.count(b"\n") for part in self._waiting)
        self._waiting.clear()
        self._n_waiting = 0


@contextlib.contextmanager
def _refused_if_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RefusedError(507, f"server: the body cannot be kept ({reason}); try again later.") from error
