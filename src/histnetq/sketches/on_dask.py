"""Sketches of the parts of a table on the workers of a Dask cluster, added in a tree.

Rows never leave the worker that reads them; a worker returns only the sketch of a part. If a worker dies, another
worker sketches its part again.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from histnetq.errors import ConnectingError, Option, Way
from histnetq.sketches.sketch import BagSketch, SketchSum
from histnetq.sketches.sketcher import SketchingModel
from histnetq.sketches.tables import name_bags, sketch_numbered
from histnetq.tables.columns import Codes
from histnetq.tables.table_files import NoRowsError, Part, open_part, split_files

if TYPE_CHECKING:
    from distributed import Client

_ROWS_PER_PART = 1 << 20
_ADDED_AT_ONCE = 8
_RETRIES = 3
_PATIENCE = 5  # timeout in seconds for the scheduler to answer, and for its workers to appear
_LOCAL_WORKERS = 2
_Found = tuple[Codes, BagSketch | None]  # the bags of a part, and their sketches; ids are the codes of the bags


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
    how: dict[str, Any] = {"bag": bag, "weight": weight, "weight_kind": weight_kind, "missing": missing}
    found = sketch_dask(model, source, client=client, progress=progress, **how)
    return found.ids, model.predict(found)  # type: ignore[return-value]


def sketch_dask(
    model: SketchingModel, source: Any, *, bag: str | Sequence[str], weight: str | None = None,
    missing: str = "refuse", client: Client | str | None = None, progress: bool = False,
    weight_kind: str = "survey",
) -> BagSketch:  # fmt: skip
    """Compute the sketch of all rows; the parameters are the same as in `predict_dask`."""
    model.sketch_maker()  # a model without sketches raises its error here instead of on every worker
    parts = split_files(source, "source", _ROWS_PER_PART)
    keys = [bag] if isinstance(bag, str) else list(bag)
    with _connected(client) as connected:
        # The model is a task, so that the scheduler can create it again if all workers that hold it die.
        shared = connected.submit(pickle.loads, pickle.dumps(model), pure=False)
        submit = partial(connected.submit, retries=_RETRIES, pure=False)
        sketches = watched = [submit(_sketch_part, shared, part, keys, weight, missing, weight_kind) for part in parts]
        while len(sketches) > 1:
            groups = [sketches[i : i + _ADDED_AT_ONCE] for i in range(0, len(sketches), _ADDED_AT_ONCE)]
            sketches = [submit(_add_up, group) for group in groups]
        if progress:
            from distributed import as_completed

            for _ in tqdm(as_completed(watched), total=len(watched), unit="part"):
                pass
        bags, found = sketches[0].result()
    if not bags.place:
        raise ValueError("source: has no rows; check the files.")
    return name_bags(bags, found)


def _sketch_part(
    model: SketchingModel,
    part: Part,
    keys: list[str],
    weight: str | None,
    missing: str = "refuse",
    weight_kind: str = "survey",
) -> _Found:
    try:
        return sketch_numbered(model, open_part(part), keys, weight, missing, 1, weight_kind)
    except NoRowsError:
        return Codes(part.path, keys), None


def _add_up(parts: list[_Found]) -> _Found:
    """Add the sketches of bags with the same keys; names are set from the keys at the end, when all are known."""
    first, total = parts[0][0], SketchSum()
    bags = Codes(first.table, first.columns, any(codes.written for codes, _ in parts))
    for codes, sketch in parts:
        places = np.array([bags.place.setdefault(key, len(bags.place)) for key in codes.place], np.int64)
        if sketch is not None:
            total.add(replace(sketch, ids=places[np.asarray(sketch.ids)]))
    return bags, None if all(sketch is None for _, sketch in parts) else total.result()


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
