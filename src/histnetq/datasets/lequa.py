"""The data of the LeQua challenges, from their zip archives or the folders in them."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice
from histnetq.datasets.archives import Archive
from histnetq.datasets.cache import Stamp, choose_place, keep
from histnetq.datasets.dataset import Dataset
from histnetq.datasets.parsing import File, columns_of, read_prevalences, read_tables
from histnetq.datasets.sources import SOURCES

__all__ = ["lequa2022", "lequa2024"]

_TASKS = {2022: ("T1A", "T1B"), 2024: ("T1", "T2", "T3", "T4")}
_PARTS = ("training", "dev", "test")
_NAME = re.compile(
    r"(training_data|label_map|(training|dev|test)_prevalences)\.txt|(training|dev|test)_samples/(0|[1-9]\d*)\.txt"
)
_TOGETHER = 16  # files parsed at a time
_MOST_THREADS = 8
_TRAINING_FRACTION, _SPLIT_SEED = 0.7, 0


def lequa2022(
    task: str, data_dir: str | os.PathLike[str] | None = None, *, cache_dir: str | os.PathLike[str] | None = None
) -> Dataset:
    """Read a task of LeQua 2022 (Zenodo record 6546188).

    The first time the text is parsed, with a progress bar on a terminal; what was read is kept and memory-mapped later.

    Parameters
    ----------
    task : {"T1A", "T1B"}
        T1A has 2 classes and bags of 250 rows, T1B has 28 classes and bags of 1,000.
    data_dir : path or None, default None
        A folder with ``{task}.train_dev.zip`` and, for the final score, ``{task}.test.zip`` and
        ``{task}.test_prevalences.zip``; or with ``{task}/public`` unpacked from them; or one zip file with all of it.
        By default it is the folder where ``histnetq data fetch`` puts them.
    cache_dir : path or None, default None
        Folder in which to keep what was read. By default it is beside the data if that can be written, else histnetq in
        the user's cache directory.

    Returns
    -------
    Dataset
        `train` is one bag of labelled rows; the development bags are split at random, always alike, into 700 `bags` to
        learn from and 300 for `validation` (of fewer, in that proportion); `calibration` is None; `test` asks for the
        test files.

    References
    ----------
    Esuli, Moreo & Sebastiani (2022), *LeQua@CLEF2022: learning to quantify*.

    Examples
    --------
    >>> lequa2022("T1A", "no/such/directory")
    Traceback (most recent call last):
        ...
    FileNotFoundError: data_dir: no/such/directory lacks training_data.txt, dev_samples/0.txt, ...
    """
    return _load(2022, task, data_dir, cache_dir)


def lequa2024(
    task: str, data_dir: str | os.PathLike[str] | None = None, *, cache_dir: str | os.PathLike[str] | None = None
) -> Dataset:
    """Read a task of LeQua 2024 (Zenodo record 11661820).

    Parameters
    ----------
    task : {"T1", "T2", "T3", "T4"}
        T1 has 2 classes, T2 has 28, T3 has ordered classes, and T4 has 2 under covariate shift.
    data_dir : path or None, default None
        The data, as in `lequa2022`.
    cache_dir : path or None, default None
        Folder in which to keep what was read, as in `lequa2022`.

    Returns
    -------
    Dataset
        The parts are those of `lequa2022`; in T3 `train` is many bags of labelled rows.

    Examples
    --------
    >>> lequa2024("T1A")
    Traceback (most recent call last):
        ...
    ValueError: task: expected one of 'T1', 'T2', 'T3', 'T4', got 'T1A'.
    """
    return _load(2024, task, data_dir, cache_dir)


def _load(
    year: int, task: str, data_dir: str | os.PathLike[str] | None, cache_dir: str | os.PathLike[str] | None
) -> Dataset:
    source = SOURCES[f"lequa{year}-{check_choice('task', task, _TASKS[year])}"]
    path = (source.find() or source.places[0]) if data_dir is None else Path(data_dir)
    with ExitStack() as opened:
        found = _find(task, path, opened)
        by_bags = "training_data.txt" not in found.readers and "training_samples/0.txt" in found.readers
        needed = (
            "training_prevalences.txt" if by_bags else "training_data.txt",
            "dev_samples/0.txt",
            "dev_prevalences.txt",
        )
        lacking = [name for name in needed if name not in found.readers]
        if lacking:
            raise FileNotFoundError(source.explain_missing("data_dir", path, ", ".join(lacking)))
        columns = columns_of(found.file("dev_samples/0.txt"))
        rows, arrays = keep(
            choose_place(source.name, path, cache_dir), found.stamps, columns.count(",") + 1,
            partial(_read, found, columns, source.name),
        )  # fmt: skip
    return _assemble(source.name, rows, arrays)


@dataclass
class _Found:
    """Readers of the files by name, and the stamps of what they are read from."""

    opened: ExitStack
    readers: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    stamps: list[Stamp] = field(default_factory=list)

    def file(self, name: str) -> File:
        return name, self.readers[name]

    def samples(self, part: str) -> list[File]:
        """Return the files of the bags of this part in the order of their numbers, which must be 0, 1, …"""
        folder = f"{part}_samples"
        names = [f"{folder}/{i}.txt" for i in range(sum(name.startswith(f"{folder}/") for name in self.readers))]
        missing = [name for name in names if name not in self.readers]
        if missing:
            raise ValueError(
                f"data_dir: {missing[0]} is missing, expected 0.txt, 1.txt and so on without a gap in {folder}; "
                "unpack or fetch the archive again."
            )
        return [self.file(name) for name in names]

    def add_folder(self, folder: Path, root: Path) -> None:
        for file in (*folder.glob("*.txt"), *folder.glob("*_samples/*.txt")):
            name = file.relative_to(folder).as_posix()
            if _NAME.fullmatch(name) and name not in self.readers and file.is_file():
                self.readers[name] = file.read_bytes
                self._stamp(file, root)

    def add_archive(self, file: Path, prefixes: Sequence[str]) -> None:
        """Add the files under the first of the prefixes that holds any; what was unpacked is not unpacked again."""
        archive = self.opened.enter_context(closing(Archive(file)))
        for prefix in prefixes:
            inside = [n for n in archive.names if n.startswith(prefix) and _NAME.fullmatch(n.removeprefix(prefix))]
            for member in inside:
                self.readers.setdefault(member.removeprefix(prefix), partial(archive.read, member))
            if inside:
                self._stamp(file, file.parent)
                return

    def _stamp(self, file: Path, root: Path) -> None:
        status = file.stat()
        self.stamps.append((file.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns))


def _find(task: str, path: Path, opened: ExitStack) -> _Found:
    found, anywhere = _Found(opened), (f"{task}/public/", "public/", "")
    if path.is_file():
        found.add_archive(path, anywhere)
        return found
    archives = [f"{task}.{part}" for part in ("train_dev", "test", "test_prevalences")]
    folders = [path / task / "public", *(path / name / task / "public" for name in archives)]
    # The folder of another task is not looked into.
    others = {other for tasks in _TASKS.values() for other in tasks} - {task}
    if not others & {path.name, path.parent.name if path.name == "public" else ""}:
        folders += [path / "public", path]
    for folder in folders:
        found.add_folder(folder, path)
    for file in (path / f"{name}.zip" for name in archives):
        if file.is_file():
            found.add_archive(file, anywhere)
    if not found.readers:
        for file in filter(zipfile.is_zipfile, sorted(path.glob("*.zip"))):
            found.add_archive(file, anywhere[:1])
    return found


def _read(found: _Found, columns: str, name: str, rows: BinaryIO) -> dict[str, NDArray]:
    """Write all rows, training rows first, then development and test bags; return what else is to be known."""
    from tqdm import tqdm

    whole = "training_data.txt" in found.readers
    files = {part: found.samples(part) for part in _PARTS}
    if whole:
        files["training"] = [found.file("training_data.txt")]
    classes = _classes(found)
    n_classes = None if classes is None else len(classes)
    arrays: dict[str, NDArray] = {}
    for part in ("dev", "test") if whole else ("dev", "training", "test"):
        prevalences = f"{part}_prevalences"
        if files[part] and f"{prevalences}.txt" in found.readers:
            file = found.file(f"{prevalences}.txt")
            arrays[prevalences] = read_prevalences(file, len(files[part]), n_classes)
            n_classes = arrays[prevalences].shape[1]
    assert n_classes is not None
    arrays["classes"] = np.arange(n_classes) if classes is None else classes
    with tqdm(total=sum(map(len, files.values())), desc=f"Reading {name}", unit="file", disable=None) as bar:
        arrays["training_sizes"], labels = _copy(files["training"], f"label,{columns}", rows, bar.update)
        arrays["labels"] = _check_codes(labels, n_classes)
        for part in ("dev", "test"):
            arrays[f"{part}_sizes"], _ = _copy(files[part], columns, rows, bar.update)
    return arrays


def _classes(found: _Found) -> NDArray | None:
    """Return the names of the classes in the order of their codes; None if the data do not name them."""
    if "label_map.txt" not in found.readers:
        return None
    lines = found.readers["label_map.txt"]().decode("utf-8", "replace").split("\n")
    pairs = [line.rsplit(None, 1) for line in lines if line.strip()]
    names = {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
    codes = [str(code) for code in range(len(pairs))]
    if sorted(names) != sorted(codes):
        raise ValueError(
            f"data_dir: label_map.txt is damaged, expected a name and a code from 0 to {len(pairs) - 1} on each line; "
            "unpack or fetch it again."
        )
    return np.array([names[code] for code in codes])


def _copy(
    files: Sequence[File], header: str, rows: BinaryIO, advance: Callable[[int], object]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Parse the files by threads and write their features in order; return their sizes, and their first column."""
    batches = [files[i : i + _TOGETHER] for i in range(0, len(files), _TOGETHER)]
    labelled = int(header.startswith("label,"))
    sizes: list[int] = []
    first_column = [np.empty(0, np.float32)]
    # The parser releases the interpreter's lock; processes would have to start, and to send the numbers back.
    n_threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(n_threads) as threads:
        # Not all at once: parsed batches wait in memory until those before them are written.
        for i in range(0, len(batches), 2 * n_threads):
            for table, counts in threads.map(partial(read_tables, header=header), batches[i : i + 2 * n_threads]):
                np.ascontiguousarray(table[:, labelled:], dtype="<f4").tofile(rows)
                sizes += counts
                first_column.append(table[:, 0].copy())
                advance(len(counts))
    return np.array(sizes, np.int64), np.concatenate(first_column)


def _check_codes(labels: NDArray[np.float32], n_classes: int) -> NDArray[np.int64]:
    codes = labels.astype(np.int64)
    wrong = np.flatnonzero((codes != labels) | (codes < 0) | (codes >= n_classes))
    if wrong.size:
        raise ValueError(
            f"data_dir: the label of training row {wrong[0]} is {labels[wrong[0]]:g}, expected a code from 0 to "
            f"{n_classes - 1}; unpack or fetch the archive again."
        )
    return codes


def _assemble(name: str, rows: NDArray[np.float32], arrays: dict[str, NDArray]) -> Dataset:
    labels = np.full(len(rows), -1)
    labels[: len(arrays["labels"])] = arrays["labels"]
    parts, start = {}, 0
    for part in _PARTS:
        offsets = np.concatenate([[0], arrays[f"{part}_sizes"]]).cumsum()
        # Rows and prevalences were checked when they were parsed; to look through all rows again takes long.
        parts[part] = Bags.trusted(
            rows, np.arange(start, start + offsets[-1]), offsets, prevalences=arrays.get(f"{part}_prevalences"),
            classes=arrays["classes"], labels=labels if part == "training" else None,
        )  # fmt: skip
        start += offsets[-1]
    bags, validation = parts["dev"].split(_TRAINING_FRACTION, _SPLIT_SEED)
    test = parts["test"] if len(parts["test"]) else None
    return Dataset(name, parts["training"].with_known_prevalences(), bags, validation, test_bags=test)
