"""Submissions to the LeQua challenges: a zip archive with one CSV file of estimates of a task's test bags."""

from __future__ import annotations

import io
import os
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.datasets.archives import Archive
from histnetq.errors import Command, MissingFileError
from histnetq.metrics import ae, macro_nmd, nmd, rae
from histnetq.simplex import first_off_simplex
from histnetq.tables.files import refuse_existing, whole_file

TASK_CLASSES = {"T1A": 2, "T1B": 28, "T1": 2, "T2": 28, "T3": 5, "T4": 2}  # numbers of classes in the published rules
TEST_BAGS = 5000  # in every task
_TOLERANCE = 1e-3  # for the sum of a row
_BYTES_OF_A_NUMBER = 40  # more than any program writes
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that the same estimates give the same file


def write_submission(path: str | os.PathLike[str], p_pred: ArrayLike, task: str, *, overwrite: bool = False) -> Path:
    """Write estimates of the test bags of a LeQua task to a zip archive that `check_submission` accepts.

    Parameters
    ----------
    path : path
        The archive.
    p_pred : (n_bags, n_classes)
        Estimates, with bags in the order of their numbers and classes in the order of their codes.
    task : {"T1A", "T1B", "T1", "T2", "T3", "T4"}
        The task, which also names the file in the archive.
    overwrite : bool, default False
        Whether to replace an existing file.

    Returns
    -------
    Path
        The archive.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_submission(f"{folder}/submission.zip", np.full((5000, 2), 0.5), "T1")
    ...     check_submission(path, "T1").shape
    (5000, 2)
    """
    import pandas as pd

    path, p = Path(path), np.asarray(p_pred, dtype=np.float64)
    check_choice("task", task, tuple(TASK_CLASSES))
    refuse_existing(path, overwrite, "path")
    if p.ndim != 2 or first_off_simplex(p, tolerance=_TOLERANCE, slack=1e-9) is not None:
        raise ValueError(
            "p_pred: expected one row of proportions that sum to 1 for each bag, "
            f"got {'other sums' if p.ndim == 2 else p.shape}; pass the result of predict."
        )
    table = pd.DataFrame(p.clip(0, 1)).rename_axis("id").to_csv(float_format="%.9g", lineterminator="\n")
    with whole_file(path, "path") as partial:
        with zipfile.ZipFile(partial, "w") as archive:
            archive.writestr(zipfile.ZipInfo(f"{task}.txt", _FIRST_DAY), table, zipfile.ZIP_DEFLATED)
        check_submission(partial, task, *p.shape)
    return path


def check_submission(
    path: str | os.PathLike[str], task: str, n_bags: int = TEST_BAGS, n_classes: int | None = None
) -> NDArray[np.float64]:
    """Check a submission by the published rules of LeQua, and return its estimates.

    The archive must contain one file ``*.txt`` or ``*.csv``, outside any folder, with the header ``id,0,…,n−1`` and one
    row per test bag: ids from 0 without gaps, and proportions from 0 to 1 whose sum is 1 ± 0.001. The archive is not
    unpacked to disk.

    Parameters
    ----------
    path : path
        The archive.
    task : {"T1A", "T1B", "T1", "T2", "T3", "T4"}
        The task.
    n_bags : int, default 5000
        Number of test bags.
    n_classes : int or None, default None
        Number of classes; by default, the number of classes of the task.

    Returns
    -------
    (n_bags, n_classes)
        The estimates in the order of the ids.

    Examples
    --------
    >>> check_submission("none.zip", "T1")
    Traceback (most recent call last):
        ...
    histnetq.errors.MissingFileError: submission: none.zip does not exist; write it with write_submission.
    """
    path = Path(path)
    n_classes = TASK_CLASSES[check_choice("task", task, tuple(TASK_CLASSES))] if n_classes is None else n_classes
    if not path.is_file():
        remedy = ("write it with ", Command("lequa submit", "write_submission"))
        raise MissingFileError("submission", problem=f"{path} does not exist", remedy=remedy)
    content = _read_only_member(path, _BYTES_OF_A_NUMBER * (n_bags + 1) * (n_classes + 1))
    header, _, body = content.partition("\n")
    expected = ",".join(["id", *map(str, range(n_classes))])
    if "".join(header.split()) != expected:
        shown = expected if n_classes < 4 else f"id,0,…,{n_classes - 1}"
        raise _refused(f"the header is {header.strip()[:40]!r}, expected {shown}", "name the columns so")
    lines = body.rstrip("\n").count("\n") + 1 if body.strip() else 0
    if lines != n_bags:
        problem = f"{lines:,} rows follow the header, expected {n_bags:,}, as many as test bags"
        raise _refused(problem, "write one for each")
    try:
        table = np.loadtxt(io.StringIO(body), delimiter=",", ndmin=2, comments=None)
    except ValueError as error:
        table, reason = np.empty((0, 0)), str(error).partition(";")[0].rstrip(".")
    else:
        reason = f"{len(table):,} rows of {table.shape[1]} numbers"
    if table.shape != (n_bags, n_classes + 1):
        raise _refused(f"{reason}, expected an id and {n_classes} numbers in each row", "write plain numbers")
    return _checked(table)


def lequa_errors(task: str, bags: Bags, p_pred: NDArray[np.float64]) -> dict[str, float]:
    """Compute the official measures of a LeQua task: macro-NMD and NMD for T3 (ordered classes), else MRAE and MAE.

    Parameters
    ----------
    task : {"T1A", "T1B", "T1", "T2", "T3", "T4"}
        The task.
    bags : Bags
        Bags with prevalences.
    p_pred : (n_bags, n_classes)
        Estimates of these bags.

    Returns
    -------
    dict of str and float
        Means over the bags. The first measure is the one that the challenge ranks by.

    Examples
    --------
    >>> bags = Bags.from_arrays([np.zeros((250, 1))], [[0.2, 0.8]])
    >>> lequa_errors("T1", bags, np.array([[0.3, 0.7]]))
    {'MRAE': 0.309..., 'MAE': 0.1...}
    """
    measures = {"macro-NMD": macro_nmd, "NMD": nmd} if task == "T3" else {"MRAE": rae, "MAE": ae}
    return {name: float(np.mean(f(bags.prevalences, p_pred, bags.sizes))) for name, f in measures.items()}


def _checked(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Check ids and proportions, and return the proportions in the order of the ids."""
    ids, wanted = table[:, 0], np.arange(len(table))
    table = table[np.argsort(ids, kind="stable")]
    wrong = np.flatnonzero(table[:, 0] != wanted)
    if wrong.size:
        at, found = wrong[0], table[wrong[0], 0]
        problem = f"the id {found:g} occurs twice" if at and found == at - 1 else f"the id {at} is missing"
        raise _refused(f"{problem}, expected the ids from 0 to {len(table) - 1} once each", "number the rows so")
    shares = table[:, 1:]
    outside = np.flatnonzero(~((shares >= 0) & (shares <= 1)).all(1))
    if outside.size:
        row = outside[0]
        value = shares[row][~((shares[row] >= 0) & (shares[row] <= 1))][0]
        raise _refused(f"the row of id {row} has the share {value:g}, expected 0 to 1", "give proportions")
    off = first_off_simplex(shares, tolerance=_TOLERANCE)
    if off is not None:
        problem = f"the row of id {off.row} sums to {off.total:.6g}, expected 1 ± {_TOLERANCE:g}"
        raise _refused(problem, "divide each row by its sum")
    return shares


def _read_only_member(path: Path, most_bytes: int) -> str:
    try:
        with closing(Archive(path)) as archive:
            if len(archive.names) != 1:
                raise _refused(f"{path} holds {len(archive.names):,} files, expected one", "pack that one alone")
            name = archive.names[0]
            if "/" in name or not name.lower().endswith((".txt", ".csv")):
                raise _refused(f"{path} holds {name[:60]!r}, expected a .txt or .csv file in no folder", "rename it")
            size = archive.size(name)
            if size > most_bytes:
                raise _refused(f"{name} declares {size:,} bytes, expected at most {most_bytes:,}", "write fewer digits")
            return archive.read(name).decode()
    except UnicodeDecodeError:
        raise _refused(f"{path} holds a file that is not text, expected comma-separated values", "write text") from None
    except ValueError as error:
        if not str(error).startswith("archive: "):
            raise
        problem = str(error).removeprefix("archive: ").rpartition("; ")[0]  # the remedy, to fetch it, does not fit here
        raise _refused(problem, "pack the file again") from None


def _refused(problem: str, way_out: str) -> ValueError:
    return ValueError(f"submission: {problem}; {way_out}.")
