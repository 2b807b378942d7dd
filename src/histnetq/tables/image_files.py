"""Decoding of image files to arrays of one size, in threads, with a cache file for each folder and size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from histnetq.kernels.cores import count_cores
from histnetq.tables.files import whole_file
from histnetq.tables.places import local_path

if TYPE_CHECKING:
    from PIL import Image

Shape = tuple[int, ...]  # shape of one image: (size, size), or (3, size, size)
ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")
_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP")  # Pillow runs external programs for some other formats
_MOST_PIXELS = 50_000_000
_MOST_BYTES = 1 << 28
_MOST_THREADS = 8
_TOGETHER = 512  # images decoded in one batch
_KEY_BYTES = 16


def decode_images(
    files: Sequence[Path], shape: Shape, cache_dir: str | os.PathLike[str] | None
) -> tuple[NDArray[np.uint8], dict[Path, str]]:
    """Return the images, (n_files, *shape), and the reason for each file that cannot be read.

    An image comes from the cache if the path, size and modification time of its file are unchanged. Files that could
    not be read are tried again.
    """
    kind = np.dtype([("key", f"V{_KEY_BYTES}"), ("pixels", np.uint8, shape)])
    place, n_files = _place(files, shape, cache_dir), len(files)
    keys = np.array([_key(file) for file in files], kind["key"])
    kept = _open(place, kind)
    where = {key: i for i, key in enumerate(kept["key"].tolist())}
    known = np.array([where.get(key, -1) for key in keys.tolist()])
    new = np.flatnonzero(known < 0)
    if len(kept) == n_files and (known[known >= 0] == np.flatnonzero(known >= 0)).all():
        failed = {files[i]: image for i, image in _decoded(files, new, shape) if isinstance(image, str)}
        if len(failed) == len(new):
            return kept["pixels"], failed

    def fill(made: NDArray) -> dict[Path, str]:
        made["key"][known >= 0] = keys[known >= 0]
        for start in range(0, n_files, _TOGETHER):  # in parts, as the images may be larger than memory
            part = known[start : start + _TOGETHER]
            made["pixels"][start : start + _TOGETHER][part >= 0] = kept["pixels"][part[part >= 0]]
        unreadable = {}
        for i, image in _decoded(files, new, shape):
            if isinstance(image, str):
                unreadable[files[i]] = image
            else:
                made["key"][i], made["pixels"][i] = keys[i], image
        return unreadable

    try:
        with whole_file(place, "cache_dir") as path:
            made: NDArray = np.lib.format.open_memmap(path, "w+", kind, (n_files,))
            unreadable = fill(made)
    except OSError as error:
        warnings.warn(f"{error} Images are decoded again next time.", UserWarning, stacklevel=3)
        made = np.zeros(n_files, kind)
        unreadable = fill(made)
    made.flags.writeable = False
    return made["pixels"], unreadable


def _decoded(files: Sequence[Path], chosen: NDArray, shape: Shape) -> Iterator[tuple[int, NDArray[np.uint8] | str]]:
    """Decode the chosen files in threads; yield the number of each with its image, or the reason why it has none."""
    with ThreadPoolExecutor(min(_MOST_THREADS, count_cores())) as threads, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large images, which are limited here, and of odd metadata
        for start in range(0, len(chosen), _TOGETHER):
            part = chosen[start : start + _TOGETHER].tolist()
            yield from zip(part, threads.map(partial(_decode, shape=shape), [files[i] for i in part]), strict=True)


def _decode(file: Path, shape: Shape) -> NDArray[np.uint8] | str:
    """Return an image of this shape, or the reason why the file cannot be read."""
    from PIL import Image, UnidentifiedImageError

    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a named pipe would wait for a writer
            return "is not a regular file"
        if status.st_size > _MOST_BYTES:
            return f"has {status.st_size:,} bytes, expected at most {_MOST_BYTES:,}"
        with Image.open(file, formats=_FORMATS) as image:
            width, height = image.size
            if width * height > _MOST_PIXELS:
                return f"has {width:,} x {height:,} pixels, expected at most {_MOST_PIXELS:,}"
            # A JPEG file is decoded at the smallest size that is large enough.
            image.draft("RGB" if len(shape) == 3 else "L", (shape[-1], shape[-1]))
            return _resized(image, shape)
    except UnidentifiedImageError:
        return "is not an image"
    except Image.DecompressionBombError:
        return f"has too many pixels, expected at most {_MOST_PIXELS:,}"
    except OSError as error:
        return str(error.strerror or error).lower().rstrip(".")
    except Exception as error:  # damaged files raise many kinds of errors in decoders
        return f"is damaged: {' '.join(str(error).split())[:80] or type(error).__name__}"


def _resized(image: Image.Image, shape: Shape) -> NDArray[np.uint8]:
    """Scale an image into a square, and fill the margins with the colour of its first pixel."""
    from PIL import Image, ImageOps

    mode = "RGB" if len(shape) == 3 else "L"
    if image.mode.startswith(("I", "F")):  # 16 bits, or fractions
        values = np.asarray(image, dtype=np.float64) / (257 if image.mode.startswith("I") else 1)
        image = Image.fromarray(values.clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        whole = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    plain = image.convert(mode)
    side = shape[-1]
    first: Any = plain.getpixel((0, 0))
    square = ImageOps.pad(plain, (side, side), Image.Resampling.BILINEAR, color=first)
    pixels = np.asarray(square, dtype=np.uint8)
    return pixels.transpose(2, 0, 1) if mode == "RGB" else pixels


def _key(file: Path) -> bytes:
    """Return a hash of a file's path, size and modification time, so that a changed file gets another key."""
    try:
        status = file.stat()
        stamp = f"{status.st_size} {status.st_mtime_ns}"
    except OSError:
        stamp = "missing"
    return hashlib.blake2b(os.fsencode(f"{os.path.abspath(file)}\n{stamp}"), digest_size=_KEY_BYTES).digest()


def _place(files: Sequence[Path], shape: Shape, cache_dir: str | os.PathLike[str] | None) -> Path:
    """Return the path of the cache file for images of this shape in these folders."""
    if cache_dir is None:
        cache_dir = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "histnetq" / "images"
    roots = sorted({os.path.dirname(os.path.abspath(file)) for file in files})
    root = os.path.commonpath(roots)
    digest = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
    return local_path(cache_dir, "cache_dir") / f"{digest}-{'x'.join(map(str, shape))}.npy"


def _open(place: Path, kind: np.dtype) -> NDArray:
    """Return the cached images, or an empty array if the cache file is missing, damaged or of another type."""
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept: NDArray = np.load(place, mmap_mode="r", allow_pickle=False)
        if kept.dtype == kind and kept.ndim == 1:
            return kept
    return np.empty(0, kind)
