"""Pooling: the rows of each bag → one vector per bag.

Every pooling is called as ``pooling(rows, offsets, weights=None, index=None)``: entry *e* is row ``index[e]`` (row *e*
without an index), bag *i* holds entries ``offsets[i]`` to ``offsets[i + 1]``, no bag is empty, and a positive weight
*k* equals *k* copies. Mergeable poolings can also process parts of bags: `partial`, `merge`, `finish`.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histnetq.kernels.plain import Entries, bag_of_entry
from histnetq.kernels.precision import widest

_SORT_CHUNK = 1 << 22  # numbers sorted at a time
_PIECE = 512  # entries summed in the precision of the rows


class PoolingState(NamedTuple):
    """The state of a mergeable pooling: a summary of the rows so far.

    Parameters
    ----------
    values : Tensor of shape (n_bags, ...)
        Sums, counts or extremes of each bag, depending on the pooling.
    totals : Tensor of shape (n_bags,)
        Total weight of each bag.

    Examples
    --------
    >>> Mean(1).partial(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3])).totals
    tensor([2., 1.], dtype=torch.float64)
    """

    values: Tensor
    totals: Tensor


class Pooling(nn.Module):
    """Base of all poolings: maps ``(n_rows, n_features)`` and offsets to ``(n_bags, width)``.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    width : int
        Number of values that describe a bag.

    Examples
    --------
    A custom pooling implements the method `pool`:

    >>> class First(Pooling):
    ...     def pool(self, rows, index, offsets, weights):
    ...         return rows[index[offsets[:-1]]]
    >>> First(1, 1)(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3])).tolist()
    [[1.0], [5.0]]
    """

    def __init_subclass__(cls) -> None:
        # Overridden methods inherit the docstring of the base class, for `help` and the documentation.
        super().__init_subclass__()
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not method.__doc__:
                method.__doc__ = getattr(getattr(super(cls, cls), name, None), "__doc__", None)

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.width = width

    def forward(
        self, rows: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None
    ) -> Tensor:
        """Pool the rows of each bag.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Features of all rows.
        offsets : Tensor of shape (n_bags + 1,)
            Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``, at least one.
        weights : Tensor of shape (n_entries,), optional
            Positive weights of the entries; a weight of k equals k copies. By default all are one.
        index : Tensor of shape (n_entries,), optional
            The row of each entry. By default entry *e* is row *e*.

        Returns
        -------
        Tensor of shape (n_bags, width)
            One vector per bag.
        """
        return self.pool(rows, *self._check(rows, offsets, weights, index, may_be_empty=False))

    def _check(
        self, rows: Tensor, offsets: Tensor, weights: Tensor | None, index: Tensor | None, may_be_empty: bool
    ) -> Entries:
        """Check the rows, and check and complete the entries by `check_entries`."""
        if not isinstance(rows, Tensor) or not isinstance(offsets, Tensor):
            raise TypeError(
                f"rows, offsets: expected tensors, got {type(rows).__name__} and {type(offsets).__name__}; "
                "use torch.as_tensor."
            )
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"rows: expected shape (n_rows, {self.n_features}), got {tuple(rows.shape)}.")
        return check_entries(rows, offsets, weights, index, may_be_empty)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Pool checked entries; layers implement this method, and `forward` calls it.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Features of all rows.
        index : Tensor of shape (n_entries,)
            The row of each entry.
        offsets : Tensor of shape (n_bags + 1,)
            Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``.
        weights : Tensor of shape (n_entries,) or None
            Counts as int64, or weights as float64 if the device supports it; None means that all are one.

        Returns
        -------
        Tensor of shape (n_bags, width)
            One vector per bag.

        Examples
        --------
        >>> from histnetq.nn import Mean
        >>> Mean(1).pool(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1, 1]), torch.tensor([0, 2, 3]), None)
        tensor([[2.],
                [3.]])
        """
        raise NotImplementedError


def check_entries(
    rows: Tensor, offsets: Tensor, weights: Tensor | None, index: Tensor | None, may_be_empty: bool
) -> Entries:
    """Check the entries of bags, fill in the index, and widen the weights so that their sums do not overflow.

    On devices other than the CPU, only shapes are checked, because reading values would wait for all pending work.
    """
    on_cpu = offsets.device.type == "cpu"
    if index is None:
        index = torch.arange(len(rows), device=rows.device)
    elif on_cpu and len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(rows):
        span = f"{int(index.min())} to {int(index.max())}"
        raise ValueError(f"index: expected numbers of the {len(rows)} rows, got {span}.")
    if on_cpu:
        sizes, ends = offsets.diff(), (len(offsets) > 0 and int(offsets[0]) == 0 and int(offsets[-1]) == len(index))
        if not ends or (may_be_empty and bool((sizes < 0).any())):
            raise ValueError(
                f"offsets: expected to rise from 0 to the number of entries ({len(index)}), got {offsets.numpy()}."
            )
        if not may_be_empty and bool((sizes < 1).any()):
            raise ValueError(f"offsets: bag {int((sizes < 1).nonzero()[0])} is empty, expected at least one row.")
    if weights is None:
        return Entries(index, offsets, None)
    if weights.shape != index.shape:
        raise ValueError(f"weights: expected one per entry, shape {tuple(index.shape)}, got {tuple(weights.shape)}.")
    kind = widest(weights.device) if weights.is_floating_point() else torch.int64
    return Entries(index, offsets, weights.to(kind))


class MergeablePooling(Pooling):
    """Base of poolings that can process parts of a bag in any order, on any machine, and merge the results.

    Parameters
    ----------
    n_features : int
        Number of features of a row.
    width : int
        Number of values that describe a bag.

    Examples
    --------
    >>> layer, rows = Mean(1), torch.tensor([[1.0], [3.0], [8.0]])
    >>> pieces = [layer.partial(part, torch.tensor([0, len(part)])) for part in (rows[:2], rows[2:])]
    >>> layer.finish(layer.merge(*pieces)).tolist()
    [[4.0]]
    """

    def partial(
        self, rows: Tensor, offsets: Tensor, weights: Tensor | None = None, index: Tensor | None = None
    ) -> PoolingState:
        """Reduce these entries to a state; bags may be empty here.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_features)
            Features of all rows.
        offsets : Tensor of shape (n_bags + 1,)
            Bag *i* holds the entries ``offsets[i]`` to ``offsets[i + 1]``.
        weights : Tensor of shape (n_entries,), optional
            Positive weights of the entries. By default all are one.
        index : Tensor of shape (n_entries,), optional
            The row of each entry. By default entry *e* is row *e*.

        Returns
        -------
        PoolingState
            Values and total weight of each bag.

        Examples
        --------
        >>> Max(1).partial(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 2, 2])).values.tolist()
        [[3.0], [-inf]]
        """
        entries = self._check(rows, offsets, weights, index, may_be_empty=True)
        return PoolingState(self._values(rows.detach(), entries), bag_totals(entries.offsets, entries.weights))

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        raise NotImplementedError

    def merge(self, a: PoolingState, b: PoolingState) -> PoolingState:
        """Merge the states of two sets of entries of the same bags.

        Parameters
        ----------
        a, b : PoolingState
            Results of `partial` for the two sets.

        Returns
        -------
        PoolingState
            The result of `partial` for both sets together.

        Examples
        --------
        >>> from histnetq.nn import Mean
        >>> state = Mean(1).partial(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 2]))
        >>> Mean(1).merge(state, state).totals.tolist()
        [4.0]
        """
        return PoolingState(a.values + b.values, a.totals + b.totals)

    def finish(self, state: PoolingState) -> Tensor:
        """Return the result of `forward` for all entries merged into a state, in the precision of the state.

        Parameters
        ----------
        state : PoolingState
            The state of bags that are not empty.

        Returns
        -------
        Tensor of shape (n_bags, width)
            One vector per bag.

        Examples
        --------
        >>> from histnetq.nn import Mean
        >>> Mean(1).finish(Mean(1).partial(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 2]))).tolist()
        [[2.0]]
        """
        raise NotImplementedError


class Mean(MergeablePooling):
    """Weighted mean of each feature.

    Parameters
    ----------
    n_features : int
        Number of features of a row, and of values that describe a bag.

    Examples
    --------
    >>> Mean(1)(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3])).tolist()
    [[2.0], [5.0]]
    """

    def __init__(self, n_features: int) -> None:
        super().__init__(n_features, n_features)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return _sum_entries(rows, index, offsets, weights) / bag_totals(offsets, weights).to(rows.dtype)[:, None]

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        return _sum_entries(rows.to(widest(rows.device)), *entries)

    def finish(self, state: PoolingState) -> Tensor:
        return state.values / state.totals[:, None]


class Max(MergeablePooling):
    """Maximum of each feature; weights do not matter.

    Parameters
    ----------
    n_features : int
        Number of features of a row, and of values that describe a bag.

    Examples
    --------
    >>> Max(1)(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 2, 3])).tolist()
    [[3.0], [5.0]]
    """

    def __init__(self, n_features: int) -> None:
        super().__init__(n_features, n_features)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        return F.embedding_bag(index, rows, offsets, mode="max", include_last_offset=True)

    def _values(self, rows: Tensor, entries: Entries) -> Tensor:
        values = self.pool(rows, *entries)
        values[entries.offsets.diff() == 0] = -torch.inf
        return values

    def merge(self, a: PoolingState, b: PoolingState) -> PoolingState:
        return PoolingState(torch.maximum(a.values, b.values), a.totals + b.totals)

    def finish(self, state: PoolingState) -> Tensor:
        return state.values


class Median(Pooling):
    """Weighted lower median of each feature: the smallest value with half of the weight at or below it.

    Parameters
    ----------
    n_features : int
        Number of features of a row, and of values that describe a bag.

    Examples
    --------
    >>> Median(1)(torch.tensor([[1.0], [9.0], [3.0]]), torch.tensor([0, 3])).tolist()
    [[3.0]]
    """

    def __init__(self, n_features: int) -> None:
        super().__init__(n_features, n_features)

    def pool(self, rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        n_entries, step = len(index), max(1, _SORT_CHUNK // max(1, len(index)))
        places = [
            _median_places(rows.detach()[index, start : start + step].T, offsets, weights)
            for start in range(0, self.n_features, step)
        ]
        chosen = torch.cat(places).T if n_entries else rows.new_zeros((0, self.n_features), dtype=torch.long)
        return rows.gather(0, index[chosen])


def _median_places(columns: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the entry of each bag's lower median: columns ``(n_features, n_entries)`` → ``(n_features, n_bags)``."""
    sizes = offsets.diff()
    if weights is None and len(sizes) and sizes[0] > 0 and bool((sizes == sizes[0]).all()):
        bags = columns.reshape(len(columns), len(sizes), -1)
        middle = bags.kthvalue((bags.shape[2] + 1) // 2, dim=2, keepdim=True).values
        if not middle.isnan().any():
            # Among equal values, take the one that a stable sort puts in the middle.
            equal, below = bags == middle, (bags < middle).sum(2, keepdim=True)
            chosen = equal & (equal.cumsum(2) == (bags.shape[2] + 1) // 2 - below)
            return chosen.to(torch.uint8).argmax(2) + offsets[:-1]
    by_value = columns.argsort(dim=1, stable=True)
    by_bag = bag_of_entry(offsets)[by_value].argsort(dim=1, stable=True)
    order = by_value.gather(1, by_bag)
    if weights is None:
        return order[:, offsets[:-1] + (offsets.diff() - 1) // 2]
    reached = weights[order].cumsum(1)
    before = F.pad(reached, (1, 0))[:, offsets[:-1]]
    # Sums of fractional weights are rounded, so a sum of one half up to rounding counts as one half.
    share = 0.5 - 1e-9 if weights.is_floating_point() else 0.5
    half = before + bag_totals(offsets, weights) * share
    place = torch.searchsorted(reached.to(half.dtype), half.contiguous())
    return order.gather(1, place.clamp(offsets[:-1], offsets[1:] - 1))


def bag_totals(offsets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the total weight of each bag: (n_bags,), float64 if the device supports it."""
    wide = widest(offsets.device)
    if weights is None:
        return offsets.diff().to(wide)
    totals = torch.zeros(len(offsets) - 1, dtype=wide, device=offsets.device)
    return totals.index_add_(0, bag_of_entry(offsets), weights.to(wide))


def _sum_entries(rows: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    """Sum over each bag: first over pieces of at most 512 entries, then over the pieces in double precision."""
    scale = None if weights is None else weights.to(rows.dtype)
    sizes = offsets.diff()
    n_pieces = (sizes + _PIECE - 1) // _PIECE
    bag = torch.repeat_interleave(torch.arange(len(sizes), device=offsets.device), n_pieces)
    place = torch.arange(len(bag), device=offsets.device) - (n_pieces.cumsum(0) - n_pieces)[bag]
    bounds = torch.cat([offsets[:-1][bag] + _PIECE * place, offsets[-1:]])
    pieces = F.embedding_bag(index, rows, bounds, mode="sum", per_sample_weights=scale, include_last_offset=True)
    total = torch.zeros((len(sizes), rows.shape[1]), dtype=widest(rows.device), device=rows.device)
    return total.index_add(0, bag, pieces.to(total.dtype)).to(rows.dtype)
