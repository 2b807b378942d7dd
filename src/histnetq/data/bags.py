"""`Bags`: ragged bags of examples as rows of indices into one shared pool of rows."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.data.checks import (
    as_pool,
    check_choice,
    check_feature_names,
    check_index,
    check_labels,
    check_names,
    check_offsets,
    check_weights,
    column_names,
    encode_labels,
    join_weights,
    name_columns,
    shown,
    sort_groups,
    stack,
    take_dense,
)
from histnetq.simplex import check_prevalences, count_labels

__all__ = ["Bags", "ranges"]

Ints = NDArray[np.int64]
_HASH_CHUNK = 1 << 22  # numbers hashed at a time


class Bags:
    """Bags of examples, as a list of row numbers per bag into one pool of rows.

    Bag *i* holds the rows ``rows[index[offsets[i]:offsets[i + 1]]]``. Bags may have any sizes and may share rows. The
    pool is never copied: selecting bags selects indices.

    Parameters
    ----------
    rows : (n_rows, ...)
        The pool: a numpy array or memmap, a torch tensor, a scipy sparse matrix. Any trailing shape, so images too. A
        list of texts for methods whose classifier is a pipeline that reads them.
    index : (n_entries,) of int, optional
        Row numbers of all bags, one bag after the other. Default: all rows in order.
    offsets : (n_bags + 1,) of int, optional
        Where each bag starts in `index`, and the end. Default: one bag.
    weights : (n_entries,), optional
        Weight of each entry; a weight of *k* equals *k* copies. Entries of weight 0 are left out.
    weight_kind : "count" or "survey"
        Counts are multiplicities (whole numbers; a bag's size is their sum). Survey weights are any positive numbers
        (a bag's size is Kish's effective size).
    prevalences : (n_bags, n_classes), optional
        The known proportions of the classes in each bag.
    classes : sequence, optional
        Names of the classes. Default: 0, 1, …
    ids : (n_bags,), optional
        Names of the bags. Default: 0, 1, …
    labels : (n_rows,) of int, optional
        Class code of each pool row, −1 where unknown.
    feature_names : sequence of str, optional
    normalize : bool
        Rescale rows of `prevalences` that are counts.

    Examples
    --------
    >>> bags = Bags.from_arrays([np.zeros((3, 2)), np.ones((5, 2))], prevalences=[[1, 0], [0.2, 0.8]])
    >>> bags
    Bags(n_bags=2, sizes=3…5, rows=(8, 2) float64, classes=[0, 1], prevalences)
    >>> bags[1].sizes
    array([5])
    """

    def __init__(
        self,
        rows: Any,
        index: ArrayLike | None = None,
        offsets: ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        weight_kind: str = "count",
        prevalences: ArrayLike | None = None,
        classes: Sequence[Any] | NDArray | None = None,
        ids: Sequence[Any] | NDArray | None = None,
        labels: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        normalize: bool = False,
    ) -> None:
        if feature_names is None:
            feature_names = column_names(rows)
        self.rows = as_pool(rows)
        n_rows = self.rows.shape[0]
        self.index = check_index(np.arange(n_rows) if index is None else index, n_rows)
        self.offsets = check_offsets([0, len(self.index)] if offsets is None else offsets, len(self.index))
        self.weight_kind = check_choice("weight_kind", weight_kind, ("count", "survey"))
        self.weights = None if weights is None else check_weights(weights, weight_kind, len(self.index))
        self._drop_weightless()
        self._refuse_empty_bags()
        self.ids = np.arange(len(self)) if ids is None else check_names("ids", ids, len(self), "bag")
        self.prevalences = None
        self.labels = None
        prevalences, classes = name_columns(prevalences, classes)
        n_classes = None if classes is None else len(classes)
        if prevalences is not None:
            self.prevalences = check_prevalences(prevalences, len(self), n_classes, normalize=normalize)
            n_classes = self.prevalences.shape[1]
        if labels is not None:
            self.labels = check_labels(labels, n_rows, n_classes)
            n_classes = n_classes or int(self.labels.max(initial=0)) + 1
        self.classes: NDArray | None = None
        if n_classes is not None:
            self.classes = (
                np.arange(n_classes) if classes is None else check_names("classes", classes, n_classes, "class")
            )
        self.feature_names = check_feature_names(feature_names, self.rows)

    @classmethod
    def trusted(
        cls,
        rows: Any,
        index: Ints,
        offsets: Ints,
        *,
        weights: NDArray | None = None,
        weight_kind: str = "count",
        prevalences: NDArray | None = None,
        classes: NDArray | None = None,
        ids: NDArray | None = None,
        labels: Ints | None = None,
        feature_names: list[str] | None = None,
    ) -> Bags:
        """Make bags of parts that are known to be right, such as those that this library has read and checked itself.

        Nothing is checked, copied or converted: numbers are finite, `index` and `offsets` are int64 and fit, no bag is
        empty, no weight is 0, and prevalences sum to one.
        """
        bags = cls.__new__(cls)
        bags.rows, bags.index, bags.offsets = rows, index, offsets
        bags.weights, bags.weight_kind, bags.prevalences, bags.labels = weights, weight_kind, prevalences, labels
        bags.classes, bags.feature_names = classes, feature_names
        bags.ids = np.arange(len(offsets) - 1) if ids is None else ids
        return bags

    @classmethod
    def from_arrays(
        cls,
        arrays: Iterable[Any] | Mapping[Any, Any],
        prevalences: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Bags:
        """Make one bag of each 2-D array (or stack of images) in a list, or in a dict of bag names and arrays.

        Keyword arguments are those of `Bags`; `weights`, if given, is a list with one array per bag.

        Examples
        --------
        >>> len(Bags.from_arrays([np.zeros((3, 2)), np.zeros((4, 2))]))
        2
        """
        if hasattr(arrays, "ndim") or isinstance(arrays, str):
            raise TypeError("arrays: expected a list with one array per bag, got a single one; pass [X] for one bag.")
        if isinstance(arrays, Mapping):
            kwargs.setdefault("ids", list(arrays))
            arrays = list(arrays.values())
        arrays = list(arrays)
        if len(arrays) == 0:
            raise ValueError("arrays: expected at least one bag, got an empty list.")
        kwargs.setdefault("feature_names", column_names(arrays[0]))
        pools = [as_pool(a, f"arrays[{i}]") for i, a in enumerate(arrays)]
        for i, pool in enumerate(pools):
            if pool.shape[1:] != pools[0].shape[1:]:
                raise ValueError(
                    f"arrays: bag {i} has rows of shape {pool.shape[1:]}, expected {pools[0].shape[1:]} as in bag 0; "
                    "give every bag the same features."
                )
            names, first = column_names(arrays[i]), column_names(arrays[0])
            if names and first and names != first:
                raise ValueError(
                    f"arrays: bag {i} has columns {names}, expected {first} as in bag 0; "
                    "give every bag the same columns in the same order."
                )
        offsets = np.concatenate([[0], np.cumsum([p.shape[0] for p in pools])])
        if kwargs.get("weights") is not None:
            kwargs["weights"] = join_weights(kwargs["weights"], pools)
        return cls(stack(pools), offsets=offsets, prevalences=prevalences, classes=classes, **kwargs)

    @classmethod
    def from_labels(cls, X: Any, y: ArrayLike, groups: ArrayLike | None = None, **kwargs: Any) -> Bags:
        """Make bags of labelled rows: one per distinct value of `groups`, or a single one.

        Prevalences and labels are taken from `y`; `ids` are the groups' values. Keyword arguments are those of `Bags`;
        `classes` defaults to the sorted values of `y`; `weights` is one number per row.

        Examples
        --------
        >>> Bags.from_labels(np.zeros((4, 1)), ["a", "b", "b", "b"], groups=[7, 7, 9, 9]).prevalences
        array([[0.5, 0.5],
               [0. , 1. ]])
        """
        if "prevalences" in kwargs:
            raise TypeError("prevalences: from_labels counts them from y; leave them out, or use Bags(...).")
        feature_names = kwargs.pop("feature_names", None)
        if feature_names is None:
            feature_names = column_names(X)
        pool = as_pool(X, "X")
        labels, classes = encode_labels(y, kwargs.pop("classes", None), pool.shape[0])
        order, offsets, ids = np.arange(len(labels)), None, None
        if groups is not None:
            order, offsets, ids = sort_groups(groups, len(labels))
        weights = kwargs.pop("weights", None)
        if weights is not None:
            if len(np.asarray(weights)) != len(labels):
                raise ValueError(f"weights: expected one per row ({len(labels)}), got {len(np.asarray(weights))}.")
            weights = np.asarray(weights)[order]
        bags = cls(
            pool, order, offsets, weights=weights, labels=labels, classes=classes,
            ids=kwargs.pop("ids", ids), feature_names=feature_names, **kwargs,
        )  # fmt: skip
        bags.prevalences = bags.label_prevalences()
        return bags

    @classmethod
    def concat(cls, parts: Sequence[Bags]) -> Bags:
        """Put several collections after one another; classes are aligned by name, a shared pool stays shared.

        Examples
        --------
        >>> a = Bags(np.zeros((2, 1)), prevalences=[[0.3, 0.7]], classes=["x", "y"])
        >>> b = Bags(np.zeros((2, 1)), prevalences=[[0.6, 0.4]], classes=["y", "x"])
        >>> Bags.concat([a, b]).prevalences
        array([[0.3, 0.7],
               [0.4, 0.6]])
        """
        if not parts:
            raise ValueError("parts: expected at least one Bags, got an empty list.")
        parts = _align_classes(parts)
        first = parts[0]
        for i, part in enumerate(parts):
            _refuse_mixture(first, part, i)
        if len({p.weight_kind for p in parts if p.weights is not None}) > 1:
            raise ValueError("parts: some have count weights and some survey weights; give all the same kind.")
        shared = all(part.rows is first.rows and _same_labels(part.labels, first.labels) for part in parts)
        starts = np.zeros(len(parts), int) if shared else np.cumsum([0] + [p.rows.shape[0] for p in parts[:-1]])
        ends = np.cumsum([0] + [len(p.index) for p in parts])
        joined = copy.copy(first)
        joined.rows = first.rows if shared else stack([p.rows for p in parts])
        joined.labels = first.labels if shared else _stack_labels(parts)
        joined.index = np.concatenate([p.index + s for p, s in zip(parts, starts, strict=True)])
        joined.offsets = np.concatenate([[0]] + [p.offsets[1:] + e for p, e in zip(parts, ends, strict=False)])
        joined.weights = None
        if any(p.weights is not None for p in parts):
            joined.weights = np.concatenate([p.entry_weights() for p in parts])
            joined.weight_kind = next(p.weight_kind for p in parts if p.weights is not None)
        joined.ids = np.concatenate([p.ids for p in parts])
        joined.prevalences = None
        if all(p.prevalences is not None for p in parts):
            joined.prevalences = np.concatenate([p.prevalences for p in parts])
        return joined

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Bags]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Bags:
        """Select bags by number, slice, boolean mask or list of numbers; the result is a `Bags` on the same pool."""
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._slice(start, max(start, stop))
        chosen = _selected(key, len(self))
        lengths = np.diff(self.offsets)[chosen]
        entries = ranges(self.offsets[chosen], lengths)
        return self.select(
            chosen, self.index[entries], np.concatenate([[0], np.cumsum(lengths)]),
            None if self.weights is None else self.weights[entries],
        )  # fmt: skip

    def _slice(self, start: int, stop: int) -> Bags:
        a, b = self.offsets[start], self.offsets[stop]
        weights = None if self.weights is None else self.weights[a:b]
        return self.select(slice(start, stop), self.index[a:b], self.offsets[start : stop + 1] - a, weights)

    def select(self, bags: Any, index: Ints, offsets: Ints, weights: NDArray | None) -> Bags:
        """Bags with these entries on the same pool; ids and prevalences are those of the bags selected by `bags`."""
        new = copy.copy(self)
        new.index, new.offsets, new.weights, new.ids = index, offsets, weights, self.ids[bags]
        new.prevalences = None if self.prevalences is None else self.prevalences[bags]
        return new

    def drawn(self, index: Ints, offsets: Ints, weights: NDArray | None, prevalences: NDArray | None) -> Bags:
        """Fresh bags with these entries on the same pool, numbered from 0."""
        new = copy.copy(self)
        new.index, new.offsets, new.weights, new.prevalences = index, offsets, weights, prevalences
        new.ids = np.arange(len(offsets) - 1)
        return new

    @property
    def sizes(self) -> NDArray:
        """(n_bags,): number of entries, sum of counts, or Kish's effective size ``(Σw)² / Σw²`` of survey weights."""
        if self.weights is None:
            return np.diff(self.offsets)
        sums = np.add.reduceat(self.weights, self.offsets[:-1])
        if self.weight_kind == "count":
            return sums
        return sums**2 / np.add.reduceat(self.weights**2, self.offsets[:-1])

    @property
    def n_features(self) -> int:
        """Numbers in one row."""
        return int(np.prod(self.rows.shape[1:]))

    @property
    def bag_of_entry(self) -> Ints:
        """(n_entries,): the bag each entry of `index` belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def entry_weights(self) -> NDArray:
        """(n_entries,): the weights, or ones."""
        return np.ones(len(self.index), np.int64) if self.weights is None else self.weights

    def gather(self) -> Any:
        """(n_entries, ...): a copy of the rows of all entries, one bag after the other."""
        return self.rows[self.index]

    def label_prevalences(self) -> NDArray[np.float64]:
        """(n_bags, n_classes): proportions of the classes counted from the row labels, which must all be known."""
        if self.labels is None or self.classes is None:
            raise ValueError("labels: these bags carry no row labels; make them with Bags.from_labels.")
        labels = self.labels[self.index]
        if (labels < 0).any():
            raise ValueError(
                f"labels: {(labels < 0).sum()} entries have no label (−1), expected all known; "
                "pass prevalences= instead."
            )
        counts = count_labels(labels, self.bag_of_entry, len(self), len(self.classes), self.weights)
        return counts / counts.sum(1, keepdims=True)

    def split(self, fraction: float, random_state: Any = None) -> tuple[Bags, Bags]:
        """Shuffle the bags and split them in two, the first with about `fraction` of them, neither empty.

        Examples
        --------
        >>> train, validation = Bags(np.zeros((10, 1)), offsets=range(11)).split(0.7, random_state=0)
        >>> len(train), len(validation)
        (7, 3)
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}.")
        if len(self) < 2:
            raise ValueError(
                f"bags: expected at least 2 bags to split into training and validation, got {len(self)}; add bags."
            )
        order = np.random.default_rng(random_state).permutation(len(self))
        cut = min(max(round(fraction * len(self)), 1), len(self) - 1)
        return self[np.sort(order[:cut])], self[np.sort(order[cut:])]

    def with_prevalences(self, prevalences: ArrayLike, *, normalize: bool = False) -> Bags:
        """The same bags with these proportions."""
        new = copy.copy(self)
        table, classes = name_columns(prevalences, self.classes)
        n_classes = None if classes is None else len(classes)
        new.prevalences = check_prevalences(table, len(self), n_classes, normalize=normalize)
        new.classes = np.arange(new.prevalences.shape[1]) if classes is None else np.asarray(classes)
        return new

    def with_known_prevalences(self) -> Bags:
        """The same bags with their prevalences, counted from the row labels where they carry none."""
        if self.prevalences is not None:
            return self
        if self.labels is not None:
            return self.with_prevalences(self.label_prevalences())
        raise ValueError("bags: expected the proportions of each bag, got none; pass them by bags.with_prevalences(P).")

    def with_classes(self, classes: Sequence[Any] | NDArray) -> Bags:
        """The same bags with prevalences and labels arranged for these classes, matched by name.

        Classes that these bags lack get prevalence 0; a class of theirs that is not in `classes` is refused.
        """
        if self.classes is None:
            raise ValueError("classes: these bags have no classes to align; pass classes= when making them.")
        names = check_names("classes", classes, len(classes), "class")
        place = {name: j for j, name in enumerate(names.tolist())}
        unknown = [name for name in self.classes.tolist() if name not in place]
        if unknown:
            raise ValueError(
                f"classes: {unknown[0]!r} is not among the expected {shown(names)}; rename it, drop its rows "
                "or column, or learn from bags that have it."
            )
        target = np.array([place[name] for name in self.classes.tolist()])
        new = copy.copy(self)
        new.classes = names
        if self.labels is not None and not np.array_equal(target, np.arange(len(target))):
            new.labels = np.append(target, -1)[self.labels]
        if self.prevalences is not None:
            new.prevalences = np.zeros((len(self), len(names)))
            new.prevalences[:, target] = self.prevalences
        return new

    def fingerprint(self) -> str:
        """A checksum of the bags: entries, weights, prevalences, labels and the rows they refer to."""
        digest = hashlib.sha256(repr(self).encode())
        for array in (self.index, self.offsets, self.weights, self.prevalences, self.labels):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        rows = np.unique(self.index)
        step = max(1, _HASH_CHUNK // self.n_features)
        for start in range(0, len(rows), step):
            taken = take_dense(self.rows, rows[start : start + step])
            digest.update(repr(taken.tolist()).encode() if taken.dtype == object else taken.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        parts = [f"n_bags={len(self)}"]
        if len(self):
            low, high = self.sizes.min(), self.sizes.max()
            parts.append(f"sizes={low:g}" if low == high else f"sizes={low:g}…{high:g}")
        parts.append(f"rows={tuple(self.rows.shape)} {self.rows.dtype}")
        if self.classes is not None:
            parts.append(f"classes={shown(self.classes)}")
        if self.weights is not None:
            parts.append(f"{self.weight_kind} weights")
        parts += [name for name in ("prevalences", "labels") if getattr(self, name) is not None]
        return f"Bags({', '.join(parts)})"

    def _drop_weightless(self) -> None:
        if self.weights is None or self.weights.all():
            return
        kept = self.weights > 0
        self.offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        self.index, self.weights = self.index[kept], self.weights[kept]

    def _refuse_empty_bags(self) -> None:
        if len(self) == 0:
            raise ValueError("offsets: expected at least one bag, got none; give offsets (0, n_entries) for one bag.")
        empty = np.flatnonzero(np.diff(self.offsets) == 0)
        if empty.size:
            raise ValueError(f"bags: bag {empty[0]} is empty, expected at least one row; leave empty bags out.")


def ranges(starts: NDArray, lengths: NDArray) -> Ints:
    """Concatenate ``arange(start, start + length)`` of all pairs, without a loop.

    Examples
    --------
    >>> ranges(np.array([3, 10]), np.array([2, 3]))
    array([ 3,  4, 10, 11, 12])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


def _selected(key: Any, n_bags: int) -> Ints:
    if isinstance(key, slice):
        return np.arange(n_bags)[key]
    chosen = np.asarray(key)
    if chosen.dtype == bool:
        if chosen.shape != (n_bags,):
            raise IndexError(f"bags: expected a mask of length {n_bags}, got shape {chosen.shape}.")
        return np.flatnonzero(chosen)
    if chosen.ndim > 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise IndexError(f"bags: expected a number, slice, mask or list of numbers, got {key!r}.")
    chosen = np.atleast_1d(chosen).astype(np.int64)
    if chosen.size and (chosen.min() < -n_bags or chosen.max() >= n_bags):
        wrong = chosen[(chosen < -n_bags) | (chosen >= n_bags)][0]
        raise IndexError(f"bags: bag {wrong} is out of range, there are {n_bags} bags.")
    return chosen % n_bags if n_bags else chosen


def _align_classes(parts: Sequence[Bags]) -> Sequence[Bags]:
    named = [p for p in parts if p.classes is not None]
    if not named:
        return parts
    if len(named) < len(parts):
        raise ValueError("parts: some have classes and some have none; pass classes= when making each of them.")
    union = list(dict.fromkeys(name for p in named for name in p.classes.tolist()))  # type: ignore[union-attr]
    if all(p.classes.tolist() == union for p in named):  # type: ignore[union-attr]
        return parts
    return [p.with_classes(union) for p in parts]


def _refuse_mixture(first: Bags, part: Bags, i: int) -> None:
    if part.rows.shape[1:] != first.rows.shape[1:]:
        raise ValueError(
            f"parts: number {i} has rows of shape {tuple(part.rows.shape[1:])}, "
            f"expected {tuple(first.rows.shape[1:])} as in number 0."
        )
    if part.feature_names != first.feature_names:
        raise ValueError(f"parts: number {i} has other feature_names than number 0; give both the same columns.")


def _same_labels(a: Ints | None, b: Ints | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _stack_labels(parts: Sequence[Bags]) -> Ints | None:
    if all(p.labels is None for p in parts):
        return None
    unknown = [np.full(p.rows.shape[0], -1) if p.labels is None else p.labels for p in parts]
    return np.concatenate(unknown)
