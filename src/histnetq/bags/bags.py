"""`Bags`: ragged bags of examples as rows of indices into one shared pool of rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags import checks, constructors, known_classes
from histnetq.bags.fingerprint import fingerprint
from histnetq.bags.indexing import offsets_of, ranges, selected
from histnetq.bags.table_facts import TableFacts
from histnetq.bags.text_features import TextFeatures
from histnetq.errors import InputError
from histnetq.simplex import Ints, check_prevalences

_PARTS = (
    "rows", "index", "offsets", "weights", "weight_kind", "prevalences", "classes", "ids", "labels", "feature_names",
    "facts", "scores", "text",
)  # fmt: skip


class Bags:
    """Bags of examples, as a list of row numbers per bag into one pool of rows.

    Bag *i* holds the rows ``rows[index[offsets[i]:offsets[i + 1]]]``. Bags may have any sizes and may share rows. The
    pool is never copied: selecting bags selects indices.

    Parameters
    ----------
    rows : (n_rows, ...)
        The pool: a numpy array or memmap, a torch tensor or a scipy sparse matrix. It may have any trailing shape, such
        as the shape of images. A list of texts is for methods whose classifier is a pipeline that reads texts. Data
        frames and 2-D arrays with texts or missing values are for methods whose classifier accepts them.
    index : (n_entries,) of int, optional
        Row numbers of all bags, bag by bag. By default, all rows in order.
    offsets : (n_bags + 1,) of int, optional
        Start of each bag in `index`, followed by the number of entries. By default there is one bag.
    weights : (n_entries,), optional
        Weight of each entry; a weight of *k* equals *k* copies. Entries of weight 0 are dropped.
    weight_kind : {"count", "survey"}, default "count"
        Counts are multiplicities: whole numbers whose sum is the size of a bag. Survey weights are any positive
        numbers, and the size of a bag is Kish's effective size.
    prevalences : (n_bags, n_classes), optional
        The known proportions of the classes in each bag.
    classes : sequence, optional
        Names of the classes, by default 0, 1 and so on.
    ids : (n_bags,), optional
        Names of the bags, by default 0, 1 and so on.
    labels : (n_rows,) of int, optional
        Class code of each pool row, −1 if the class is unknown.
    feature_names : sequence of str, optional
        Names of the columns of `rows`. By default, the column names of a data frame.
    normalize : bool, default False
        Whether to divide each row of `prevalences` by its sum, for example if it contains counts.

    Attributes
    ----------
    sizes : (n_bags,)
        Size of each bag: its number of entries, or the size that its weights imply.
    n_features : int
        Number of values in one row.
    bag_of_entry : (n_entries,) of int
        Bag of each entry.

    Examples
    --------
    >>> bags = Bags.from_arrays([np.zeros((3, 2)), np.ones((5, 2))], prevalences=[[1, 0], [0.2, 0.8]])
    >>> bags
    Bags(n_bags=2, sizes=3…5, rows=(8, 2) float64, classes=[0, 1], prevalences)
    >>> bags[1].sizes
    array([5])
    """

    facts: TableFacts | None  # facts about the table that the bags were read from
    scores: NDArray | None  # class of each column, if rows are class probabilities
    text: TextFeatures | None  # how features were computed from a text column

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
        self.rows = checks.as_pool(rows)
        n_rows = self.rows.shape[0]
        self.index = checks.check_index(np.arange(n_rows) if index is None else index, n_rows)
        n_entries = len(self.index)
        self.offsets = checks.check_offsets([0, n_entries] if offsets is None else offsets, n_entries)
        self.weight_kind = checks.check_choice("weight_kind", weight_kind, ("count", "survey"))
        self.weights = None if weights is None else checks.check_weights(weights, weight_kind, n_entries)
        self.index, self.offsets, self.weights = checks.drop_weightless(self.index, self.offsets, self.weights)
        self.ids = np.arange(len(self)) if ids is None else checks.check_names("ids", ids, len(self), "bag")
        prevalences, classes = checks.name_columns(prevalences, classes)
        n_classes = None if classes is None else len(classes)
        self.prevalences = self.labels = self.classes = None
        self.facts = self.scores = self.text = None
        if prevalences is not None:
            self.prevalences = check_prevalences(prevalences, len(self), n_classes, normalize=normalize)
            n_classes = self.prevalences.shape[1]
        if labels is not None:
            self.labels = checks.check_labels(labels, n_rows, n_classes)
            n_classes = n_classes or int(self.labels.max(initial=0)) + 1
        if n_classes is not None:
            names = np.arange(n_classes) if classes is None else classes
            self.classes = checks.check_names("classes", names, n_classes, "class")
        names = checks.column_names(rows) if feature_names is None else feature_names
        self.feature_names = checks.check_feature_names(names, self.rows)

    @classmethod
    def trusted(cls, rows: Any, index: Ints, offsets: Ints, **parts: Any) -> Bags:
        """Make bags from valid parts without checks, for example from parts that this library has checked itself.

        Nothing is checked, copied or converted. Numbers must be finite, `index` and `offsets` must fit, no bag may be
        empty, weights must be positive int64 counts or float64 survey weights, and prevalences must sum to one.

        Parameters
        ----------
        rows : (n_rows, ...)
            The pool.
        index : (n_entries,) of int64
            Row numbers of all bags, bag by bag.
        offsets : (n_bags + 1,) of int64
            Start of each bag in `index`, followed by the number of entries.
        **parts : dict
            Any other parameters of `Bags`, except `normalize`, as arrays of their final types; also `facts`, `scores`
            and `text` of bags that are read from a table.

        Returns
        -------
        Bags
            The bags.

        Examples
        --------
        >>> Bags.trusted(np.zeros((2, 1)), np.array([1, 0]), np.array([0, 1, 2])).sizes
        array([1, 1])
        """
        defaults = dict.fromkeys(_PARTS) | {"weight_kind": "count", "ids": np.arange(len(offsets) - 1)}
        return cls.__new__(cls).replaced(**defaults | {"rows": rows, "index": index, "offsets": offsets} | parts)

    def replaced(self, **parts: Any) -> Bags:
        """Copy the bags with some parts replaced, without checks; see `trusted`.

        Parameters
        ----------
        **parts : dict
            Names and values of the parts.

        Returns
        -------
        Bags
            The new bags, which share all other parts with these.

        Examples
        --------
        >>> Bags(np.zeros((2, 1))).replaced(ids=np.array(["a"])).ids
        array(['a'], dtype='<U1')
        """
        unknown = [name for name in parts if name not in _PARTS]
        if unknown:
            raise TypeError(f"parts: expected the names of parameters of Bags, got {', '.join(unknown)}.")
        new = copy.copy(self)
        vars(new).update(parts)
        return new

    # These methods are defined and documented in other modules.
    from_arrays = classmethod(constructors.from_arrays)
    from_labels = classmethod(constructors.from_labels)
    concat = classmethod(constructors.concat)
    fingerprint = fingerprint
    label_prevalences = known_classes.label_prevalences
    with_prevalences = known_classes.with_prevalences
    with_known_prevalences = known_classes.with_known_prevalences
    with_classes = known_classes.with_classes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Bags]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Bags:
        """Select bags by number, slice, boolean mask or list of numbers; the result is a `Bags` on the same pool."""
        chosen = selected(key, len(self))
        starts = self.offsets[chosen]
        lengths = self.offsets[chosen + 1] - starts
        neighbours = isinstance(key, slice) and key.step in (None, 1) and chosen.size > 0
        # The entries of consecutive bags are a slice, which copies nothing.
        entries = slice(starts[0], starts[0] + lengths.sum()) if neighbours else ranges(starts, lengths)
        weights = None if self.weights is None else self.weights[entries]
        return self.select(chosen, self.index[entries], offsets_of(lengths), weights)

    def select(self, bags: Any, index: Ints, offsets: Ints, weights: NDArray | None) -> Bags:
        """Return new bags on the same pool with the ids and prevalences of some of these bags, but other entries.

        Parameters
        ----------
        bags : slice or array
            The bags whose ids and prevalences are kept, as a key of an array.
        index : (n_entries,) of int64
            Row numbers of the new bags, bag by bag.
        offsets : (n_bags + 1,) of int64
            Start of each new bag in `index`, followed by the number of entries.
        weights : (n_entries,) or None
            Weight of each entry.

        Returns
        -------
        Bags
            The new bags.

        Examples
        --------
        >>> both = Bags(np.zeros((4, 1)), offsets=[0, 2, 4], ids=["a", "b"])
        >>> both.select(slice(1, 2), np.array([3]), np.array([0, 1]), None).ids
        array(['b'], dtype='<U1')
        """
        prevalences = None if self.prevalences is None else self.prevalences[bags]
        return self.drawn(index, offsets, weights, prevalences).replaced(ids=self.ids[bags])

    def drawn(self, index: Ints, offsets: Ints, weights: NDArray | None, prevalences: NDArray | None) -> Bags:
        """Make new bags on the same pool, numbered from 0.

        Parameters
        ----------
        index : (n_entries,) of int64
            Row numbers of the new bags, bag by bag.
        offsets : (n_bags + 1,) of int64
            Start of each new bag in `index`, followed by the number of entries.
        weights : (n_entries,) or None
            Weight of each entry.
        prevalences : (n_bags, n_classes) or None
            The proportions of the classes in each new bag.

        Returns
        -------
        Bags
            The new bags.

        Examples
        --------
        >>> Bags(np.zeros((4, 1))).drawn(np.array([3, 3, 0]), np.array([0, 2, 3]), None, None).sizes
        array([2, 1])
        """
        ids = np.arange(len(offsets) - 1)
        return self.replaced(index=index, offsets=offsets, weights=weights, prevalences=prevalences, ids=ids)

    @property
    def sizes(self) -> NDArray:
        """Number of entries, sum of counts, or Kish's effective size ``(Σw)² / Σw²`` of survey weights, (n_bags,)."""
        if self.weights is None:
            return np.diff(self.offsets)
        sums = np.add.reduceat(self.weights, self.offsets[:-1])
        if self.weight_kind == "count":
            return sums
        return sums**2 / np.add.reduceat(self.weights**2, self.offsets[:-1])

    @property
    def n_features(self) -> int:
        """Number of values in one row."""
        return int(np.prod(self.rows.shape[1:]))

    @property
    def bag_of_entry(self) -> Ints:
        """Bag of each entry of `index`, (n_entries,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def entry_weights(self) -> NDArray:
        """Return the weight of each entry, which is 1 in bags without weights.

        Returns
        -------
        (n_entries,)
            The weights.

        Examples
        --------
        >>> Bags(np.zeros((2, 1))).entry_weights()
        array([1, 1])
        """
        return np.ones(len(self.index), np.int64) if self.weights is None else self.weights

    def sized_weights(self) -> NDArray | None:
        """Return weights whose sum is the size of each bag, or None for bags without weights.

        Counts already have this sum. Survey weights have an arbitrary unit, and are rescaled to Kish's effective size.

        Returns
        -------
        (n_entries,) or None
            The weights.

        Examples
        --------
        >>> Bags(np.zeros((3, 1)), weights=[2.0, 1.0, 1.0], weight_kind="survey").sized_weights().round(2)
        array([1.33, 0.67, 0.67])
        """
        if self.weights is None or self.weight_kind == "count":
            return self.weights
        totals = np.add.reduceat(self.weights, self.offsets[:-1])
        return self.weights * np.repeat(self.sizes / totals, np.diff(self.offsets))

    def gather(self) -> Any:
        """Copy the rows of all entries, bag by bag.

        Returns
        -------
        (n_entries, ...)
            The rows, of the same kind as the pool.

        Examples
        --------
        >>> Bags(np.array([[1.0], [2.0]]), index=[1, 1, 0]).gather().ravel()
        array([2., 2., 1.])
        """
        return self.rows[self.index]

    def split(self, fraction: float, random_state: Any = None) -> tuple[Bags, Bags]:
        """Split the bags at random into two parts that are not empty.

        Parameters
        ----------
        fraction : float
            Fraction of the bags in the first part, between 0 and 1.
        random_state : int or numpy.random.Generator, optional
            Seed of the shuffle.

        Returns
        -------
        tuple of two Bags
            Both parts, each in the order of these bags.

        Examples
        --------
        >>> train, validation = Bags(np.zeros((10, 1)), offsets=range(11)).split(0.7, random_state=0)
        >>> len(train), len(validation)
        (7, 3)
        """
        if not 0 < fraction < 1:
            raise ValueError(f"fraction: expected a number between 0 and 1, got {fraction!r}.")
        if len(self) < 2:
            expected = "at least 2 bags to split into training and validation"
            raise InputError("bags", expected, len(self), "add bags")
        order = np.random.default_rng(random_state).permutation(len(self))
        cut = min(max(round(fraction * len(self)), 1), len(self) - 1)
        return self[np.sort(order[:cut])], self[np.sort(order[cut:])]

    def __repr__(self) -> str:
        parts = [f"n_bags={len(self)}"]
        if len(self):
            low, high = self.sizes.min(), self.sizes.max()
            parts.append(f"sizes={low:.9g}" if low == high else f"sizes={low:.9g}…{high:.9g}")
        parts.append(f"rows={tuple(self.rows.shape)} {self.rows.dtype}")
        if self.classes is not None:
            parts.append(f"classes={checks.shown(self.classes)}")
        if self.weights is not None:
            parts.append(f"{self.weight_kind} weights")
        parts += [name for name in ("prevalences", "labels") if getattr(self, name) is not None]
        return f"Bags({', '.join(parts)})"
