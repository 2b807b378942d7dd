"""Posteriors that a model of the user's own gave: rows of probabilities in the place of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import column_names, encode_labels, used_rows
from histnetq.data.class_names import are_scores
from histnetq.quantifiers.cross_fitting import CrossFitted, entries_with_labels
from histnetq.simplex import Floats, Ints, first_off_simplex, row_sums


def scored_bags(posteriors: Any, y: Any, classes: Any) -> Bags:
    """Give posteriors, with labels or as bags, as bags that tell that their rows are scores.

    Examples
    --------
    >>> scored_bags([[0.9, 0.1], [0.2, 0.8]], ["a", "b"], None).scores
    array(['a', 'b'], dtype='<U1')
    """
    if isinstance(posteriors, Bags):
        return _marked(posteriors, y)
    p = check_posteriors(np.asarray(posteriors, dtype=np.float64), None)
    if y is None:
        raise TypeError("y: expected a label for each row of posteriors, got None; pass the labels, or Bags with them.")
    labels, names = encode_labels(y, classes, len(p))
    if len(names) != p.shape[1]:
        raise ValueError(
            f"posteriors: expected a column for each of the {len(names)} classes, got {p.shape[1]}; pass classes=."
        )
    bags = Bags(p[:, column_order(column_names(posteriors), names)], labels=labels, classes=names)
    bags.scores = bags.classes
    return bags


def _marked(bags: Bags, y: Any) -> Bags:
    if y is not None:
        raise TypeError("y: expected none beside Bags, which carry their labels, got some; leave it out.")
    if bags.scores is not None:
        return bags
    if bags.classes is None:
        raise ValueError("posteriors: expected bags with classes, got some without; pass classes= when making them.")
    check_posteriors(np.asarray(bags.rows, dtype=np.float64), len(bags.classes))
    bags = bags[:]
    bags.scores = bags.classes
    return bags


def take_scores(given: Bags) -> CrossFitted:
    """Give the scores of labelled rows in the place of posteriors by classifiers that have not seen them."""
    are_scores(given)
    entries, labels, weights = entries_with_labels(given)
    p = check_posteriors(np.asarray(given.rows[entries], dtype=np.float64), len(given.classes))  # type: ignore[arg-type]
    return CrossFitted(None, None, p, labels, weights, given)


def given_posteriors(bags: Bags, n_classes: int) -> tuple[Floats, Ints]:
    """Give the rows that occur in the bags, each once, as posteriors, and which of them each entry is."""
    used, index = used_rows(bags.index, bags.rows.shape[0])
    rows = bags.rows if len(used) == bags.rows.shape[0] else bags.rows[used]
    return check_posteriors(np.asarray(rows, dtype=np.float64), n_classes), index


def check_posteriors(p: Floats, n_classes: int | None) -> Floats:
    """Refuse what are no rows of probabilities, and bring rounded ones to the sum 1.

    Examples
    --------
    >>> check_posteriors(np.array([[0.25, 0.75]]), 2)
    array([[0.25, 0.75]])
    """
    if p.ndim != 2 or (n_classes is not None and p.shape[1] != n_classes):
        raise ValueError(f"posteriors: expected shape (n_rows, {n_classes or 'n_classes'}), got {p.shape}.")
    if first_off_simplex(p) is not None:
        raise ValueError("posteriors: expected rows of probabilities that sum to 1; apply a softmax to scores first.")
    sums = row_sums(p)
    return p if np.abs(sums - 1).max(initial=0) < 1e-12 else p / sums[:, None]


def column_order(names: list[str] | None, classes: NDArray) -> Any:
    """Tell which column of named posteriors belongs to each class; without names, or with 0, 1, …, as they stand.

    Examples
    --------
    >>> column_order(["b", "a"], np.array(["a", "b"]))
    [1, 0]
    """
    wanted = [str(c) for c in classes]
    if names is None or names == wanted or names == [str(j) for j in range(len(classes))]:
        return slice(None)
    if sorted(names) != sorted(wanted):
        raise ValueError(f"posteriors: expected the columns {wanted}, got {names}; rename them.")
    return [names.index(name) for name in wanted]
