"""A cache of parsed rows: a directory with ``rows.f32``, which is memory-mapped, and small arrays.

A directory is written under a temporary name and renamed when it is complete. It records its source files and is used
only while these are unchanged. `whole_file` and pooch handle single files, while these three files belong together.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.datasets.sources import MaybePath, user_directory

Arrays = dict[str, NDArray]
_FORMAT = 2
_ROWS, _ARRAYS, _ABOUT = "rows.f32", "arrays.npz", "about.json"
_ABANDONED = 3600  # seconds without a change after which an unfinished directory is deleted


def choose_place(name: str, data: Path, cache_dir: MaybePath) -> Path:
    """Choose the cache directory of `data`, a folder or a file: next to it if possible, else in the user's cache."""
    beside = data if data.is_dir() else data.parent
    # The administrator may write everywhere, so the mode of the directory is checked too.
    if cache_dir is None and os.access(beside, os.W_OK) and beside.stat().st_mode & 0o222:
        return beside / ".histnetq" / (name if data.is_dir() else f"{data.name}-{name}")
    # Several data directories share the user's cache.
    origin = hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]
    kept = user_directory("XDG_CACHE_HOME", ".cache") if cache_dir is None else Path(cache_dir)
    return kept / f"{name}-{origin}"


def keep(
    place: Path, data: Path, origins: Sequence[Path], n_columns: int, fill: Callable[[BinaryIO], Arrays]
) -> tuple[NDArray[np.float32], Arrays]:
    """Return the cached rows and arrays of these source files.

    If there are none or the files have changed, `fill` creates them: it writes the rows and returns the arrays.
    """
    # Names are relative to the data, so that the data may be moved.
    stamps = sorted((os.path.relpath(f, data), f.stat().st_size, f.stat().st_mtime_ns) for f in origins)
    about = {"format": _FORMAT, "sources": hashlib.sha256(json.dumps(stamps).encode()).hexdigest()}
    kept = _open(place, about, n_columns)
    if kept is not None:
        return kept
    made = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    try:
        made.mkdir(parents=True)
    except OSError as error:
        raise OSError(
            f"cache_dir: cannot write to {place.parent} ({error.strerror}), expected a writable directory for the "
            "parsed rows; pass another one by cache_dir=."
        ) from None
    try:
        with (made / _ROWS).open("wb") as file:
            arrays, size = fill(file), file.tell()
        np.savez(made / _ARRAYS, **arrays)  # type: ignore[arg-type]
        (made / _ABOUT).write_text(json.dumps({**about, "bytes": size}) + "\n", encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # if another process was faster, its directory is opened
            os.replace(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    for rows in place.parent.glob(f".{place.name}-{'?' * 32}/{_ROWS}"):
        if time.time() - rows.stat().st_mtime > _ABANDONED:
            shutil.rmtree(rows.parent, ignore_errors=True)
    kept = _open(place, about, n_columns)
    if kept is None:
        raise OSError(f"cache_dir: {place} was changed by another process while it was written; load again.")
    return kept


def _open(place: Path, about: dict[str, object], n_columns: int) -> tuple[NDArray[np.float32], Arrays] | None:
    """Return the cached rows and arrays; None if their source files or format have changed, or they are damaged."""
    try:
        size = (place / _ROWS).stat().st_size
        if json.loads((place / _ABOUT).read_text(encoding="utf-8")) != {**about, "bytes": size}:
            return None
        with np.load(place / _ARRAYS, allow_pickle=False) as file:
            arrays = dict(file)
        return np.memmap(place / _ROWS, "<f4", "r", shape=(size // (4 * n_columns), n_columns)), arrays
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        return None
