"""Matching of classes by name, between bags and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import shown
from histnetq.simplex import Floats


def align(bags: Bags, classes: Sequence[Any] | NDArray) -> Bags:
    """Return the bags with these classes, matched by name, or by position if one side has the default names 0, 1, …

    Examples
    --------
    >>> align(Bags(np.zeros((4, 1)), prevalences=[[0.75, 0.25]], classes=["a", "b"]), ["b", "a"]).prevalences
    array([[0.25, 0.75]])
    """
    names, wanted = _matched(bags, [str(name) for name in classes])
    return bags.replaced(classes=np.array(names)).with_classes(wanted)


def with_all_classes(bags: Bags, classes: Sequence[Any] | NDArray) -> Bags:
    """Return the bags with these classes, followed by the classes that only the bags have; one class must be common.

    Examples
    --------
    >>> bags = Bags(np.zeros((4, 1)), prevalences=[[0.75, 0.25]], classes=["a", "b"])
    >>> with_all_classes(bags, ["c", "b"]).classes.tolist()
    ['c', 'b', 'a']
    """
    names, wanted = _matched(bags, [str(name) for name in classes])
    others = [name for name in names if name not in set(wanted)]
    return align(bags, wanted if len(others) == len(names) else [*wanted, *others])


def _matched(bags: Bags, wanted: list[str]) -> tuple[list[str], list[str]]:
    """Return the class names of the bags and the wanted names; names replace the default names 0, 1, … if possible."""
    names: list[str] = [str(name) for name in bags.classes]  # type: ignore[union-attr]
    default = [str(j) for j in range(len(names))]
    if len(names) == len(wanted) and default in (names, wanted) and not set(names) & set(wanted):
        names = wanted = names if wanted == default else wanted
    return names, wanted


def add_columns(p: Floats, n_classes: int) -> Floats:
    """Append columns of zeros to estimates, (n_bags, k), for classes that only the truth has: (n_bags, n_classes).

    Examples
    --------
    >>> add_columns(np.array([[0.5, 0.5]]), 3)
    array([[0.5, 0.5, 0. ]])
    """
    return np.pad(p, ((0, 0), (0, n_classes - p.shape[1])))


def are_scores(bags: Bags) -> bool:
    """Return whether rows are scores; raise an error if their columns are not in the order of the classes.

    Examples
    --------
    >>> are_scores(Bags(np.zeros((2, 1))))
    False
    """
    if bags.scores is None:
        return False
    if bags.classes is None or [str(c) for c in bags.scores] != [str(c) for c in bags.classes]:
        known = "none" if bags.classes is None else shown(bags.classes)
        raise ValueError(
            f"bags: expected the classes of their scores, {shown(bags.scores)}, in this order, got {known}; read them "
            "with a column for each class."
        )
    return True
