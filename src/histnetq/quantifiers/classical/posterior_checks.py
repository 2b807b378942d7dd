"""The check of posteriors from classifiers, users and model files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from histnetq.simplex import Floats, row_sums

_ROUNDING = 1e-6  # tolerance below 0 and above 1: float32 rounds to 1e-7
_SUM = 1e-3  # tolerance of the sum of a row: users round to three digits
_SAME = 1e-12  # sums this near to 1 count as 1, because rounding depends on the order of adding


def check_posteriors(p: Floats, n_classes: int | None, *, of_classifier: bool = False) -> Floats:
    """Refuse rows that are not probabilities, then clip rounding errors and scale each row to the sum 1.

    Compiled code puts posteriors into bins, so NaN must be refused here. With ``n_classes=None``, any number of columns
    is accepted. `of_classifier` chooses the error message: a classifier returned the posteriors, or the user gave them.

    Examples
    --------
    >>> check_posteriors(np.array([[0.25, 0.75], [1.0000001, -1e-7]]), 2).round(3)
    array([[0.25, 0.75],
           [1.  , 0.  ]])
    """
    if p.ndim != 2 or (n_classes is not None and p.shape[1] != n_classes):
        raise ValueError(f"posteriors: expected shape (n_rows, {n_classes or 'n_classes'}), got {p.shape}.")
    found = describe_fault(p)
    if found is not None and of_classifier:
        raise ValueError(
            f"classifier: returned {found}, expected probabilities between 0 and 1 that sum to 1; "
            "check the classifier and its inputs."
        )
    if found is not None:
        raise ValueError(
            f"posteriors: expected rows of probabilities that sum to 1, got {found}; apply a softmax to scores first."
        )
    if p.min(initial=0.0) < 0 or p.max(initial=1.0) > 1:
        p = np.clip(p, 0.0, 1.0)
    sums = row_sums(p)
    same = np.abs(sums - 1) < _SAME
    return p if same.all() else p / np.where(same, 1.0, sums)[:, None]


def describe_fault(p: NDArray) -> str | None:
    """Describe the first fault of posteriors ``(n_rows, n_classes)`` and count its rows; None if there is none.

    Examples
    --------
    >>> describe_fault(np.array([[0.5, 0.5], [np.nan, np.nan]]))
    'NaN for 1 of 2 rows'
    >>> describe_fault(np.array([[0.5, 0.5]])) is None
    True
    """
    sums = row_sums(p)
    # Comparisons with NaN are false, so a row with NaN is not right.
    right = np.abs(sums - 1) <= _SUM
    low, high = p.min(initial=0.0), p.max(initial=1.0)
    if right.all() and low >= -_ROUNDING and high <= 1 + _ROUNDING:
        return None
    of = f"of {len(p):,} rows"
    if n := int((~np.isfinite(p)).any(1).sum()):
        return f"{'NaN' if np.isnan(p).any() else 'infinity'} for {n:,} {of}"
    if n := int(((p < -_ROUNDING) | (p > 1 + _ROUNDING)).any(1).sum()):
        return f"numbers from {low:.6g} to {high:.6g} for {n:,} {of}"
    return f"numbers that sum to {sums[~right][0]:.4g} for {int((~right).sum()):,} {of}"
