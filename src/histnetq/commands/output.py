"""Files that commands write: all of a file or nothing, and nothing is replaced unasked."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["refuse_existing", "write_table"]


def refuse_existing(path: Path | None, force: bool) -> None:
    """Before the work is done, where it takes long."""
    if path is not None and path.exists() and not force:
        raise FileExistsError(f"output: {path} exists; choose another name or pass --force to replace it.")


def write_table(table: pd.DataFrame, path: Path, *, force: bool, index: bool = False) -> None:
    """Write a CSV or Parquet file, all of it or nothing."""
    refuse_existing(path, force)
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".parquet", ".pq"):
            table.to_parquet(partial, index=index)
        else:
            table.to_csv(partial, index=index, lineterminator="\n")
        os.replace(partial, path)
    except OSError as error:
        raise OSError(f"output: {path} cannot be written ({error.strerror or error}); choose another place.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
