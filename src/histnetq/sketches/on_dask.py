"""Sketches of a table's parts on the workers of a Dask cluster, added up as a tree.

Rows never leave the worker that reads them: a part comes back as its sketch. A part whose worker dies is sketched again
by another.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from histnetq.data.table_files import Part, open_part, split_files
from histnetq.data.tables import NoRowsError
from histnetq.sketches.sketch import BagSketch, SketchSum
from histnetq.sketches.tables import sketch_table

if TYPE_CHECKING:
    from distributed import Client

    from histnetq.quantifiers.base import Quantifier

_ROWS_PER_PART = 1 << 20
_ADDED_AT_ONCE = 8
_RETRIES = 3
_PATIENCE = 5  # seconds that a scheduler has to answer, and its workers to appear
_LOCAL_WORKERS = 2


def predict_dask(
    model: Quantifier, source: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", client: Client | str | None = None, progress: bool = False,
) -> tuple[NDArray, NDArray[np.float64]]:  # fmt: skip
    """Estimate the bags of files that are larger than one machine, wherever their rows stand.

    Parameters
    ----------
    model : Quantifier
        A fitted quantifier that makes sketches.
    source : path, glob or list of paths
        Parquet or CSV files, which the workers find under the same names. Parquet files with several groups of rows are
        read in parts.
    bag : str or sequence of str
        Columns that name the bags, as in `read_bags`.
    weight : str, default=None
        Column of survey weights, as in `read_bags`; None gives every row the same weight.
    missing : {"refuse", "drop", "mean"}, default="refuse"
        What is done about features without a value, as in `read_bags`.
    client : distributed.Client or str, default=None
        A client, or the address of a scheduler such as "tcp://host:8786". None and "local" start a cluster of two
        processes on this machine, for this call.
    progress : bool, default=False
        Show how many parts are done.

    Returns
    -------
    ids : array of shape (n_bags,)
        Names of the bags, in the order in which they first occur.
    prevalences : array of shape (n_bags, n_classes)
        Estimates of the bags.

    Examples
    --------
    >>> ids, prevalences = predict_dask(model, "stations/*.parquet", bag="station")  # doctest: +SKIP
    """
    found = sketch_dask(model, source, bag=bag, weight=weight, missing=missing, client=client, progress=progress)
    return found.ids, model.predict(found)  # type: ignore[return-value]


def sketch_dask(
    model: Quantifier, source: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", client: Client | str | None = None, progress: bool = False,
) -> BagSketch:  # fmt: skip
    """Make the sketch of all rows; the parameters are those of `predict_dask`."""
    model.sketch_maker()  # refused here and not by every worker
    parts = split_files(source, "source", _ROWS_PER_PART)
    keys = [bag] if isinstance(bag, str) else list(bag)
    with _connected(client) as connected:
        # As the argument of a task: where all workers that hold the model die, the scheduler has it made again.
        shared = connected.submit(pickle.loads, pickle.dumps(model), pure=False)
        submit = partial(connected.submit, retries=_RETRIES, pure=False)
        sketches = watched = [submit(_sketch_part, shared, part, keys, weight, missing) for part in parts]
        while len(sketches) > 1:
            groups = [sketches[i : i + _ADDED_AT_ONCE] for i in range(0, len(sketches), _ADDED_AT_ONCE)]
            sketches = [submit(_add_up, group) for group in groups]
        if progress:
            from distributed import as_completed

            for _ in tqdm(as_completed(watched), total=len(watched), unit="part"):
                pass
        found: BagSketch | None = sketches[0].result()
    if found is None:
        raise ValueError("source: has no rows; check the files.")
    return found


def _sketch_part(
    model: Quantifier, part: Part, keys: list[str], weight: str | None, missing: str = "refuse"
) -> BagSketch | None:
    if open_part(part).is_empty():
        return None
    try:
        return sketch_table(model, part, bag=keys, weight=weight, missing=missing, n_threads=1)
    except NoRowsError:
        return None


def _add_up(sketches: list[BagSketch | None]) -> BagSketch | None:
    found = [sketch for sketch in sketches if sketch is not None]
    return reduce(SketchSum.add, found, SketchSum()).result() if found else None


@contextlib.contextmanager
def _connected(client: Client | str | None) -> Iterator[Client]:
    """Give a client; one that was made here is closed in the end, with its cluster."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ImportError("dask: needs the package distributed; pip install 'histnetq[dask]'.") from None
    with contextlib.ExitStack() as opened:
        if client is None or client == "local":
            # Processes that are started afresh: compiled code with threads does not survive a fork.
            local = LocalCluster(
                n_workers=_LOCAL_WORKERS, threads_per_worker=1, processes=True, dashboard_address=None,
                env={"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
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
