"""Rows that come in pieces → the sum of their sketches, on all cores, in memory that does not grow with the rows."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import as_pool, check_whole, column_names, stack
from histnetq.kernels.cores import count_cores
from histnetq.sketches.sketch import BagSketch, SketchSum, plain_ids

_ROWS_AT_ONCE = 1 << 17  # rows of small chunks are put together first: most bags have few rows in each
_NUMBERS_AT_ONCE = 1 << 22  # in them: larger arrays are new memory each time, which the system clears first
_BAGS_AT_ONCE = 1 << 11  # whose states are in memory side by side before they are added
_MOST_THREADS = 8  # each has some rows and their features in memory


class CheckedRows(NamedTuple):
    """Rows of finite numbers that this library has read, the bag of each, and their weights: not scanned again."""

    ids: NDArray
    rows: Any
    weights: NDArray | None = None
    feature_names: list[str] | None = None


def sum_sketches(chunks: Iterable[Any], sketch: Callable[[Bags], BagSketch], n_threads: int | None = None) -> BagSketch:
    """Sketch pieces of bags and add them up, in the order in which they come.

    Parameters
    ----------
    chunks : iterable of (ids, rows), of (ids, rows, weights), or of Bags
    sketch : callable
        Bags → BagSketch.
    n_threads : int, optional
        Default: one for each core, at most 8.
    """
    n_threads = min(count_cores(), _MOST_THREADS) if n_threads is None else check_whole("n_threads", n_threads)
    total, waiting = SketchSum(), deque[Future[BagSketch]]()
    parts = chain.from_iterable(_few_bags(chunk) for chunk in _large_chunks(chunks))
    if n_threads == 1:
        for bags in parts:
            total.add(sketch(bags))
        return total.result()
    with _workers(n_threads) as pool:
        try:
            for bags in parts:
                waiting.append(pool.submit(sketch, bags))
                if len(waiting) > n_threads:
                    total.add(waiting.popleft().result())
            while waiting:
                total.add(waiting.popleft().result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return total.result()


@contextmanager
def _workers(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that share the cores: with threads of torch's own in each, they would wait for one another."""
    torch = sys.modules.get("torch")
    if torch is None:
        with ThreadPoolExecutor(n_threads) as pool:
            yield pool
        return
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)  # also of threads that are started later


def group_rows(
    ids: ArrayLike, rows: Any, weights: ArrayLike | None = None, feature_names: list[str] | None = None
) -> Bags:
    """The rows of each bag side by side, with the bags in the order in which they first occur.

    Rows are finite numbers and weights are positive: neither is checked.

    Examples
    --------
    >>> bags = group_rows(["b", "a", "b"], np.array([[1.0], [2.0], [3.0]]))
    >>> bags.ids.tolist(), bags.rows.ravel().tolist()
    (['b', 'a'], [1.0, 3.0, 2.0])
    """
    import pandas as pd

    codes, names = pd.factorize(np.asarray(ids))
    if codes.min(initial=0) < 0:
        raise ValueError("ids: expected a bag for every row, got NaN or None; drop such rows or name their bag.")
    # Few different numbers are sorted many times faster as short ones.
    order = np.argsort(codes.astype(np.min_scalar_type(len(names))), kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
    w = None if weights is None else np.asarray(weights)[order]
    if w is not None:
        w = w.astype(np.int64 if _kind(w) == "count" else np.float64, copy=False)
    # `take` is several times faster than an index, with rows of few columns.
    sorted_rows = rows[order] if hasattr(rows, "tocsr") else rows.take(order, axis=0)
    return Bags.trusted(
        sorted_rows, np.arange(len(order)), offsets, weights=w, weight_kind=_kind(w) or "count",
        ids=plain_ids(np.asarray(names)), feature_names=feature_names,
    )  # fmt: skip


def _large_chunks(chunks: Iterable[Any]) -> Iterator[Bags]:
    """Bags of about as many rows as are handled together."""
    held: list[CheckedRows] = []
    n_held = 0
    for chunk in chunks:
        if isinstance(chunk, Bags):
            if held:
                yield _put_together(held)
                held, n_held = [], 0
            yield chunk
            continue
        piece = _weighed(chunk if isinstance(chunk, CheckedRows) else _checked(*chunk))
        at_once = min(_ROWS_AT_ONCE, 1 + _NUMBERS_AT_ONCE // max(1, math.prod(piece.rows.shape[1:])))
        for start in range(0, len(piece.ids), at_once):
            few = slice(start, start + at_once)
            weights = None if piece.weights is None else piece.weights[few]
            part = piece._replace(ids=piece.ids[few], rows=piece.rows[few], weights=weights)
            if held and (held[0].feature_names != part.feature_names or _kind(held[0].weights) != _kind(weights)):
                yield _put_together(held)
                held, n_held = [], 0
            held.append(part)
            n_held += len(part.ids)
            if n_held >= at_once:
                yield _put_together(held)
                held, n_held = [], 0
    if held:
        yield _put_together(held)


def _checked(ids: Any, rows: Any, weights: Any = None) -> CheckedRows:
    """Ids, rows and weights as arrays of one length, and the names of the columns."""
    pool, ids = as_pool(rows), np.asarray(ids)
    if ids.shape != (pool.shape[0],):
        raise ValueError(f"ids: expected one bag for each of the {pool.shape[0]} rows, got shape {ids.shape}.")
    return CheckedRows(ids, pool, None if weights is None else np.asarray(weights), column_names(rows))


def _weighed(piece: CheckedRows) -> CheckedRows:
    """The rows without those of weight 0."""
    w = piece.weights
    if w is None:
        return piece
    # NaN is neither at least 0 nor less than infinity.
    if w.shape != piece.ids.shape or w.dtype.kind not in "fiub" or not ((w >= 0) & (w < np.inf)).all():
        raise ValueError("weights: expected a finite number of at least 0 for each row; drop or repair the others.")
    kept = w > 0
    return piece if kept.all() else piece._replace(ids=piece.ids[kept], rows=piece.rows[kept], weights=w[kept])


def _put_together(held: list[CheckedRows]) -> Bags:
    ids, rows, weights, names = zip(*held, strict=True)
    w = None if weights[0] is None else np.concatenate(weights)
    # Rows of mapped files are copied to memory: there are never many here.
    pool = stack(rows) if hasattr(rows[0], "tocsr") else np.concatenate(rows)
    return group_rows(np.concatenate(ids), pool, w, names[0])


def _kind(weights: NDArray | None) -> str | None:
    """Whether weights are of the kind "count" or "survey", which are not put together."""
    return None if weights is None else "count" if weights.dtype.kind in "iub" else "survey"


def _few_bags(bags: Bags) -> Iterator[Bags]:
    for start in range(0, len(bags), _BAGS_AT_ONCE):
        yield bags[start : start + _BAGS_AT_ONCE]
