"""Sketches of rows that arrive in chunks, computed on all cores in memory that does not grow with the rows."""

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
from histnetq.bags.indexing import offsets_of
from histnetq.kernels.cores import count_cores
from histnetq.sketches.sketch import BagSketch, SketchSum, plain_ids

_ROWS_AT_ONCE = 1 << 17  # rows of small chunks are joined first, as most bags have few rows in each chunk
_NUMBERS_AT_ONCE = 1 << 22  # largest array: the system clears the memory of larger arrays on each allocation
_BAGS_AT_ONCE = 1 << 11  # bags whose states are in memory at a time before they are added
_MOST_THREADS = 8  # each thread holds some rows and their features in memory


class CheckedRows(NamedTuple):
    """Rows that this library has already checked, with the bag and the weight of each."""

    ids: NDArray
    rows: Any
    weights: NDArray | None = None
    feature_names: list[str] | None = None


def sum_sketches(chunks: Iterable[Any], sketch: Callable[[Bags], BagSketch], n_threads: int | None = None) -> BagSketch:
    """Return the sum of the sketches of chunks, which are tuples (ids, rows), (ids, rows, weights), or Bags.

    By default there is one thread for each core, and at most 8.
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
    """Yield a thread pool; torch uses one thread inside each worker, as the workers already occupy all cores."""
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
        torch.set_num_threads(before)  # the setting also holds for threads that are started later


def group_rows(
    ids: ArrayLike, rows: Any, weights: ArrayLike | None = None, feature_names: list[str] | None = None
) -> Bags:
    """Return bags from rows and the bag of each row, with the bags in the order of their first occurrence.

    Rows must be finite and weights positive; neither is checked.

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
    # Sorting is many times faster with a small integer type.
    order = np.argsort(codes.astype(np.min_scalar_type(len(names))), kind="stable")
    offsets = offsets_of(np.bincount(codes, minlength=len(names)))
    w = None if weights is None else np.asarray(weights)[order]
    if w is not None:
        w = w.astype(np.int64 if _kind(w) == "count" else np.float64, copy=False)
    # `take` is several times faster than indexing for rows with few columns.
    sorted_rows = rows.take(order, axis=0) if isinstance(rows, np.ndarray) else rows[order]
    return Bags.trusted(
        sorted_rows, np.arange(len(order)), offsets, weights=w, weight_kind=_kind(w) or "count",
        ids=plain_ids(np.asarray(names)), feature_names=feature_names,
    )  # fmt: skip


def _large_chunks(chunks: Iterable[Any]) -> Iterator[Bags]:
    """Join small chunks and split large ones, and yield bags of about `_ROWS_AT_ONCE` rows."""
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
    """Check rows and ids, and return them with the weights and the column names."""
    pool, ids = as_pool(rows), np.asarray(ids)
    if ids.shape != (pool.shape[0],):
        raise ValueError(f"ids: expected one bag for each of the {pool.shape[0]} rows, got shape {ids.shape}.")
    return CheckedRows(ids, pool, None if weights is None else np.asarray(weights), column_names(rows))


def _weighed(piece: CheckedRows) -> CheckedRows:
    """Check the weights, and drop rows of weight 0."""
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
    # Memory-mapped rows are copied to memory, as there are never many here.
    in_memory = all(isinstance(part, np.ndarray) for part in rows)
    pool = np.concatenate(rows) if in_memory else stack(rows)
    return group_rows(np.concatenate(ids), pool, w, names[0])


def _kind(weights: NDArray | None) -> str | None:
    """Return the kind of weights, "count" or "survey"; rows with different kinds are not joined."""
    return None if weights is None else "count" if weights.dtype.kind in "iub" else "survey"


def _few_bags(bags: Bags) -> Iterator[Bags]:
    for start in range(0, len(bags), _BAGS_AT_ONCE):
        yield bags[start : start + _BAGS_AT_ONCE]
