"""Rows that took long to read, kept in a directory: ``rows.f32`` to be memory-mapped, the small arrays beside it.

A directory is written under another name and moved to its place when it is complete; it says what it was read from
and is used only as long as that has not changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.datasets.sources import user_directory

__all__ = ["Kept", "choose_place", "keep"]

Stamp = tuple[str, int, int]  # name, size and time of change of a file
_FORMAT = 1
_ROWS, _ARRAYS, _ABOUT = "rows.f32", "arrays.npz", "about.json"
_ABANDONED = 3600  # seconds without a change after which an unfinished directory has no writer


@dataclass(frozen=True)
class Kept:
    """The rows, memory-mapped, and the small arrays."""

    rows: NDArray[np.float32]
    arrays: dict[str, NDArray]


def choose_place(name: str, data: Path, cache_dir: str | os.PathLike[str] | None) -> Path:
    """The directory in which to keep what was read from `data`, a folder or a file.

    Beside the data where that can be written, else in the user's cache directory.
    """
    beside = data if data.is_dir() else data.parent
    if cache_dir is None and _is_writable(beside):
        return beside / ".histnetq" / (name if data.is_dir() else f"{data.name}-{name}")
    # Several data directories share this one.
    origin = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]
    kept = user_directory("XDG_CACHE_HOME", ".cache") if cache_dir is None else Path(cache_dir)
    return kept / f"{name}-{origin}"


def _is_writable(directory: Path) -> bool:
    """Whether files may be made there; a directory marked read-only is left alone by the administrator too."""
    return os.access(directory, os.W_OK) and bool(directory.stat().st_mode & 0o222)


def keep(place: Path, stamps: Sequence[Stamp], n_columns: int, fill: Callable[[BinaryIO], dict[str, NDArray]]) -> Kept:
    """What is kept at this place, or else what `fill` makes: it writes the rows to a file and returns the arrays."""
    sources = hashlib.sha256(json.dumps(sorted(stamps)).encode()).hexdigest()
    kept = _open(place, sources)
    if kept is not None:
        return kept
    made = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    try:
        made.mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"cache_dir: cannot write to {place.parent} ({error.strerror}), expected room to keep what was read; "
            "pass cache_dir= with a directory of yours."
        ) from None
    try:
        _write(made, sources, n_columns, fill)
        _move(made, place)
        _remove_abandoned(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    kept = _open(place, sources)
    if kept is None:
        raise OSError(f"cache_dir: {place} was changed by another process while it was written; load again.")
    return kept


def _write(made: Path, sources: str, n_columns: int, fill: Callable[[BinaryIO], dict[str, NDArray]]) -> None:
    with (made / _ROWS).open("wb") as file:
        arrays = fill(file)
        size = file.tell()
    np.savez(made / _ARRAYS, **arrays)  # type: ignore[arg-type]
    about = {"format": _FORMAT, "sources": sources, "shape": [size // (4 * n_columns), n_columns]}
    (made / _ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")


def _move(made: Path, place: Path) -> None:
    outdated = place.with_name(f"{made.name}.old")
    try:
        if place.exists():
            os.replace(place, outdated)
        os.replace(made, place)
    except OSError:
        # Another process put the same there in the meantime.
        if not (place / _ABOUT).is_file():
            raise
    finally:
        shutil.rmtree(outdated, ignore_errors=True)


def _remove_abandoned(place: Path) -> None:
    for other in place.parent.glob(f".{place.name}-{'?' * 32}"):
        rows = other / _ROWS
        if rows.is_file() and time.time() - rows.stat().st_mtime > _ABANDONED:
            shutil.rmtree(other, ignore_errors=True)


def _open(place: Path, sources: str) -> Kept | None:
    """What is kept there, None if it is of other sources, of another format or damaged."""
    try:
        about = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
        n_rows, n_columns = about["shape"]
        if (about["format"], about["sources"]) != (_FORMAT, sources):
            return None
        if (place / _ROWS).stat().st_size != 4 * n_rows * n_columns:
            return None
        with np.load(place / _ARRAYS, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        rows = np.memmap(place / _ROWS, dtype="<f4", mode="r", shape=(n_rows, n_columns))
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None
    return Kept(rows, arrays)
