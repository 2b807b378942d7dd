"""Posteriors from a custom model: rows of probabilities instead of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import column_names, encode_labels, used_rows
from histnetq.bags.class_names import are_scores
from histnetq.bags.classifier_rows import require_numbers
from histnetq.quantifiers.classical.cross_fitting import CrossFitted, entries_with_labels
from histnetq.quantifiers.classical.posterior_checks import check_posteriors
from histnetq.simplex import Floats, Ints
from histnetq.tables.scores import warn_exchanged


def scored_bags(posteriors: Any, y: Any, classes: Any) -> Bags:
    """Convert posteriors, with labels or as bags, to bags whose rows are marked as scores.

    Examples
    --------
    >>> scored_bags([[0.9, 0.1], [0.2, 0.8]], ["a", "b"], None).scores
    array(['a', 'b'], dtype='<U1')
    """
    if isinstance(posteriors, Bags):
        return _marked(posteriors, y)
    p = check_posteriors(_numbers(posteriors), None)
    if y is None:
        raise TypeError("y: expected a label for each row of posteriors, got None; pass the labels, or Bags with them.")
    labels, names = encode_labels(y, classes, len(p))
    if len(names) != p.shape[1]:
        raise ValueError(
            f"posteriors: expected {len(names)} columns, one for each class, got {p.shape[1]}; if y lacks some "
            "classes, name all classes with classes=[...]."
        )
    order = column_order(column_names(posteriors), names)
    bags = Bags(p[:, order], labels=labels, classes=names)
    bags = bags.replaced(scores=bags.classes)
    warn_exchanged(bags.rows, labels, names.tolist(), [f"{j}" for j in range(len(names))], "posteriors")
    return bags


def _numbers(posteriors: Any) -> Floats:
    try:
        array = np.asarray(posteriors)
        return array.astype(np.float64, casting="unsafe" if array.dtype.kind == "O" else "same_kind")
    except (TypeError, ValueError):
        got = type(posteriors).__name__
        raise TypeError(
            f"posteriors: expected an array of numbers, one row per example, got {got} that does not convert to one; "
            "give each row a probability of each class."
        ) from None


def _marked(bags: Bags, y: Any) -> Bags:
    if y is not None:
        raise TypeError("y: expected None with Bags, which have their own labels, got labels; leave it out.")
    if bags.scores is not None:
        return bags
    if bags.classes is None:
        raise ValueError("posteriors: expected bags with classes, got bags without; pass classes= when making them.")
    require_numbers(bags.rows)
    check_posteriors(np.asarray(bags.rows, dtype=np.float64), len(bags.classes))
    return bags.replaced(scores=bags.classes)


def take_scores(given: Bags) -> CrossFitted:
    """Return the scores of labelled rows as held-out posteriors, without a classifier."""
    are_scores(given)
    entries, labels, weights = entries_with_labels(given)
    p = check_posteriors(np.asarray(given.rows[entries], dtype=np.float64), len(given.classes))  # type: ignore[arg-type]
    return CrossFitted(None, None, p, labels, weights, given)


def given_posteriors(bags: Bags, n_classes: int) -> tuple[Floats, Ints]:
    """Return each row of the bags once, as checked posteriors, and the position of each entry among them."""
    require_numbers(bags.rows)
    used, index = used_rows(bags.index, bags.rows.shape[0])
    rows = bags.rows if len(used) == bags.rows.shape[0] else bags.rows[used]
    return check_posteriors(np.asarray(rows, dtype=np.float64), n_classes), index


def column_order(names: list[str] | None, classes: NDArray) -> Any:
    """Return the column of each class among named posteriors; without names, or with 0, 1, …, the order is kept.

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
