"""Places of files: paths on this machine, and addresses in object storage such as ``s3://bucket/key``.

Only the schemes in `registry.STORES` are opened, each by the fsspec class of its name. An address is never parsed by
fsspec itself, whose chains such as ``simplecache::s3://…`` or ``zip://…`` unpack archives and open other addresses.
Work on a request to the service has a memory budget, and opens no address at all.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from histnetq.errors import ConnectingError, InputError, MissingFileError, StructuredError
from histnetq.registry import STORES
from histnetq.tables.budget import current_budget

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*)://(.*)", re.DOTALL)
_COLLAPSED = re.compile(rf"({'|'.join(STORES)}):/[^/]")  # what pathlib makes of an address
_BLOCK = 4 << 20  # bytes that are fetched at once while a file is read from its beginning to its end
_TRIES = 2  # of each request
_PATIENCE = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}  # of S3, in seconds
_LONGEST = 200  # characters of a reason in a message


def is_address(path: Any) -> bool:
    """Return whether a path has the form of an address; such a text never names a file on this machine.

    Examples
    --------
    >>> is_address("s3://bucket/rows.csv"), is_address("zip://rows.csv::s3://bucket/a.zip"), is_address("rows.csv")
    (True, True, False)
    """
    return isinstance(path, Address) or (isinstance(path, str) and _ADDRESS.match(path) is not None)


def as_place(path: str | os.PathLike[str], argument: str = "path") -> Path | Address:
    """Return a path, or a checked address; raise an error for an address that is not opened.

    Examples
    --------
    >>> as_place("gs://bucket/days/monday.csv").name
    'monday.csv'
    >>> as_place("https://example.org/rows.csv")
    Traceback (most recent call last):
    histnetq.errors.InputError: path: https://example.org/rows.csv is a web address, which is not opened; download the \
file first.
    """
    if isinstance(path, Address):
        return path
    text = os.fspath(path)
    found = _ADDRESS.match(text)
    if found is None:
        if _COLLAPSED.match(text):
            problem = f"{text} is an address that lost a slash"
            raise InputError(argument, problem=problem, remedy="pass the address as a text, not as a pathlib.Path")
        return Path(path)
    _check(text, found[1].lower(), found[2], argument)
    return Address(found[1].lower(), found[2].rstrip("/"))


def local_path(path: str | os.PathLike[str], argument: str) -> Path:
    """Return a path on this machine; raise an error for an address, where only files of this machine can be used."""
    if is_address(path):
        raise InputError(argument, "a path on this machine", f"the address {os.fspath(path)}", "copy the files first")
    return Path(path)


def open_binary(path: str, *, whole_reads: bool = False) -> IO[bytes]:
    """Open a file on this machine or an address; `whole_reads` fetches what each read asks for, and nothing ahead."""
    place = as_place(path) if is_address(path) else None
    return place.open(whole_reads) if isinstance(place, Address) else open(path, "rb")


def count_bytes(path: str | os.PathLike[str]) -> int:
    """Return the size of a file in bytes."""
    place = as_place(path)
    return place.n_bytes() if isinstance(place, Address) else os.path.getsize(path)


@dataclass(frozen=True)
class Address(os.PathLike[str]):
    """An object in object storage, or a folder of objects.

    Parameters
    ----------
    scheme : str
        One of `STORES`.
    key : str
        The bucket and the name in it, such as "bucket/days/monday.csv".
    """

    scheme: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __fspath__(self) -> str:
        return str(self)

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, as of a path."""
        return Path(self.name).suffix

    def with_name(self, name: str) -> Address:
        """Return the address of this name in the same folder."""
        return Address(self.scheme, f"{self.key.rpartition('/')[0]}/{name}".lstrip("/"))

    def kind(self) -> str | None:
        """Return "file" or "directory", or None if nothing is there."""
        with self._reaching():
            try:
                return str(self._store().info(self.key)["type"])
            except FileNotFoundError:
                return None

    def n_bytes(self) -> int:
        """Return the size in bytes."""
        with self._reaching():
            return int(self._store().info(self.key)["size"])

    def matches(self) -> list[Address]:
        """Return the addresses of files that match the key as a glob, sorted."""
        with self._reaching():
            found = self._store().glob(self.key, detail=True) if any(sign in self.key for sign in "*?[") else {}
        keys = sorted(key for key, about in found.items() if about["type"] == "file")
        for key in keys:
            _check(f"{self.scheme}://{key.lstrip('/')}", self.scheme, key.lstrip("/"), "source")
        return [Address(self.scheme, key.lstrip("/")) for key in keys]

    def names(self) -> list[str]:
        """Return the names in a folder."""
        with self._reaching():
            try:
                return [key.rstrip("/").rpartition("/")[2] for key in self._store().ls(self.key, detail=False)]
            except FileNotFoundError:
                return []

    def open(self, whole_reads: bool = False) -> IO[bytes]:
        """Open for reading; nothing is copied to a file of this machine."""
        with self._reaching():
            cache = {"cache_type": "none"} if whole_reads else {"cache_type": "readahead", "block_size": _BLOCK}
            file = self._store().open(self.key, "rb", **cache)
        if isinstance(file, io.BytesIO):  # of memory://, where all readers share one object and its position
            file = io.BytesIO(file.getvalue())
        return _Translated(self, file)  # type: ignore[return-value]

    def read(self, first: int = -1) -> bytes:
        """Return the content, or its first bytes."""
        with self.open(whole_reads=True) as file:
            return file.read(first)

    def write(self, content: bytes) -> None:
        """Write the whole content in one step, as object storage does: readers see all of it or none."""
        with self._reaching():
            self._store().pipe_file(self.key, content)

    def upload(self, file: Path) -> None:
        """Copy a file of this machine to the address; it appears when it is complete."""
        with self._reaching():
            self._store().put_file(str(file), self.key)

    def delete(self) -> None:
        """Delete the object; nothing happens if there is none."""
        with self._reaching(), contextlib.suppress(FileNotFoundError):
            self._store().rm_file(self.key)

    def _store(self) -> Any:
        return _connect(self.scheme)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn every error of a store, which are of many kinds, into one sentence."""
        try:
            yield
        except (StructuredError, MemoryError, ImportError):
            raise
        except FileNotFoundError as error:
            reason = _first_line(error)
            problem = "does not exist" if self.key in reason else f"does not exist ({reason})"
            raise MissingFileError(str(self), problem=problem, remedy="check the address") from None
        except Exception as error:
            problem = f"cannot be used ({_first_line(error)})"
            remedy = "check the address, your credentials and the connection"
            raise ConnectingError(str(self), problem=problem, remedy=remedy) from None


class _Translated(io.RawIOBase):
    """A file in a store, whose errors while reading become one sentence."""

    def __init__(self, address: Address, file: IO[bytes]) -> None:
        self._address, self._file = address, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def read(self, n: int | None = -1) -> bytes:
        with self._address._reaching():
            return self._file.read(-1 if n is None else n)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def _check(text: str, scheme: str, key: str, argument: str) -> None:
    """Raise an error for an address that is not opened."""
    if current_budget() is not None:
        problem = f"{text} is an address, which requests cannot name"
        raise InputError(argument, problem=problem, remedy="send the file")
    if scheme in ("http", "https"):
        problem = f"{text} is a web address, which is not opened"
        raise InputError(argument, problem=problem, remedy="download the file first")
    if scheme in ("file", "local"):
        raise InputError(argument, problem=f"{text} is a file URL, which is not opened", remedy="name it by its path")
    if "::" in text:
        problem = f"{text} is a chain of addresses, which is not opened"
        raise InputError(argument, problem=problem, remedy="name the object itself")
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise InputError(argument, f"an address that begins with one of {known}", text, "copy the files first")
    parts = key.rstrip("/").split("/")
    if len(parts) < (1 if scheme == "memory" else 2) or {"", ".", ".."} & set(parts) or not key.isprintable():
        expected = f"an address such as {scheme}://bucket/name, without empty parts, '.' and '..'"
        raise InputError(argument, expected, repr(text), "correct it")


def _connect(scheme: str) -> Any:
    """Return the fsspec object of a store; fsspec reads credentials and settings where it always does."""
    try:
        import fsspec
        from fsspec.config import conf
    except ModuleNotFoundError:
        raise ImportError(f"{scheme}:// needs the package fsspec; pip install 'histnetq[remote]'.") from None
    settings: dict[str, Any] = {"use_listings_cache": False}  # a new file must be seen at once
    if scheme in ("s3", "s3a"):
        settings["config_kwargs"] = {**_PATIENCE, **conf.get(scheme, {}).get("config_kwargs", {})}
    try:
        store = fsspec.filesystem(scheme, **settings)
    except ImportError:
        package = STORES[scheme]
        needed = "'histnetq[remote]'" if package == "s3fs" else package
        raise ImportError(f"{scheme}:// needs the package {package}; pip install {needed}.") from None
    if scheme in ("s3", "s3a"):
        store.retries = _TRIES
    return store


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
