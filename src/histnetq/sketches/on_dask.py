"""Estimates of the bags of files on a Dask cluster: a shuffle by bag brings the parts of a bag together.

Each worker reads parts of the files. A part sends the packed sketch of each bag, or its rows if they are
smaller. These records are divided by bag into partitions, which other workers merge and estimate. No process ever
holds all bags, and only names and estimates reach the caller. If a worker dies, others repeat what it held.
"""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from histnetq.errors import ConnectingError, Option, Way
from histnetq.sketches.shuffled import PACKED, Shuffle, number, take
from histnetq.sketches.sketch import BagSketch, SketchSum
from histnetq.sketches.sketcher import SketchingModel
from histnetq.tables.budget import name_array
from histnetq.tables.columns import Codes
from histnetq.tables.names import name_of
from histnetq.tables.table_files import NoRowsError, Part, is_number, open_part, open_table, split_files

if TYPE_CHECKING:
    from distributed import Client

_ROWS_PER_PART = 1 << 20
_PARTITION_BYTES = 1 << 26  # of the records in a partition
_MOST_PARTITIONS = 512
_RETRIES = 3
_PATIENCE = 5  # timeout in seconds for the scheduler to answer, and for its workers to appear
_LOCAL_WORKERS = 2
_ORDER = "histnetq_row"  # column of the places of rows in the table, for the order of the bags
_ROWS_OF_PART = 1 << 40  # more than any part has
_Finish = Callable[[SketchingModel, BagSketch], Any]


def predict_dask(
    model: SketchingModel, source: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", client: Client | str | None = None, progress: bool = False,
    weight_kind: str = "survey",
) -> tuple[NDArray, NDArray[np.float64]]:  # fmt: skip
    """Estimate the bags of files that are too large for one machine; the rows of a bag may be in any order and file.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier that supports sketches.
    source : path, glob or list of paths
        Parquet or CSV files, which every worker can open under the same path. Parquet files with several row groups
        are read in parts.
    bag : str or sequence of str
        Columns that name the bags, as in `read_bags`.
    weight : str, default=None
        Column of survey weights, as in `read_bags`; None gives every row the same weight.
    missing : {"refuse", "drop", "mean"}, default="refuse"
        Treatment of missing values, as in `read_bags`.
    client : distributed.Client or str, default=None
        A client, or the address of a scheduler such as "tcp://host:8786". None and "local" start a temporary cluster
        of two processes on this machine.
    progress : bool, default=False
        Whether to show a progress bar.
    weight_kind : {"survey", "count"}, default="survey"
        Meaning of the weights, as in `read_bags`.

    Returns
    -------
    ids : array of shape (n_bags,)
        Names of the bags, in the order of their first occurrence.
    prevalences : array of shape (n_bags, n_classes)
        Estimates of the bags.

    Examples
    --------
    >>> ids, prevalences = predict_dask(model, "stations/*.parquet", bag="station")  # doctest: +SKIP
    """
    how: dict[str, Any] = {"weight": weight, "weight_kind": weight_kind, "missing": missing}
    ids, order, found = _run(model, source, bag, how, client, progress, _predict)
    return ids, np.concatenate(found)[order]


def sketch_dask(
    model: SketchingModel, source: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", client: Client | str | None = None, progress: bool = False,
    weight_kind: str = "survey",
) -> BagSketch:  # fmt: skip
    """Compute the sketch of all rows; the parameters are the same as in `predict_dask`."""
    how: dict[str, Any] = {"weight": weight, "weight_kind": weight_kind, "missing": missing, "moments": True}
    ids, order, found = _run(model, source, bag, how, client, progress, _keep)
    total, n_bags = SketchSum(), 0
    for sketch in found:
        total.add(replace(sketch, ids=n_bags + np.arange(len(sketch))))
        n_bags += len(sketch)
    whole = take(total.result(), order)
    keys = (bag,) if isinstance(bag, str) else tuple(bag)
    return replace(whole, ids=ids, maker=replace(whole.maker, keys=keys))


def _predict(model: SketchingModel, found: BagSketch) -> NDArray[np.float64]:
    return model.predict(found)


def _keep(model: SketchingModel, found: BagSketch) -> BagSketch:
    return found


def _run(
    model: SketchingModel, source: Any, bag: str | Sequence[str], how: dict[str, Any], client: Client | str | None,
    progress: bool, finish: _Finish,
) -> tuple[NDArray, NDArray[np.int64], list[Any]]:  # fmt: skip
    """Return the names of all bags in the order of their first rows, and results of groups of bags in another order.

    The second array has the place of each name among the results.
    """
    model.sketch_maker()  # a model without sketches raises its error here instead of on every worker
    parts, keys = split_files(source, "source", _ROWS_PER_PART), (bag,) if isinstance(bag, str) else tuple(bag)
    way = Shuffle(model, keys, order=_ORDER, name=parts[0].path, **how)
    with _connected(client) as connected:
        # The model is a task, so that the scheduler can create it again if all workers that hold it die.
        shared = connected.submit(pickle.loads, pickle.dumps(way), pure=False)
        submit = partial(connected.submit, retries=_RETRIES, pure=False)
        read, n_bytes, packed = list[Any](), 0, None
        while packed is None and len(read) < len(parts):  # the first part with rows decides what is sent
            read.append(submit(_read, shared, parts[len(read)], len(read), None))
            n_bytes, packed = submit(_measure, read[-1]).result()
        read += [submit(_read, shared, parts[i], i, packed) for i in range(len(read), len(parts))]
        n = min(max(1, math.ceil(n_bytes * len(parts) / _PARTITION_BYTES)), _MOST_PARTITIONS)
        divided = [submit(_divide, part, keys, n) for part in read]
        partitions = [[submit(getitem, part, j) for part in divided] for j in range(n)]
        merged = [submit(_merge, shared, pieces, finish) for pieces in partitions]
        if progress:
            from distributed import as_completed

            for _ in tqdm(as_completed(read), total=len(read), unit="part"):
                pass
        del read, divided, partitions  # so that workers drop what has been merged
        found = [part for part in connected.gather(merged) if part is not None]
    if not found:
        raise ValueError("source: has no rows; check the files.")
    names = pa.concat_tables([names for names, _ in found], promote_options="permissive")
    order = np.argsort(names.column(_ORDER).to_numpy())
    ids = _name_bags(names.take(order), way, open_table(source, "source").written)
    return ids, order, [result for _, results in found for result in results]


def _read(way: Shuffle, part: Part, i: int, packed: bool | None) -> pa.Table | None:
    """Return the packed sketches of a part of the files, or its rows; None decides. Without rows, return None."""
    way, table = replace(way, name=part.path), open_part(part)
    try:
        numbers, names = way.columns(table)
        rows = pa.Table.from_batches([batch for _, batch in table.batches(numbers, names)])
    except NoRowsError:
        return None
    for j, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            rows = rows.set_column(j, rows.column_names[j], column.cast(column.type.value_type))
    rows = rows.append_column(_ORDER, pa.array(i * _ROWS_OF_PART + np.arange(len(rows))))
    if packed is None:
        packed = not way.prefers_rows(rows, len(rows) / len(number(rows, way.keys, way.name)[0]))
    if packed:
        return way.pack(rows)
    way.check(rows)
    return rows


def _measure(table: pa.Table | None) -> tuple[int, bool | None]:
    """Return the bytes of a part, and whether it is packed; None if it is empty."""
    return (0, None) if table is None else (table.nbytes, PACKED in table.column_names)


def _divide(table: pa.Table | None, keys: tuple[str, ...], n: int) -> list[pa.Table | None]:
    """Divide records by bag into n tables; equal numbers of different types go to the same table."""
    if table is None or n == 1:
        return [table] * n
    hashes = np.zeros(len(table), np.uint64)
    for key in keys:
        column = table.column(key)
        kind = pa.float64() if is_number(column.type) else pa.string()
        hashes = hashes * np.uint64(31) + pd.util.hash_array(column.cast(kind).to_numpy())
    places = (hashes % np.uint64(n)).astype(np.int64)
    order, ends = np.argsort(places, kind="stable"), np.cumsum(np.bincount(places, minlength=n))
    return [table.take(some) for some in np.split(order, ends[:-1])]


def _merge(way: Shuffle, pieces: list[pa.Table | None], finish: _Finish) -> tuple[pa.Table, list[Any]] | None:
    """Return the names of the bags of a partition, and the results of groups of them; None without bags."""
    tables = [piece for piece in pieces if piece is not None and len(piece)]
    if not tables:
        return None
    by = [(key, "ascending") for key in (*way.keys, _ORDER)]
    table = pa.concat_tables(tables, promote_options="permissive").sort_by(by)
    merged = [(names, finish(way.model, found)) for names, found in way.merge([table])]
    return pa.concat_tables([names for names, _ in merged]), [result for _, result in merged]


def _name_bags(names: pa.Table, way: Shuffle, written: bool) -> NDArray:
    """Return the names of bags, whose values in several columns are joined by ``/``."""
    if len(way.keys) == 1 and pa.types.is_integer(names.column(0).type):
        return names.column(0).to_numpy()
    bags, columns = Codes(way.name, way.keys, written), [names.column(key).to_pylist() for key in way.keys]
    bags.place = {tuple(map(name_of, key)): i for i, key in enumerate(zip(*columns, strict=True))}
    return name_array(bags.values)


@contextlib.contextmanager
def _connected(client: Client | str | None) -> Iterator[Client]:
    """Yield a client; a client or cluster that was started here is closed at the end."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError("dask: needs the package distributed; pip install 'histnetq[dask]'.") from None
    with contextlib.ExitStack() as opened:
        if client is None or client == "local":
            try:
                # New processes instead of forks, as compiled code with threads does not survive a fork.
                local = LocalCluster(
                    n_workers=_LOCAL_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None,
                    env={"OMP_NUM_THREADS": "1"},
                )  # fmt: skip
            except (OSError, RuntimeError) as error:
                script = "in a script, put the call under if __name__ == '__main__', which workers do not run, or "
                remedy = (
                    Way(script, on=("python",)),
                    Way("leave out ", Option("dask"), ", or ", on=("command",)),
                    "let TMPDIR name a directory that can be written",
                )
                problem = f"no workers can be started on this machine ({error or type(error).__name__})"
                raise ConnectingError("dask", problem=problem, remedy=remedy) from None
            yield opened.enter_context(Client(opened.enter_context(local)))
        elif isinstance(client, Client):
            yield client
        else:
            wrong = f"no scheduler answers at {client}; start one with dask scheduler, or use 'local'."
            try:
                made = opened.enter_context(Client(client, timeout=_PATIENCE))
                wrong = f"the scheduler at {client} has no workers; start some with dask worker {client}."
                made.wait_for_workers(1, timeout=_PATIENCE)
            except (OSError, ValueError, TimeoutError):
                raise ConnectionError(f"dask: {wrong}") from None
            yield made
