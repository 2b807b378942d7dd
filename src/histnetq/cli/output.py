"""Tables that commands write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from histnetq.data.files import refuse_existing, whole_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["refuse_existing", "write_table"]


def write_table(table: pd.DataFrame, path: Path, *, force: bool, index: bool = False) -> None:
    """Write a CSV or Parquet file."""
    refuse_existing(path, force)
    with whole_file(path) as partial:
        if path.suffix in (".parquet", ".pq"):
            table.to_parquet(partial, index=index)
        else:
            table.to_csv(partial, index=index, lineterminator="\n")
