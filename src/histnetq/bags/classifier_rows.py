"""`ClassifierRows`: rows that only a classifier can read, such as data frames with text columns or missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class ClassifierRows:
    """A pool of rows that passes unchanged to a custom classifier, and that methods without one refuse.

    Parameters
    ----------
    values : DataFrame, or (n_rows, n_columns)
        The rows, with columns of any types.
    refusal : Exception
        The error of methods that need finite numbers.

    Examples
    --------
    >>> rows = ClassifierRows(np.array([["red", 1.5], ["blue", 2.5]], dtype=object), TypeError("X: expected numbers."))
    >>> rows.shape, rows[[1]].values.tolist()
    ((2, 2), [['blue', 2.5]])
    """

    ndim = 2
    dtype = np.dtype(object)

    def __init__(self, values: Any, refusal: Exception) -> None:
        self.values, self.refusal = values, refusal

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def nbytes(self) -> int:
        found = self.values.memory_usage().sum() if self._is_frame else self.values.nbytes
        return int(found)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> ClassifierRows:
        return ClassifierRows(self.values.iloc[index] if self._is_frame else self.values[index], self.refusal)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return np.asarray(self.values, dtype=object if dtype is None else dtype)

    def codes(self) -> NDArray[np.int64]:
        """Return a number for each different value of a column: (n_rows, n_columns)."""
        import pandas as pd

        frame = pd.DataFrame(self.values)
        return np.column_stack([pd.factorize(frame.iloc[:, j])[0] for j in range(frame.shape[1])])

    @property
    def _is_frame(self) -> bool:
        return hasattr(self.values, "iloc")


def stack_classifier_rows(pools: list[Any]) -> ClassifierRows:
    """Concatenate pools; at least one is a `ClassifierRows`, and the rest may be arrays.

    Examples
    --------
    >>> some = ClassifierRows(np.array([[np.nan]]), ValueError("X: row 0 is NaN."))
    >>> stack_classifier_rows([np.ones((2, 1)), some]).shape
    (3, 1)
    """
    import pandas as pd

    refusal = next(pool.refusal for pool in pools if isinstance(pool, ClassifierRows))
    values = [pool.values if isinstance(pool, ClassifierRows) else pool for pool in pools]
    frame = next((value for value in values if hasattr(value, "iloc")), None)
    if frame is None:
        return ClassifierRows(np.concatenate(values), refusal)
    # The rows of a data frame without texts and missing values are an array.
    frames = [value if hasattr(value, "iloc") else pd.DataFrame(value, columns=frame.columns) for value in values]
    return ClassifierRows(pd.concat(frames, ignore_index=True), refusal)


def require_numbers(rows: Any) -> None:
    """Raise the error of rows that only a classifier can read."""
    if isinstance(rows, ClassifierRows):
        raise rows.refusal
