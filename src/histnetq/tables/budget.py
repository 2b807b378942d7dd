"""Memory budget of the work on one table, shared by everything that reads the table and writes the answer.

Without a budget nothing is limited. The server sets a budget for each request, and passes it to its worker processes
in an environment variable. `open_table` and `read_parquet` respect the budget. Data that grow while rows are read are
counted by a `Charge`; data that are made at once are checked by `require`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

VARIABLE = "HISTNETQ_BUDGET"
_KEY = 800  # bytes that one name takes in the dictionaries and lists of all steps, besides its letters
_COPIES = 3  # arrays with the names of the bags: in the reader, in the sketches and in the answer


class TooLargeError(ValueError):
    """A table or an answer that is larger than its budget."""


@dataclass
class Budget:
    """Limits for the work on one table, and the bytes in use.

    Attributes
    ----------
    bytes : int
        Largest number of bytes of memory.
    rows, columns : int
        Largest numbers of rows and columns of a table.
    cell_bytes : int
        Largest number of bytes of one text in a table.
    spent : int
        Bytes in use.
    checked : dict
        Parquet files whose sizes were checked already, each with its dictionary-encoded text columns.

    Examples
    --------
    >>> with limited_to(Budget(1000)):
    ...     require(2000, "names of bags", "use fewer bags")
    Traceback (most recent call last):
    histnetq.tables.budget.TooLargeError: memory: expected at most 1,000 bytes, names of bags take more; use fewer bags.
    """

    bytes: int
    rows: int = 100_000_000
    columns: int = 10_000
    cell_bytes: int = 65_536
    spent: int = 0
    checked: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def require(self, n_bytes: int, what: str, way_out: str) -> None:
        """Raise an error if `n_bytes` more bytes exceed the budget."""
        if self.spent + n_bytes > self.bytes:
            raise TooLargeError(f"memory: expected at most {self.bytes:,} bytes, {what} take more; {way_out}.")

    def check(self, what: str, got: int, most: int, way_out: str) -> None:
        """Raise an error for a table with more than `most` of something."""
        if got > most or got < 0:
            raise TooLargeError(f"table: expected at most {most:,} {what}, got {got:,}; {way_out}.")

    def check_cells(self, n_rows: int, n_columns: int) -> None:
        """Raise an error for too many rows, columns or cells."""
        self.check("columns", n_columns, self.columns, "send those that are needed")
        self.check("rows", n_rows, self.rows, "send them in parts")
        self.check("cells", n_rows * n_columns, self.bytes // 8, "send them in parts")

    def check_classes(self, n: int, column: str) -> None:
        """Raise an error for a label column with too many classes."""
        self.check("classes", n, self.columns, f"label rows by another column than {column[:80]!r}")

    def check_batch(self, batch: Any, n_before: int) -> None:
        """Raise an error for a text that is too long, or for too many rows together with `n_before` earlier ones."""
        import pyarrow.compute as pc

        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            cells = column.dictionary if hasattr(column, "dictionary") else column
            if len(cells) and is_text(cells.type):
                longest = pc.max(pc.binary_length(cells)).as_py() or 0
                if longest > self.cell_bytes:
                    raise TooLargeError(
                        f"table: column {name[:80]!r} has a cell of {longest:,} bytes, expected at most "
                        f"{self.cell_bytes:,}; shorten it."
                    )
        self.check_cells(n_before + batch.num_rows, batch.num_columns)

    def to_environment(self) -> dict[str, str]:
        """Return the environment variable that gives a child process the same limits."""
        limits = {name: value for name, value in asdict(self).items() if name not in ("spent", "checked")}
        return {VARIABLE: json.dumps(limits)}


_of_this_process = Budget(**json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else None
_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited_to(budget: Budget) -> Iterator[Budget]:
    """Limit the memory of this thread's work on tables."""
    token = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(token)


def current_budget() -> Budget | None:
    """Return the budget of this thread or, without one, of this process; None means no limit."""
    return _current.get() or _of_this_process


def require(n_bytes: int, what: str, way_out: str) -> None:
    """Raise an error if `n_bytes` more bytes exceed the current budget."""
    budget = current_budget()
    if budget is not None:
        budget.require(n_bytes, what, way_out)


class Charge:
    """The bytes of data that grow; they are returned to the budget when the object is deleted.

    Examples
    --------
    >>> with limited_to(Budget(1000)) as budget:
    ...     charge = Charge()
    ...     charge.grow_to(600, "rows", "send fewer")
    ...     taken = budget.spent
    ...     del charge
    >>> taken, budget.spent
    (600, 0)
    """

    def __init__(self) -> None:
        self._budget, self.n_bytes = current_budget(), 0

    def __del__(self) -> None:
        if self._budget is not None:
            self._budget.spent -= self.n_bytes

    def grow_to(self, n_bytes: int, what: str, way_out: str) -> None:
        """Set the total to `n_bytes`; raise an error if that exceeds the budget."""
        if self._budget is not None:
            self._budget.require(n_bytes - self.n_bytes, what, way_out)
            self._budget.spent += n_bytes - self.n_bytes
            self.n_bytes = n_bytes

    def add_names(self, names: Iterable[tuple[Any, ...]]) -> None:
        """Add the bytes of names that are kept in dictionaries and lists."""
        if self._budget is not None:
            n_bytes = sum(_KEY + sum(map(sys.getsizeof, name)) for name in names)
            self.grow_to(self.n_bytes + n_bytes, "names of bags", "use fewer bags or shorter names")


def name_array(names: Sequence[Any]) -> NDArray:
    """Return names as an array whose texts all have the width of the longest; raise an error if it is too large.

    Examples
    --------
    >>> name_array(["a", "bcd"]).nbytes
    24
    """
    import numpy as np

    if current_budget() is not None:
        longest = max((len(name) for name in names if isinstance(name, str)), default=2)
        n_bytes = _COPIES * 4 * longest * len(names)
        require(n_bytes, f"{len(names):,} names of up to {longest:,} characters", "use fewer bags or shorter names")
    return np.array(names)


def within_budget(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches of rows; raise an error as soon as they exceed the budget of this thread."""
    n, budget = 0, current_budget()
    for batch in batches:
        if budget is not None:
            budget.check_batch(batch, n)
        n += batch.num_rows
        yield batch


def is_text(kind: Any) -> bool:
    """Return whether a column of this type holds texts or binary data of variable length."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    texts = kinds.is_string(kind) or kinds.is_large_string(kind)
    return bool(texts or kinds.is_binary(kind) or kinds.is_large_binary(kind))
