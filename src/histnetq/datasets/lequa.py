"""Readers of the LeQua challenges, from their zip archives or from unpacked folders."""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_choice
from histnetq.datasets.archives import Archive
from histnetq.datasets.cache import Arrays, choose_place, keep
from histnetq.datasets.dataset import Dataset
from histnetq.datasets.sources import SOURCES, MaybePath
from histnetq.kernels.cores import count_cores
from histnetq.simplex import first_off_simplex

File = tuple[str, Callable[[], bytes]]  # a name for messages, and a function that returns the content
_TASKS = {2022: ("T1A", "T1B"), 2024: ("T1", "T2", "T3", "T4")}
_PARTS = ("training", "dev", "test")
_NAME = re.compile(r"(training_data|label_map|(training|dev|test)_(prevalences|samples/(0|[1-9]\d*)))\.txt")
_TOGETHER = 16  # files parsed at a time
_MOST_THREADS = 8
_TRAINING_FRACTION, _SPLIT_SEED = 0.7, 0
_TOLERANCE = 1e-3


def lequa2022(task: str, data_dir: MaybePath = None, *, cache_dir: MaybePath = None) -> Dataset:
    """Read a task of LeQua 2022 (Zenodo record 6546188).

    The first call parses the text files and caches the rows; later calls memory-map the cache.

    Parameters
    ----------
    task : {"T1A", "T1B"}
        T1A has 2 classes and bags of 250 rows, T1B has 28 classes and bags of 1,000.
    data_dir : path or None, default None
        A folder with ``{task}.train_dev.zip`` and, for the final score, ``{task}.test.zip`` and
        ``{task}.test_prevalences.zip``; or a folder with the unpacked ``{task}/public``; or one zip file with all
        files. By default, the folder that ``histnetq data fetch`` writes to.
    cache_dir : path or None, default None
        Cache folder. By default, it is next to the data if possible, else in the user's cache directory.

    Returns
    -------
    Dataset
        `train` is one bag of labelled rows. The 1,000 development bags are split into 700 training `bags` and 300
        `validation` bags, in the same way at every call. `calibration` is None. `test` needs the test files.

    References
    ----------
    Esuli, Moreo & Sebastiani (2022), *LeQua@CLEF2022: learning to quantify*.

    Examples
    --------
    >>> lequa2022("T1A", "no/such/directory")
    Traceback (most recent call last):
        ...
    histnetq.errors.MissingFileError: data_dir: no/such/directory lacks training_data.txt, dev_samples/0.txt, ...
    """
    return _load(2022, task, data_dir, cache_dir)


def lequa2024(task: str, data_dir: MaybePath = None, *, cache_dir: MaybePath = None) -> Dataset:
    """Read a task of LeQua 2024 (Zenodo record 11661820).

    Parameters
    ----------
    task : {"T1", "T2", "T3", "T4"}
        T1 has 2 classes, T2 has 28, T3 has ordered classes, and T4 has 2 classes under covariate shift.
    data_dir : path or None, default None
        Folder or zip file of the data, as in `lequa2022`.
    cache_dir : path or None, default None
        Cache folder, as in `lequa2022`.

    Returns
    -------
    Dataset
        The same parts as for `lequa2022`, except that `train` of T3 has many bags of labelled rows.

    Examples
    --------
    >>> lequa2024("T1A")
    Traceback (most recent call last):
        ...
    histnetq.errors.InputError: task: expected one of 'T1', 'T2', 'T3', 'T4', got 'T1A'; perhaps you mean 'T1'.
    """
    return _load(2024, task, data_dir, cache_dir)


def read_lequa(task: str, data_dir: MaybePath = None, *, cache_dir: MaybePath = None) -> Dataset:
    """Read a task of LeQua 2022 or 2024, which have different task names.

    Parameters
    ----------
    task : {"T1A", "T1B", "T1", "T2", "T3", "T4"}
        The task.
    data_dir : path or None, default None
        Folder or zip file of the data, as in `lequa2022`.
    cache_dir : path or None, default None
        Cache folder, as in `lequa2022`.

    Returns
    -------
    Dataset
        The data set, as returned by `lequa2022` or `lequa2024`.

    Examples
    --------
    >>> read_lequa("T5")
    Traceback (most recent call last):
        ...
    histnetq.errors.InputError: task: expected one of 'T1A', 'T1B', 'T1', 'T2', 'T3', 'T4', got 'T5'.
    """
    years = {name: year for year, names in _TASKS.items() for name in names}
    return _load(years[check_choice("task", task, tuple(years))], task, data_dir, cache_dir)


def _load(year: int, task: str, data_dir: MaybePath, cache_dir: MaybePath) -> Dataset:
    source = SOURCES[f"lequa{year}-{check_choice('task', task, _TASKS[year])}"]
    path = (source.find() or source.places[0]) if data_dir is None else Path(data_dir)
    with ExitStack() as opened:
        files, origins = _find(task, path, opened)
        by_bags = "training_data.txt" not in files and "training_samples/0.txt" in files
        training = "training_prevalences.txt" if by_bags else "training_data.txt"
        lacking = [name for name in (training, "dev_samples/0.txt", "dev_prevalences.txt") if name not in files]
        if lacking:
            raise source.missing("data_dir", path, ", ".join(lacking))
        columns = _columns(files["dev_samples/0.txt"])
        place, fill = choose_place(source.name, path, cache_dir), partial(_read, files, columns, source.name)
        rows, arrays = keep(place, path, origins, columns.count(",") + 1, fill)
    return _assemble(source.name, rows, arrays)


def _find(task: str, path: Path, opened: ExitStack) -> tuple[dict[str, File], list[Path]]:
    """Return the task's files by name, and the paths that they are read from; unpacked files take precedence."""
    files: dict[str, File] = {}
    origins = []
    parts = [f"{task}.{part}" for part in ("train_dev", "test", "test_prevalences")]
    folders = [path / task / "public", *(path / part / task / "public" for part in parts)]
    others = {other for tasks in _TASKS.values() for other in tasks} - {task}
    if not others & {path.name, path.parent.name if path.name == "public" else ""}:
        folders += [path / "public", path]  # unless it is the folder of another task
    for folder in folders:
        for file in (*folder.glob("*.txt"), *folder.glob("*_samples/*.txt")):
            name = file.relative_to(folder).as_posix()
            if _NAME.fullmatch(name):
                files.setdefault(name, (name, file.read_bytes))
                origins.append(file)
    archives = [file for file in (path, *(path / f"{part}.zip" for part in parts)) if file.is_file()]
    prefixes = [f"{task}/public/", "public/", ""]
    if not files and not archives:
        archives, prefixes = [*filter(zipfile.is_zipfile, sorted(path.glob("*.zip")))], prefixes[:1]
    for file in archives:
        archive = opened.enter_context(closing(Archive(file)))
        for prefix, member in itertools.product(prefixes, archive.names):
            name = member.removeprefix(prefix)
            if member.startswith(prefix) and _NAME.fullmatch(name):
                files.setdefault(name, (name, partial(archive.read, member)))
    return files, [*origins, *archives]


def _read(files: dict[str, File], columns: str, name: str, rows: BinaryIO) -> Arrays:
    """Write all rows (training rows, then development and test bags), and return their labels, sizes and classes."""
    from tqdm import tqdm

    whole = "training_data.txt" in files
    parts = {part: _samples(files, part) for part in _PARTS}
    if whole:
        parts["training"] = [files["training_data.txt"]]
    classes = _classes(files)
    n_classes = None if classes is None else len(classes)
    arrays: Arrays = {}
    for part in ("dev", "test") if whole else ("dev", "training", "test"):
        file = files.get(f"{part}_prevalences.txt")
        if parts[part] and file is not None:
            arrays[f"{part}_prevalences"] = read_prevalences(file, len(parts[part]), n_classes)
            n_classes = arrays[f"{part}_prevalences"].shape[1]
    assert n_classes is not None
    arrays["classes"] = np.arange(n_classes) if classes is None else classes
    with tqdm(total=sum(map(len, parts.values())), desc=f"Reading {name}", unit="file", disable=None) as bar:
        arrays["training_sizes"], labels = _copy(parts["training"], f"label,{columns}", rows, bar.update)
        arrays["labels"] = codes = labels.astype(np.int64)
        wrong = np.flatnonzero((codes != labels) | (codes < 0) | (codes >= n_classes))
        if wrong.size:
            found = f"the label of training row {wrong[0]} is {labels[wrong[0]]:g}"
            raise _damaged(f"{found}, expected a code from 0 to {n_classes - 1}", "the archive")
        for part in ("dev", "test"):
            arrays[f"{part}_sizes"], _ = _copy(parts[part], columns, rows, bar.update)
    return arrays


def _samples(files: dict[str, File], part: str) -> list[File]:
    """Return the files of the bags of a part in the order of their numbers, which must be 0, 1, …"""
    folder = f"{part}_samples"
    names = [f"{folder}/{i}.txt" for i in range(sum(name.startswith(f"{folder}/") for name in files))]
    missing = [name for name in names if name not in files]
    if missing:
        problem = f"{missing[0]} is missing, expected 0.txt, 1.txt and so on without a gap in {folder}"
        raise _damaged(problem, "the archive")
    return [files[name] for name in names]


def _classes(files: dict[str, File]) -> NDArray | None:
    """Return the class names in the order of their codes; None if there is no label map."""
    if "label_map.txt" not in files:
        return None
    lines = files["label_map.txt"][1]().decode("utf-8", "replace").split("\n")
    pairs = [line.rsplit(None, 1) for line in lines if line.strip()]
    names = {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
    codes = [str(code) for code in range(len(pairs))]
    if sorted(names) != sorted(codes):
        raise _damaged(f"label_map.txt is damaged, expected a name and a code from 0 to {len(pairs) - 1} on each line")
    return np.array([names[code] for code in codes])


def _copy(
    files: Sequence[File], header: str, rows: BinaryIO, advance: Callable[[int], object]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Parse the files in threads and write their features in order; return their sizes and their first column."""
    batches = [files[i : i + _TOGETHER] for i in range(0, len(files), _TOGETHER)]
    n_labels = int(header.startswith("label,"))
    sizes: list[int] = []
    first_column = [np.empty(0, np.float32)]
    # The parser releases the interpreter's lock, so threads avoid the costs of starting and feeding processes.
    n_threads = min(_MOST_THREADS, count_cores())
    with ThreadPoolExecutor(n_threads) as threads:
        # Only a few at once, because parsed batches wait in memory until earlier batches are written.
        for i in range(0, len(batches), 2 * n_threads):
            for table, counts in threads.map(partial(read_tables, header=header), batches[i : i + 2 * n_threads]):
                np.ascontiguousarray(table[:, n_labels:], dtype="<f4").tofile(rows)
                sizes += counts
                first_column.append(table[:, 0].copy())
                advance(len(counts))
    return np.array(sizes, np.int64), np.concatenate(first_column)


def _assemble(name: str, rows: NDArray[np.float32], arrays: Arrays) -> Dataset:
    labels = np.full(len(rows), -1)
    labels[: len(arrays["labels"])] = arrays["labels"]
    parts, start = {}, 0
    for part in _PARTS:
        offsets = np.concatenate([[0], arrays[f"{part}_sizes"]]).cumsum()
        # Rows and prevalences were checked when they were parsed; checking all rows again would take long.
        parts[part] = Bags.trusted(
            rows,
            np.arange(start, start + offsets[-1]),
            offsets,
            prevalences=arrays.get(f"{part}_prevalences"),
            classes=arrays["classes"],
            labels=labels if part == "training" else None,
        )
        start += offsets[-1]
    bags, validation = parts["dev"].split(_TRAINING_FRACTION, _SPLIT_SEED)
    test = parts["test"] if len(parts["test"]) else None
    return Dataset(name, parts["training"].with_known_prevalences(), bags, validation, test_bags=test)


def _columns(file: File) -> str:
    """Return the header of a file of unlabelled rows, which must be ``0,1,…``"""
    header = _split(file[1]())[0]
    if header != ",".join(map(str, range(header.count(",") + 1))):
        raise _damaged(f"{file[0]} begins with {_short(header)}, expected the header 0,1,2,…")
    return header


def read_tables(files: Sequence[File], header: str) -> tuple[NDArray[np.float32], list[int]]:
    """Read the rows of several files with the same header, and count the rows of each file.

    Files are parsed together, because the time for a small file is mostly overhead per column.

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
                expected = f"expected rows of finite numbers separated by commas, under the header {_short(header)}"
                raise _damaged(f"{name} is damaged ({_short(str(error))}), {expected}") from None
        raise


def _parse(contents: Sequence[bytes], header: str) -> tuple[NDArray[np.float32], list[int]]:
    import pandas as pd

    bodies = []
    for content in contents:
        found, body = _split(content)
        if found != header:
            raise ValueError(f"the header is {_short(found)}")
        if not body:
            raise ValueError("no rows")
        bodies.append(body)
    sizes, text = [body.count(b"\n") + 1 for body in bodies], io.BytesIO(b"\n".join(bodies))
    frame = pd.read_csv(text, header=None, dtype=np.float32, low_memory=False, skip_blank_lines=False)
    table = np.ascontiguousarray(frame.to_numpy())
    if table.shape != (sum(sizes), header.count(",") + 1):
        raise ValueError(f"{table.shape[1]} columns in {len(table)} rows of {sum(sizes)} lines")
    if not np.isfinite(table).all():
        raise ValueError(f"row {np.flatnonzero(~np.isfinite(table).all(1))[0]} has a missing or infinite number")
    return table, sizes


def read_prevalences(file: File, n_bags: int, n_classes: int | None) -> NDArray[np.float64]:
    """Read prevalences ``(n_bags, n_classes)`` from a table ``id,0,1,…``, in the order of its ids 0, 1, …

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
        expected = f"expected the header id,0,1,… and a row for each bag with {n_classes or 'its'} proportions"
        raise _damaged(f"{name} is damaged ({_short(str(error))}), {expected}") from None
    table = table[np.argsort(table[:, 0])]
    if not np.array_equal(table[:, 0], np.arange(n_bags)):
        found = f"{len(table)} ids from {table[0, 0]:g} to {table[-1, 0]:g}"
        raise _damaged(f"{name} has {found}, expected 0 to {n_bags - 1} once each, one for each file of a bag")
    wrong = first_off_simplex(table[:, 1:], tolerance=_TOLERANCE)
    if wrong is not None:
        found = f"the row of id {wrong.row} sums to {wrong.total:.4g} or has a negative number"
        raise _damaged(f"{name}: {found}, expected proportions that sum to 1 ± {_TOLERANCE:g}")
    return table[:, 1:] / table[:, 1:].sum(1, keepdims=True)


def _split(content: bytes) -> tuple[str, bytes]:
    """Split a file into its header and its rows, without line ends at the end."""
    header, _, body = content.partition(b"\n")
    return header.decode("utf-8", "replace").strip(), body.rstrip()


def _short(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 3 :]}"


def _damaged(problem: str, what: str = "it") -> ValueError:
    return ValueError(f"data_dir: {problem}; unpack or fetch {what} again.")
