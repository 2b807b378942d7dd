"""Fashion-MNIST from its four IDX files."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histnetq import Bags
from histnetq.datasets import SOURCES, Examples

__all__ = ["read_fashion_mnist", "read_idx"]

_CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_PER_CLASS = {"train": 6000, "t10k": 1000}
_VALIDATION_PER_CLASS = 1000
_LARGEST = 1 << 27  # bytes of an unpacked file


def read_fashion_mnist(data_dir: str | os.PathLike[str] | None = None, *, random_state: int = 0) -> Examples:
    """Read Fashion-MNIST: 50,000 training images, 10,000 validation images and 10,000 test images, each as one bag.

    Images have the shape ``(28, 28)`` and whole numbers from 0 to 255, which take a quarter of the memory of floats.
    The networks standardise their inputs; for other classifiers, divide by 127.5 and subtract 1. By default, the four
    files are read from where ``histnetq data fetch fashion-mnist`` puts them, or else from Debian's package
    ``dataset-fashion-mnist``. They may be compressed or not. The seed splits off the validation images.

    References
    ----------
    Xiao, Rasul & Vollgraf (2017), *Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms*.
    """
    source, given = SOURCES["fashion-mnist"], None if data_dir is None else Path(data_dir)
    folder = source.find(given)
    if folder is None:
        place = given or source.places[0]
        raise source.missing("data_dir", place, source.lacking(place)[0])
    (images, labels), (test_images, test_labels) = (_read_part(folder, part) for part in _PER_CLASS)
    order = np.lexsort((np.random.default_rng(random_state).random(len(labels)), labels))
    parts = np.split(order.reshape(len(_CLASSES), -1), [_VALIDATION_PER_CLASS], axis=1)
    # Both parts share a pool, so that results per image are computed once.
    validation, train = (_labelled(images, labels, np.sort(rows, axis=None)) for rows in parts)
    return Examples("fashion-mnist", train, _labelled(test_images, test_labels), validation)


def _labelled(images: NDArray, labels: NDArray, rows: NDArray | None = None) -> Bags:
    return Bags(images, rows, labels=labels, classes=_CLASSES).with_known_prevalences()


def _read_part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    unpacked = [folder / f"{part}-{what}-ubyte" for what in ("images-idx3", "labels-idx1")]
    files = [file if file.is_file() else file.with_name(f"{file.name}.gz") for file in unpacked]
    images, labels = read_idx(files[0]), read_idx(files[1])
    each = _PER_CLASS[part]
    expected = (each * len(_CLASSES), 28, 28)
    if images.shape != expected:
        raise _damaged(files[0], f"holds an array of shape {images.shape}, expected {expected}")
    counts = np.bincount(labels.ravel(), minlength=len(_CLASSES))
    if labels.ndim != 1 or counts.tolist() != [each] * len(_CLASSES):
        found = f"holds labels of shape {labels.shape} with {counts.min()} to {counts.max()} of a class"
        raise _damaged(files[1], f"{found}, expected {each} of each of the classes 0 to {len(_CLASSES) - 1}")
    return images, labels.astype(np.int64)


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Read an array of bytes in the IDX format, with or without gzip compression."""
    path = Path(path)
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(_LARGEST)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, f"is truncated or damaged ({error})") from None
    if content[:3] != b"\0\0\x08" or content[3:4] not in (b"\1", b"\2", b"\3", b"\4"):
        expected = "expected 00 00 08 and the number of dimensions of an IDX file of bytes"
        raise _damaged(path, f"begins with {content[:4].hex(' ') or 'nothing'}, {expected}")
    start = 4 + 4 * content[3]
    shape = struct.unpack_from(f">{(min(len(content), start) - 4) // 4}I", content, 4)
    size = math.prod(shape)
    if len(shape) < content[3] or size > _LARGEST - start:
        raise _damaged(path, f"has a header for an array of shape {shape}, which is damaged")
    held = len(content) - start
    if held != size:
        amount = "more" if held > size else f"only {held:,}"
        raise _damaged(path, f"is truncated or damaged: it holds {amount} bytes, its header says {size:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _damaged(path: Path, problem: str) -> ValueError:
    return ValueError(f"data_dir: {path} {problem}; fetch it again.")
