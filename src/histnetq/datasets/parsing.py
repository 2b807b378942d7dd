"""Comma-separated numbers under a header → arrays, many small files at a time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["File", "columns_of", "read_prevalences", "read_tables"]

File = tuple[str, Callable[[], bytes]]  # its name, for messages, and a function that reads it
_TOLERANCE = 1e-3


def columns_of(file: File) -> str:
    """The header of a file of unlabelled rows, which must be ``0,1,…``"""
    name, read = file
    header = _split(read())[0]
    names = header.split(",")
    if names != [str(i) for i in range(len(names))]:
        raise ValueError(
            f"data_dir: {name} begins with {_short(header)}, expected the header 0,1,2,…; unpack or fetch it again."
        )
    return header


def read_tables(files: Sequence[File], header: str) -> tuple[NDArray[np.float32], list[int]]:
    """All rows of several files with the same header, one file after the other, and the number of rows of each.

    Files are parsed together, as most of the time of a small one goes into setting up its columns.

    Examples
    --------
    >>> files = [("a", lambda: b"0,1\\n1,2\\n3,4\\n"), ("b", lambda: b"0,1\\n5,6")]
    >>> read_tables(files, "0,1")
    (array([[1., 2.], [3., 4.], [5., 6.]], dtype=float32), [2, 1])
    """
    contents = [read() for _, read in files]
    try:
        return _parse(contents, header)
    except ValueError:
        for (name, _), content in zip(files, contents, strict=True):
            try:
                _parse([content], header)
            except ValueError as error:
                raise ValueError(
                    f"data_dir: {name} is damaged ({_short(str(error))}), expected rows of finite numbers with commas "
                    f"between, under the header {_short(header)}; unpack or fetch it again."
                ) from None
        raise


def _parse(contents: Sequence[bytes], header: str) -> tuple[NDArray[np.float32], list[int]]:
    import pandas as pd

    bodies, sizes = [], []
    for content in contents:
        found, body = _split(content)
        if found != header:
            raise ValueError(f"the header is {_short(found)}")
        if not body:
            raise ValueError("no rows")
        bodies.append(body)
        sizes.append(body.count(b"\n") + 1)
    frame = pd.read_csv(
        io.BytesIO(b"\n".join(bodies)), header=None, dtype=np.float32, low_memory=False, skip_blank_lines=False
    )
    table = np.ascontiguousarray(frame.to_numpy())
    if table.shape != (sum(sizes), header.count(",") + 1):
        raise ValueError(f"{table.shape[1]} columns in {len(table)} rows of {sum(sizes)} lines")
    if not np.isfinite(table).all():
        raise ValueError(f"row {np.flatnonzero(~np.isfinite(table).all(1))[0]} has a missing or infinite number")
    return table, sizes


def read_prevalences(file: File, n_bags: int, n_classes: int | None) -> NDArray[np.float64]:
    """``(n_bags, n_classes)``: the rows of ``id,0,1,…`` in the order of their ids, which must be 0, 1, …

    Examples
    --------
    >>> read_prevalences(("p", lambda: b"id,0,1\\n1,0.5,0.5\\n0,0.25,0.75\\n"), 2, 2)
    array([[0.25, 0.75], [0.5 , 0.5 ]])
    """
    name, read = file
    try:
        header, body = _split(read())
        if not re.fullmatch(r"id(,\d+){2,}", header):
            raise ValueError(f"the header is {_short(header)}")
        table = np.loadtxt(io.BytesIO(body), delimiter=",", ndmin=2)
        if table.shape[1] != header.count(",") + 1 or (n_classes is not None and table.shape[1] != n_classes + 1):
            raise ValueError(f"{table.shape[1] - 1} classes")
    except ValueError as error:
        raise ValueError(
            f"data_dir: {name} is damaged ({_short(str(error))}), expected the header id,0,1,… and a row for each bag "
            f"with {n_classes or 'its'} proportions; unpack or fetch it again."
        ) from None
    table = table[np.argsort(table[:, 0])]
    if not np.array_equal(table[:, 0], np.arange(n_bags)):
        raise ValueError(
            f"data_dir: {name} has {len(table)} ids from {table[0, 0]:g} to {table[-1, 0]:g}, expected 0 to "
            f"{n_bags - 1} once each, one for each file of a bag; unpack or fetch it again."
        )
    sums = table[:, 1:].sum(1)
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= _TOLERANCE) | (table[:, 1:] < 0).any(1))
    if wrong.size:
        raise ValueError(
            f"data_dir: {name}: the row of id {wrong[0]} sums to {sums[wrong[0]]:.4g} or has a negative number, "
            f"expected proportions that sum to 1 ± {_TOLERANCE:g}; unpack or fetch it again."
        )
    return table[:, 1:] / sums[:, None]


def _split(content: bytes) -> tuple[str, bytes]:
    """The header and the rest, without line ends at the end."""
    header, _, body = content.partition(b"\n")
    return header.decode("utf-8", "replace").strip(), body.rstrip()


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 3 :]}"
