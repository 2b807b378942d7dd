"""What is seen of a table's columns while it is read: which are no features, which need double precision, and means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import loses_digits

_FEWEST_ROWS = 50  # fewer tell nothing about keys and counters
_FEWEST_NUMBERED = 10  # rows: fewer may well rise by chance
_GAPS = 1.5  # numbers that a row has, at most, in a column that numbers rows of which some were left out
_DISTINCT = 0.99  # part of the rows of a key that have different values
_BAG_ROWS = 5  # in a bag in which a counter rises
_EXACT = 1 << 24  # whole numbers up to here are told apart in float32
_SURE = 1000  # rows after which a column that repeats its values is no key
_FEW = 20_000  # rows that are looked at for counters before all are
_COLUMNS_AT_ONCE = 64


class Watch:
    """Statistics of the columns of rows that come in pieces; NaN stands for a cell without a value.

    Parameters
    ----------
    n_columns : int
        Number of columns.

    Examples
    --------
    >>> watch = Watch(2)
    >>> watch.add(np.array([[1.7e9, 0.5], [1.7e9 + 1, np.nan]]))
    >>> watch.means.tolist(), watch.loses_digits()
    ([1700000000.5, 0.5], True)
    """

    def __init__(self, n_columns: int) -> None:
        self.n_rows = 0
        self.low, self.high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)
        self._sums, self._counts, self._error = np.zeros(n_columns), np.zeros(n_columns, np.int64), np.zeros(n_columns)
        self.whole = np.ones(n_columns, bool)
        self._repeated = np.zeros(n_columns, np.int64)  # values that a piece has had before

    def add(self, rows: NDArray) -> None:
        """Look at some more rows ``(n_rows, n_columns)``, which are in double precision unless float32 holds them."""
        if not len(rows):
            return
        self.n_rows += len(rows)
        sums, counts = rows.sum(0, dtype=np.float64), np.full(rows.shape[1], len(rows))
        least: np.ufunc = np.minimum  # several times faster than fmin, which passes over NaN
        greatest: np.ufunc = np.maximum
        if np.isnan(sums).any():
            sums, counts = np.nansum(rows, 0, dtype=float), (~np.isnan(rows)).sum(0)
            least, greatest = np.fmin, np.fmax
        self._sums += sums
        self._counts += counts
        self.low, self.high = np.fmin(self.low, least.reduce(rows)), np.fmax(self.high, greatest.reduce(rows))
        if rows.dtype == np.float64:
            self._error = np.fmax(self._error, greatest.reduce(np.abs(rows - rows.astype(np.float32))))
        self._count_repeated(rows)

    def _count_repeated(self, rows: NDArray) -> None:
        """Find whole numbers, and among these the columns that hardly repeat a value."""
        for some in _groups(np.flatnonzero(self.whole)):
            values = rows[:, some]
            self.whole[some] = ((values == np.rint(values)) | np.isnan(values)).all(0)
        unsure = self.whole & ((self.n_rows < _SURE) | (self._repeated <= (1 - _DISTINCT) * self.n_rows))
        for some in _groups(np.flatnonzero(unsure)):
            self._repeated[some] += (np.diff(np.sort(rows[:, some], axis=0), axis=0) == 0).sum(0)

    @property
    def means(self) -> NDArray[np.float64]:
        """(n_columns,): mean over the cells that have a value, 0 where none has."""
        return self._sums / np.maximum(self._counts, 1)

    def loses_digits(self) -> bool:
        """Tell whether some column needs double precision."""
        return bool(loses_digits(self._error, self.low, self.high).any())

    def left_out(self, rows: NDArray, bags: NDArray) -> dict[int, str]:
        """Columns that are no features, and why.

        Parameters
        ----------
        rows : (n_rows, n_columns)
            All rows as they were kept.
        bags : (n_rows,)
            Number of the bag of each row.
        """
        why = dict.fromkeys(np.flatnonzero((self.low == self.high) & (self._counts > 1)).tolist(), "constant")
        why |= dict.fromkeys(np.flatnonzero(self._counts == 0).tolist(), "empty")
        whole = np.flatnonzero(self.whole & (self.low < self.high)).tolist()
        if self.n_rows < _FEWEST_ROWS:
            return why | {j: "a counter: it numbers the rows" for j in whole if self._numbers_rows(j, rows)}
        keys = dict.fromkeys(j for j in whole if self._is_key(j, rows))
        counters = _find_counters(rows, bags, [j for j in whole if j not in keys])
        why |= dict.fromkeys(keys, f"a key: {self.n_rows:,} rows hardly repeat a number")
        return why | dict.fromkeys(counters, "a counter: it rises or falls from row to row in every bag")

    def _numbers_rows(self, j: int, rows: NDArray) -> bool:
        dense = self.high[j] - self.low[j] < _GAPS * len(rows)
        return dense and len(rows) >= _FEWEST_NUMBERED and bool((np.diff(rows[:, j]) > 0).all())

    def _is_key(self, j: int, rows: NDArray) -> bool:
        enough = _DISTINCT * self.n_rows
        if self.n_rows - self._repeated[j] < enough or self.high[j] - self.low[j] + 1 < enough:
            return False
        told_apart = rows.dtype == np.float64 or max(-self.low[j], self.high[j]) <= _EXACT
        return not told_apart or len(np.unique(rows[:, j])) >= enough


def _find_counters(rows: NDArray, bags: NDArray, columns: list[int]) -> list[int]:
    """Those of these columns that rise from row to row in all bags of some rows, or fall in all of them."""
    large = np.bincount(bags)[bags] >= _BAG_ROWS
    if not large.any():
        return []
    for n_rows in (_FEW, len(bags)):  # a few rows find most columns that are none
        some = np.flatnonzero(large[:n_rows])
        order = some[np.argsort(bags[some], kind="stable")] if columns else some
        inside = np.diff(bags[order]) == 0
        columns = [j for j in columns if _is_monotone(np.diff(rows[order, j])[inside])]
    return columns


def _is_monotone(steps: NDArray) -> bool:
    return bool((steps > 0).all() or (steps < 0).all())


def _groups(columns: NDArray) -> Iterator[NDArray]:
    for start in range(0, len(columns), _COLUMNS_AT_ONCE):
        yield columns[start : start + _COLUMNS_AT_ONCE]
