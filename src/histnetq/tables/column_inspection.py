"""Statistics of table columns while a table is read: columns to exclude, columns that need doubles, and means."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.checks import loses_digits

_FEWEST_ROWS = 50  # rows needed to detect keys and counters
_FEWEST_NUMBERED = 10  # rows needed to detect row numbers: fewer values may well rise by chance
_GAPS = 1.5  # largest range per row of a column of row numbers, as some rows may have been dropped
_DISTINCT = 0.99  # smallest fraction of distinct values in a key
_BAG_ROWS = 5  # counters are detected in bags of at least this size
_REPEATS = 10  # rows beyond the first of each group that are needed to detect columns with one value per group
_EXACT = 1 << 24  # float32 holds whole numbers up to here exactly
_SURE = 1000  # rows after which a column with repeated values is not checked for being a key any more
_FEW = 20_000  # rows that are checked for counters and copies first
_COLUMNS_AT_ONCE = 64  # columns that are copied together


class Watch:
    """Statistics of columns whose rows arrive in pieces; NaN is a missing value.

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
        self._repeated = np.zeros(n_columns, np.int64)  # repeated values within the pieces

    def add(self, rows: NDArray) -> None:
        """Add rows, (n_rows, n_columns), in double precision unless float32 holds them exactly."""
        if not len(rows):
            return
        self.n_rows += len(rows)
        sums, counts = rows.sum(0, dtype=np.float64), np.full(rows.shape[1], len(rows))
        least: np.ufunc = np.minimum  # several times faster than fmin, which ignores NaN
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
        """Find the columns of whole numbers, and count their repeated values while they may be keys."""
        for some in _groups(np.flatnonzero(self.whole)):
            values = rows[:, some]
            self.whole[some] = ((values == np.rint(values)) | np.isnan(values)).all(0)
        unsure = self.whole & ((self.n_rows < _SURE) | (self._repeated <= (1 - _DISTINCT) * self.n_rows))
        for some in _groups(np.flatnonzero(unsure)):
            self._repeated[some] += (np.diff(np.sort(rows[:, some], axis=0), axis=0) == 0).sum(0)

    @property
    def means(self) -> NDArray[np.float64]:
        """Return the mean of each column without its missing values, (n_columns,); 0 for an empty column."""
        return self._sums / np.maximum(self._counts, 1)

    def loses_digits(self) -> bool:
        """Return whether some column needs double precision."""
        return bool(loses_digits(self._error, self.low, self.high).any())

    def left_out(self, rows: NDArray, bags: NDArray, labels: NDArray | None = None) -> dict[int, str]:
        """Return the columns to exclude, with the reason for each.

        `bags` has the bag of each row and `labels` its class, both (n_rows,).
        """
        why = dict.fromkeys(np.flatnonzero((self.low == self.high) & (self._counts > 1)).tolist(), "constant")
        why |= dict.fromkeys(np.flatnonzero(self._counts == 0).tolist(), "empty")
        varying = [j for j in range(rows.shape[1]) if j not in why]
        why |= dict.fromkeys(find_bag_facts(rows, bags, varying), "constant within each bag")
        if labels is not None:
            why |= dict.fromkeys(find_copies(rows, labels, varying), "a copy of the label")
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
        is_exact = rows.dtype == np.float64 or max(-self.low[j], self.high[j]) <= _EXACT
        return not is_exact or len(np.unique(rows[:, j])) >= enough


def find_copies(rows: NDArray, labels: NDArray, columns: list[int]) -> list[int]:
    """Return the columns with one value for each class, and another value for each other class.

    Examples
    --------
    >>> labels = np.arange(20) % 2
    >>> find_copies(np.stack([1 - labels, np.arange(20)], axis=1), labels, [0, 1])
    [0]
    """
    first = _first_rows(labels)
    found = _with_one_value(rows, labels, columns)
    return [j for j in found if len(np.unique(rows[first, j])) == len(first)]


def find_bag_facts(rows: NDArray, bags: NDArray, columns: list[int]) -> list[int]:
    """Return the columns with one value in each bag, and with different values in bags of several rows."""
    first = _first_rows(bags)[np.bincount(bags) > 1]
    return [j for j in _with_one_value(rows, bags, columns) if len(np.unique(rows[first, j])) > 1]


def _with_one_value(rows: NDArray, groups: NDArray, columns: list[int]) -> list[int]:
    """Return the columns with a single value in each group of rows; too few rows show this only by chance."""
    n_groups = int(groups.max(initial=-1)) + 1
    if n_groups < 2 or len(groups) - n_groups < _REPEATS:
        return []
    for n_rows in (_FEW, len(groups)):  # the first rows rule out most columns
        known = _first_rows(groups[:n_rows])[groups[:n_rows]] if columns else groups
        columns = [j for j in columns if (rows[:n_rows, j] == rows[known, j]).all()]
    return columns


def _first_rows(groups: NDArray) -> NDArray[np.int64]:
    """Return the first row of each group, (n_groups,); the groups are numbered from 0."""
    first = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    first[groups[::-1]] = np.arange(len(groups) - 1, -1, -1)
    return first


def _find_counters(rows: NDArray, bags: NDArray, columns: list[int]) -> list[int]:
    """Return the columns that rise from row to row in all bags of at least `_BAG_ROWS` rows, or fall in all of them."""
    large = np.bincount(bags)[bags] >= _BAG_ROWS
    if not large.any():
        return []
    for n_rows in (_FEW, len(bags)):  # the first rows rule out most columns
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
