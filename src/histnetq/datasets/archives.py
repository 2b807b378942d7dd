"""Reading of files in zip archives without unpacking them to disk; unsafe archives raise an error."""

from __future__ import annotations

import copy
import re
import stat
import threading
import zipfile
import zlib
from pathlib import Path

_LARGEST_MEMBER = 1 << 30  # unpacked bytes of one member, which is held in memory
_LARGEST_ARCHIVE = 1 << 36  # unpacked bytes of all members together
_LARGEST_RATIO = 200  # unpacked bytes per packed byte; numbers as text have 3 to 5
_SMALL = 1 << 20  # unpacked bytes; up to this size, any ratio is harmless
_ROOM = 1 << 13  # bytes; zipfile unpacks fewer beyond the requested number


class Archive:
    """A zip archive whose members are read one by one, by any number of threads.

    The constructor raises an error for absolute names or names that lead out of the archive, links, encrypted or
    repeated members, and members that are far too large. `read` raises an error for a member that does not unpack to
    its declared size. `names` are the names of the files inside.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()  # zipfile counts its open members without a lock
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise ValueError(
                f"archive: {path} cannot be read as a zip archive ({error}), it is damaged or cut off; fetch it again."
            ) from None
        self._members: dict[str, zipfile.ZipInfo] = {}
        total = packed = 0
        for info in self._zip.infolist():
            problem = _problem(info) or ("occurs twice" if info.filename in self._members else None)
            if problem:
                raise _refused(f"{info.orig_filename!r} in {path} {problem}, expected plain files inside the archive")
            total, packed = total + info.file_size, packed + info.compress_size
            if not info.is_dir():
                self._members[info.filename] = info
        self.names = list(self._members)
        # Overlapping members declare more packed bytes than the file has.
        on_disk = path.stat().st_size
        if packed > on_disk or total > _LARGEST_ARCHIVE or (total > _SMALL and total > _LARGEST_RATIO * on_disk):
            raise ValueError(
                f"archive: {path} of {on_disk:,} bytes declares {total:,} bytes unpacked, expected at most "
                f"{_LARGEST_RATIO} times its size and {_LARGEST_ARCHIVE:,}; the archive is refused."
            )

    def read(self, name: str) -> bytes:
        """Return the content of one member."""
        info = copy.copy(self._members[name])
        declared = info.file_size
        # zipfile silently stops at the declared size; a larger size shows whether there is more.
        info.file_size += _ROOM
        try:
            with self._lock:
                file = self._zip.open(info)
            try:
                content = file.read(declared + 1)
            finally:
                with self._lock:
                    file.close()
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise ValueError(
                f"archive: {name} in {self.path} is damaged ({error}), expected {declared:,} bytes; fetch it again."
            ) from None
        if len(content) != declared:
            amount = "more" if len(content) > declared else f"{len(content):,} bytes"
            raise _refused(f"{name} in {self.path} declares {declared:,} bytes and unpacks to {amount}")
        return content

    def size(self, name: str) -> int:
        """Return the declared unpacked size of a member in bytes."""
        return self._members[name].file_size

    def close(self) -> None:
        """Close the file."""
        self._zip.close()


def _refused(problem: str) -> ValueError:
    return ValueError(f"archive: {problem}; the archive is refused, fetch it from its public record.")


def _problem(info: zipfile.ZipInfo) -> str | None:
    """Describe why a member is unsafe; return None if it is safe."""
    name = info.orig_filename
    if name.startswith(("/", "\\")) or re.match("[A-Za-z]:", name):
        return "has an absolute name"
    if ".." in re.split(r"[/\\]", name) or "\\" in name or "\0" in name or not name:
        return "has a name that leads out of the archive"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if info.flag_bits & 1:
        return "is encrypted"
    if info.file_size > _LARGEST_MEMBER:
        return f"declares {info.file_size:,} bytes"
    if info.file_size > _SMALL and info.file_size > _LARGEST_RATIO * info.compress_size:
        return f"declares {info.file_size:,} bytes packed into {info.compress_size:,}"
    return None
