"""The data of the LeQua challenges, from their zip archives or the folders in them."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice
from histnetq.datasets.archives import Archive
from histnetq.datasets.cache import Kept, Stamp, choose_place, keep
from histnetq.datasets.common import Dataset
from histnetq.datasets.parsing import File, columns_of, read_prevalences, read_tables
from histnetq.datasets.sources import SOURCES, Source

__all__ = ["lequa2022", "lequa2024"]

_TASKS = {2022: ("T1A", "T1B"), 2024: ("T1", "T2", "T3", "T4")}
_PARTS = ("train_dev", "test", "test_prevalences")
_SAMPLES = ("training_samples", "dev_samples", "test_samples")
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
    task : "T1A" (2 classes, bags of 250) or "T1B" (28 classes, bags of 1,000)
    data_dir : folder or zip file, optional
        A folder with ``{task}.train_dev.zip`` and, for the final score, ``{task}.test.zip`` and
        ``{task}.test_prevalences.zip``; or with ``{task}/public`` unpacked from them; or one zip file with all of it.
        Default: where ``histnetq data fetch`` puts them.
    cache_dir : folder, optional
        Where to keep what was read. Default: beside the data if that can be written, else histnetq in the user's cache
        directory.

    Returns
    -------
    Dataset
        `train` is one bag of labelled rows; the development bags are split at random, always alike, into 700 `bags` to
        learn from and 300 for `validation` (of fewer, in that proportion); `calibration` is None; `test` asks for the
        test files.

    References
    ----------
    Esuli, Moreo & Sebastiani (2022), *LeQua@CLEF2022: learning to quantify*.
    """
    return _load(2022, task, data_dir, cache_dir)


def lequa2024(
    task: str, data_dir: str | os.PathLike[str] | None = None, *, cache_dir: str | os.PathLike[str] | None = None
) -> Dataset:
    """Read a task of LeQua 2024 (Zenodo record 11661820).

    Parameters
    ----------
    task : "T1" (2 classes), "T2" (28 classes), "T3" (ordered classes) or "T4" (2 classes, covariate shift)
    data_dir, cache_dir : as in `lequa2022`

    Returns
    -------
    Dataset
        As in `lequa2022`; in T3 `train` is many bags of labelled rows.
    """
    return _load(2024, task, data_dir, cache_dir)


def _load(
    year: int, task: str, data_dir: str | os.PathLike[str] | None, cache_dir: str | os.PathLike[str] | None
) -> Dataset:
    source = SOURCES[f"lequa{year}-{check_choice('task', task, _TASKS[year])}"]
    path = (source.find() or source.places[0]) if data_dir is None else Path(data_dir)
    with ExitStack() as opened:
        found = _find(task, path, opened)
        _refuse_incomplete(found, source, path)
        columns = columns_of(found.file("dev_samples/0.txt"))
        kept = keep(
            choose_place(source.name, path, cache_dir), found.stamps, columns.count(",") + 1,
            partial(_read, found, columns, source.name),
        )  # fmt: skip
    return _assemble(source.name, kept)


@dataclass
class _Found:
    """Readers of the files by name, and the stamps of what they are read from."""

    readers: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    stamps: list[Stamp] = field(default_factory=list)

    def file(self, name: str) -> File:
        return name, self.readers[name]

    def samples(self, folder: str) -> list[File]:
        """The files of the bags in this folder, in the order of their numbers, which must be 0, 1, …"""
        n_bags = sum(name.startswith(f"{folder}/") for name in self.readers)
        names = [f"{folder}/{i}.txt" for i in range(n_bags)]
        missing = [name for name in names if name not in self.readers]
        if missing:
            raise ValueError(
                f"data_dir: {missing[0]} is missing, expected 0.txt, 1.txt and so on without a gap in {folder}; "
                "unpack or fetch the archive again."
            )
        return [self.file(name) for name in names]

    def add_folder(self, folder: Path, root: Path) -> None:
        for sub in (folder, *(folder / name for name in _SAMPLES)):
            if not sub.is_dir():
                continue
            with os.scandir(sub) as entries:
                for entry in entries:
                    name = entry.name if sub == folder else f"{sub.name}/{entry.name}"
                    if _NAME.fullmatch(name) and name not in self.readers and entry.is_file():
                        file, status = Path(entry.path), entry.stat()
                        self.readers[name] = file.read_bytes
                        self.stamps.append((file.relative_to(root).as_posix(), status.st_size, status.st_mtime_ns))

    def add_archive(self, archive: Archive, prefixes: Sequence[str]) -> None:
        for prefix in prefixes:
            inside = {name.removeprefix(prefix): name for name in archive.names if name.startswith(prefix)}
            inside = {name: member for name, member in inside.items() if _NAME.fullmatch(name)}
            if not inside:
                continue
            for name, member in inside.items():
                # Folders come first: what was unpacked is not unpacked again.
                self.readers.setdefault(name, partial(archive.read, member))
            status = archive.path.stat()
            self.stamps.append((archive.path.name, status.st_size, status.st_mtime_ns))
            return


def _find(task: str, path: Path, opened: ExitStack) -> _Found:
    found = _Found()

    def add_archive(file: Path, prefixes: Sequence[str]) -> None:
        archive = Archive(file)
        opened.callback(archive.close)
        found.add_archive(archive, prefixes)

    anywhere = (f"{task}/public/", "public/", "")
    if path.is_file():
        add_archive(path, anywhere)
        return found
    for folder in _folders(task, path):
        found.add_folder(folder, path)
    for file in (path / f"{task}.{part}.zip" for part in _PARTS):
        if file.is_file():
            add_archive(file, anywhere)
    if not found.readers and path.is_dir():
        for file in filter(zipfile.is_zipfile, sorted(path.glob("*.zip"))):
            add_archive(file, [f"{task}/public/"])
    return found


def _folders(task: str, path: Path) -> Iterator[Path]:
    """Where the unpacked files may lie; the folder of another task is not among them."""
    yield path / task / "public"
    yield from (path / f"{task}.{part}" / task / "public" for part in _PARTS)
    others = {other for tasks in _TASKS.values() for other in tasks} - {task}
    if not others & {path.name, path.parent.name if path.name == "public" else ""}:
        yield from (path / "public", path)


def _refuse_incomplete(found: _Found, source: Source, path: Path) -> None:
    names = found.readers
    by_bags = "training_data.txt" not in names and "training_samples/0.txt" in names
    training = "training_prevalences.txt" if by_bags else "training_data.txt"
    lacking = [name for name in (training, "dev_samples/0.txt", "dev_prevalences.txt") if name not in names]
    if lacking:
        raise FileNotFoundError(source.explain_missing("data_dir", path, ", ".join(lacking)))


def _read(found: _Found, columns: str, name: str, rows: BinaryIO) -> dict[str, NDArray]:
    """Write all rows, training rows first, then development and test bags; return what else is to be known."""
    from tqdm import tqdm

    whole = "training_data.txt" in found.readers
    train = [found.file("training_data.txt")] if whole else found.samples("training_samples")
    dev, test = found.samples("dev_samples"), found.samples("test_samples")
    classes = _classes(found)
    n_classes = None if classes is None else len(classes)
    arrays: dict[str, NDArray] = {}
    arrays["dev_prevalences"] = read_prevalences(found.file("dev_prevalences.txt"), len(dev), n_classes)
    n_classes = arrays["dev_prevalences"].shape[1]
    arrays["classes"] = np.arange(n_classes) if classes is None else classes
    if not whole:
        file = found.file("training_prevalences.txt")
        arrays["train_prevalences"] = read_prevalences(file, len(train), n_classes)
    if test and "test_prevalences.txt" in found.readers:
        file = found.file("test_prevalences.txt")
        arrays["test_prevalences"] = read_prevalences(file, len(test), n_classes)
    with tqdm(total=len(train) + len(dev) + len(test), desc=f"Reading {name}", unit="file", disable=None) as bar:
        arrays["train_sizes"], labels = _copy(train, f"label,{columns}", rows, bar.update)
        arrays["labels"] = _check_codes(labels, n_classes)
        arrays["dev_sizes"], _ = _copy(dev, columns, rows, bar.update)
        arrays["test_sizes"], _ = _copy(test, columns, rows, bar.update)
    return arrays


def _classes(found: _Found) -> NDArray | None:
    """The names of the classes in the order of their codes; None if the data do not name them."""
    if "label_map.txt" not in found.readers:
        return None
    lines = found.readers["label_map.txt"]().decode("utf-8", "replace").split("\n")
    pairs = [line.rsplit(None, 1) for line in lines if line.strip()]
    names = {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
    if len(names) != len(pairs) or set(names) != {str(code) for code in range(len(pairs))}:
        raise ValueError(
            f"data_dir: label_map.txt is damaged, expected a name and a code from 0 to {len(pairs) - 1} on each line; "
            "unpack or fetch it again."
        )
    return np.array([names[str(code)] for code in range(len(pairs))])


def _copy(
    files: Sequence[File], header: str, rows: BinaryIO, advance: Callable[[int], object]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Parse the files by threads, write their features in order; their sizes, and the first column if it is labels."""
    batches = [files[i : i + _TOGETHER] for i in range(0, len(files), _TOGETHER)]
    labelled = header.startswith("label,")
    sizes: list[int] = []
    labels = [np.empty(0, np.float32)]
    # The parser releases the interpreter's lock; processes would have to start, and to send the numbers back.
    n_threads = min(_MOST_THREADS, os.cpu_count() or 1)
    with ThreadPoolExecutor(n_threads) as threads:
        # Not all at once: parsed batches wait in memory until those before them are written.
        for first in range(0, len(batches), 2 * n_threads):
            for table, counts in threads.map(
                partial(read_tables, header=header), batches[first : first + 2 * n_threads]
            ):
                np.ascontiguousarray(table[:, int(labelled) :], dtype="<f4").tofile(rows)
                sizes += counts
                if labelled:
                    labels.append(table[:, 0].copy())
                advance(len(counts))
    return np.array(sizes, np.int64), np.concatenate(labels)


def _check_codes(labels: NDArray[np.float32], n_classes: int) -> NDArray[np.int64]:
    codes = labels.astype(np.int64)
    wrong = np.flatnonzero((codes != labels) | (codes < 0) | (codes >= n_classes))
    if wrong.size:
        raise ValueError(
            f"data_dir: the label of training row {wrong[0]} is {labels[wrong[0]]:g}, expected a code from 0 to "
            f"{n_classes - 1}; unpack or fetch the archive again."
        )
    return codes


def _assemble(name: str, kept: Kept) -> Dataset:
    arrays = kept.arrays
    sizes = [arrays[f"{part}_sizes"] for part in ("train", "dev", "test")]
    offsets = np.concatenate([[0], *sizes]).cumsum()
    # Bags looks for NaN in all rows; these were looked at when they were parsed, and reading them all takes long.
    stand_in = np.broadcast_to(np.int8(0), kept.rows.shape)
    every = Bags(stand_in, offsets=offsets, classes=arrays["classes"])
    every.rows = kept.rows
    first, second = len(sizes[0]), len(sizes[0]) + len(sizes[1])

    def part(bags: Bags, prevalences: str) -> Bags:
        return bags.drawn(bags.index, bags.offsets, None, arrays.get(prevalences))

    train = part(every[:first], "train_prevalences")
    train.labels = np.full(len(kept.rows), -1)
    train.labels[: len(arrays["labels"])] = arrays["labels"]
    if train.prevalences is None:
        train.prevalences = train.label_prevalences()
    bags, validation = part(every[first:second], "dev_prevalences").split(_TRAINING_FRACTION, _SPLIT_SEED)
    test = part(every[second:], "test_prevalences") if len(sizes[2]) else None
    return Dataset(name, train, bags, validation, test_bags=test)
