"""Directories: where data sets are fetched to and looked for, and where what was read is kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_home", "data_home", "is_writable"]


def data_home() -> Path:
    """Where data sets are fetched to unless told otherwise: histnetq under $XDG_DATA_HOME or ~/.local/share."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "histnetq"


def cache_home() -> Path:
    """Where things that can be made again are kept: histnetq under $XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "histnetq"


def is_writable(directory: Path) -> bool:
    """Whether files may be made there; a directory marked read-only is left alone by the administrator too."""
    return directory.is_dir() and os.access(directory, os.W_OK) and bool(directory.stat().st_mode & 0o222)
