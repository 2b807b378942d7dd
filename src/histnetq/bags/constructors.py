"""Class methods of `Bags` that make bags from a list of arrays, from labelled rows, or from other bags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.checks import as_pool, column_names, encode_labels, join_weights, sort_groups, stack
from histnetq.bags.indexing import offsets_of

if TYPE_CHECKING:
    from histnetq.bags.bags import Bags


def from_arrays(
    cls: type[Bags],
    arrays: Iterable[Any] | Mapping[Any, Any],
    prevalences: ArrayLike | None = None,
    classes: Sequence[Any] | None = None,
    **kwargs: Any,
) -> Bags:
    """Make one bag from each array.

    Parameters
    ----------
    arrays : list of arrays, or dict of bag names and arrays
        Each has the shape (n_rows, ...), with the same trailing shape in all of them.
    prevalences : (n_bags, n_classes), optional
        The known proportions of the classes in each bag.
    classes : sequence, optional
        Names of the classes, by default 0, 1 and so on.
    **kwargs : dict
        Other parameters of `Bags`. The parameter `weights` is a list with one array per bag here.

    Returns
    -------
    Bags
        The bags, in the order of the arrays.

    Examples
    --------
    >>> from histnetq import Bags
    >>> len(Bags.from_arrays([np.zeros((3, 2)), np.zeros((4, 2))]))
    2
    """
    if hasattr(arrays, "ndim") or isinstance(arrays, str):
        raise TypeError("arrays: expected a list with one array per bag, got a single one; pass [X] for one bag.")
    if isinstance(arrays, Mapping):
        kwargs.setdefault("ids", list(arrays))
        arrays = arrays.values()
    arrays = list(arrays)
    if len(arrays) == 0:
        raise ValueError("arrays: expected at least one bag, got an empty list.")
    pools = [as_pool(array, f"arrays[{i}]") for i, array in enumerate(arrays)]
    names = column_names(arrays[0])
    for i, (array, pool) in enumerate(zip(arrays, pools, strict=True)):
        if pool.shape[1:] != pools[0].shape[1:]:
            raise ValueError(
                f"arrays: bag {i} has rows of shape {pool.shape[1:]}, expected {pools[0].shape[1:]} as in bag 0; "
                "give every bag the same features."
            )
        found = column_names(array)
        if found and names and found != names:
            way_out = "give every bag the same columns in the same order"
            raise ValueError(f"arrays: bag {i} has columns {found}, expected {names} as in bag 0; {way_out}.")
    if kwargs.get("weights") is not None:
        kwargs["weights"] = join_weights(kwargs["weights"], pools)
    offsets = offsets_of([pool.shape[0] for pool in pools])
    kwargs = {"feature_names": names, "offsets": offsets, "prevalences": prevalences, "classes": classes} | kwargs
    return cls(stack(pools), **kwargs)


def from_labels(cls: type[Bags], X: Any, y: ArrayLike, groups: ArrayLike | None = None, **kwargs: Any) -> Bags:
    """Make bags from labelled rows, and count their prevalences.

    Parameters
    ----------
    X : (n_rows, ...)
        The pool of rows, as in `Bags`.
    y : (n_rows,)
        The class of each row.
    groups : (n_rows,), optional
        The bag of each row. By default all rows are one bag.
    **kwargs : dict
        Other parameters of `Bags`. The parameter `classes` is by default the sorted values of `y`, `ids` the sorted
        values of `groups`, and `weights` is one number per row here.

    Returns
    -------
    Bags
        The bags, with prevalences and labels.

    Examples
    --------
    >>> from histnetq import Bags
    >>> Bags.from_labels(np.zeros((4, 1)), ["a", "b", "b", "b"], groups=[7, 7, 9, 9]).prevalences
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    if "prevalences" in kwargs:
        raise TypeError("prevalences: from_labels counts them from y; leave them out, or use Bags(...).")
    if kwargs.get("feature_names") is None:
        kwargs["feature_names"] = column_names(X)
    pool = as_pool(X, "X")
    kwargs["labels"], kwargs["classes"] = encode_labels(y, kwargs.get("classes"), pool.shape[0])
    order, offsets = np.arange(pool.shape[0]), None
    if groups is not None:
        order, offsets, ids = sort_groups(groups, len(order))
        kwargs.setdefault("ids", ids)
    if kwargs.get("weights") is not None:
        weights = np.asarray(kwargs["weights"])
        if len(weights) != len(order):
            raise ValueError(f"weights: expected one per row ({len(order)}), got {len(weights)}.")
        kwargs["weights"] = weights[order]
    bags = cls(pool, order, offsets, **kwargs)
    return bags.replaced(prevalences=bags.label_prevalences())


def concat(cls: type[Bags], parts: Sequence[Bags]) -> Bags:
    """Concatenate several collections of bags.

    Classes are matched by name. Parts on the same pool of rows keep sharing it. A part without column names, such as
    one made from arrays, is assumed to have the same columns as parts with names.

    Parameters
    ----------
    parts : sequence of Bags
        The collections, with rows of the same shape.

    Returns
    -------
    Bags
        The bags of all parts, with their ids.

    Examples
    --------
    >>> from histnetq import Bags
    >>> a = Bags(np.zeros((2, 1)), prevalences=[[0.3, 0.7]], classes=["x", "y"])
    >>> b = Bags(np.zeros((2, 1)), prevalences=[[0.6, 0.4]], classes=["y", "x"])
    >>> Bags.concat([a, b]).prevalences
    array([[0.3, 0.7],
           [0.4, 0.6]])
    """
    if not parts:
        raise ValueError("parts: expected at least one Bags, got an empty list.")
    parts = _align_classes(parts)
    _refuse_mixture(parts)
    rows, labels, starts = _join_rows(parts)
    weighted = [p for p in parts if p.weights is not None]
    known = [p.prevalences for p in parts if p.prevalences is not None]
    return parts[0].replaced(
        rows=rows,
        labels=labels,
        index=np.concatenate([p.index + start for p, start in zip(parts, starts, strict=True)]),
        offsets=offsets_of(np.concatenate([np.diff(p.offsets) for p in parts])),
        weights=np.concatenate([p.entry_weights() for p in parts]) if weighted else None,
        weight_kind=(weighted or parts)[0].weight_kind,
        ids=np.concatenate([p.ids for p in parts]),
        prevalences=np.concatenate(known) if len(known) == len(parts) else None,
        text=next((p.text for p in parts if p.text is not None), None),
        feature_names=next((p.feature_names for p in parts if p.feature_names is not None), None),
    )


def _align_classes(parts: Sequence[Bags]) -> Sequence[Bags]:
    """Return the parts with the same classes in the same order."""
    named = [p.classes.tolist() for p in parts if p.classes is not None]
    if 0 < len(named) < len(parts):
        raise ValueError("parts: some have classes and some have none; pass classes= when making each of them.")
    union = list(dict.fromkeys(name for names in named for name in names))
    return parts if all(names == union for names in named) else [p.with_classes(union) for p in parts]


def _refuse_mixture(parts: Sequence[Bags]) -> None:
    """Raise an error if the parts differ in row shape, columns, scores, text features or kind of weights."""
    first = parts[0]
    named = next((i for i, part in enumerate(parts) if part.feature_names is not None), 0)
    for i, part in enumerate(parts):
        found, expected = tuple(part.rows.shape[1:]), tuple(first.rows.shape[1:])
        if found != expected:
            raise ValueError(f"parts: number {i} has rows of shape {found}, expected {expected} as in number 0.")
        if part.feature_names not in (None, parts[named].feature_names):
            raise ValueError(
                f"parts: number {i} has other feature_names than number {named}; give both the same columns."
            )
        if not np.array_equal(part.scores, first.scores):  # type: ignore[arg-type]
            raise ValueError(
                f"parts: number {i} has scores of other classes than number 0, or none; give all the same."
            )
    texts = [part.text for part in parts if part.text is not None]
    if not all(text.is_same(texts[0]) for text in texts):
        raise ValueError(
            "parts: expected text features of the same SVD, got different ones; read all tables at once, or pass "
            "text=bags.text of the first part when reading the others."
        )
    if len({p.weight_kind for p in parts if p.weights is not None}) > 1:
        raise ValueError("parts: some have count weights and some survey weights; give all the same kind.")


def _join_rows(parts: Sequence[Bags]) -> tuple[Any, NDArray | None, list[int]]:
    """Return one pool with the rows of all parts, its labels, and the first row of each part in it."""
    first = parts[0]
    same = (p.labels is first.labels or np.array_equal(p.labels, first.labels) for p in parts)  # type: ignore[arg-type]
    if all(p.rows is first.rows for p in parts) and all(same):
        return first.rows, first.labels, [0] * len(parts)
    labels = None
    if any(p.labels is not None for p in parts):
        labels = np.concatenate([np.full(p.rows.shape[0], -1) if p.labels is None else p.labels for p in parts])
    return stack([p.rows for p in parts]), labels, offsets_of([p.rows.shape[0] for p in parts])[:-1].tolist()
