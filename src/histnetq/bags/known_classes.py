"""Methods of `Bags` about classes: counting prevalences from labels, setting them, and reordering classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags import checks
from histnetq.errors import InputError, Option
from histnetq.simplex import check_prevalences, count_labels

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags


def label_prevalences(self: Bags) -> NDArray[np.float64]:
    """Count the proportions of the classes from the row labels, which must all be known.

    Returns
    -------
    (n_bags, n_classes)
        The proportions.

    Examples
    --------
    >>> from histnetq import Bags
    >>> Bags(np.zeros((4, 1)), labels=[0, 1, 1, 1]).label_prevalences()
    array([[0.25, 0.75]])
    """
    if self.labels is None or self.classes is None:
        raise ValueError("labels: these bags carry no row labels; make them with Bags.from_labels.")
    labels = self.labels[self.index]
    n_unknown = (labels < 0).sum()
    if n_unknown:
        problem = f"{n_unknown} entries have no label (−1), expected all known"
        raise InputError("labels", problem=problem, remedy=("pass ", Option("prevalences"), " instead"))
    counts = count_labels(labels, self.bag_of_entry, len(self), len(self.classes), self.weights)
    return counts / counts.sum(1, keepdims=True)


def with_prevalences(self: Bags, prevalences: ArrayLike, *, normalize: bool = False) -> Bags:
    """Return the same bags with these prevalences.

    Parameters
    ----------
    prevalences : (n_bags, n_classes)
        The proportions. The columns of a data frame are matched with the classes by name.
    normalize : bool, default False
        Whether to divide each row by its sum, for example if it contains counts.

    Returns
    -------
    Bags
        New bags on the same pool.

    Examples
    --------
    >>> from histnetq import Bags
    >>> Bags(np.zeros((4, 1))).with_prevalences([[3, 1]], normalize=True).prevalences
    array([[0.75, 0.25]])
    """
    table, classes = checks.name_columns(prevalences, self.classes)
    n_classes = None if classes is None else len(classes)
    checked = check_prevalences(table, len(self), n_classes, normalize=normalize)
    names = np.arange(checked.shape[1]) if classes is None else np.asarray(classes)
    return self.replaced(prevalences=checked, classes=names)


def with_known_prevalences(self: Bags) -> Bags:
    """Count prevalences from the row labels if the bags have no prevalences.

    Returns
    -------
    Bags
        These bags if they have prevalences, or new bags on the same pool.

    Examples
    --------
    >>> from histnetq import Bags
    >>> Bags(np.zeros((4, 1)), labels=[0, 1, 1, 1]).with_known_prevalences().prevalences
    array([[0.25, 0.75]])
    """
    if self.prevalences is not None:
        return self
    if self.labels is not None:
        return self.with_prevalences(self.label_prevalences())
    raise ValueError("bags: expected the proportions of each bag, got none; pass them by bags.with_prevalences(P).")


def with_classes(self: Bags, classes: Sequence[Any] | NDArray) -> Bags:
    """Reorder prevalences and labels to these classes, matched by name.

    Parameters
    ----------
    classes : sequence
        Names of the classes. Classes that the bags lack get prevalence 0. It is an error if a class of the bags is not
        among these.

    Returns
    -------
    Bags
        New bags on the same pool.

    Examples
    --------
    >>> from histnetq import Bags
    >>> bags = Bags(np.zeros((4, 1)), prevalences=[[0.75, 0.25]], classes=["a", "b"])
    >>> bags.with_classes(["b", "c", "a"]).prevalences
    array([[0.25, 0.  , 0.75]])
    """
    if self.classes is None:
        raise ValueError("classes: these bags have no classes to align; pass classes= when making them.")
    names = checks.check_names("classes", classes, len(classes), "class")
    way_out = "rename it, drop its rows or column, or learn from bags that have it."
    target = checks.match_names(self.classes, names, "classes: {} is not among the expected {}; " + way_out)
    labels, prevalences = self.labels, self.prevalences
    if labels is not None and not np.array_equal(target, np.arange(len(target))):
        labels = np.append(target, -1)[labels]
    if prevalences is not None:
        prevalences = np.zeros((len(self), len(names)))
        prevalences[:, target] = self.prevalences
    return self.replaced(classes=names, labels=labels, prevalences=prevalences)
