"""`read_images`: bags of images from folders or from a table exported by EcoTaxa."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from histnetq.bags.bags import Bags
from histnetq.bags.indexing import offsets_of
from histnetq.errors import InputError, Option, Way
from histnetq.tables.columns import Codes
from histnetq.tables.files import refuse_same
from histnetq.tables.image_files import ENDINGS, Shape, decode_images
from histnetq.tables.places import local_path
from histnetq.tables.proportions import order_classes, read_prevalences

ECOTAXA_LABEL = "object_annotation_category"
_STATUS, _FILE, _OBJECT = "object_annotation_status", "img_file_name", "object_id"
_RANK, _SAMPLE = "img_rank", "sample_id"
_LARGEST_TABLE = 1 << 30  # bytes
_SIZES = range(4, 1025)
_NAMED = 3  # files that a message names

Name = str | Callable[[Path], str] | None


class Listed(NamedTuple):
    """Image files with the name of the bag and, if known, of the class of each."""

    name: str
    key: str  # the column of the bags
    files: list[Path]
    bags: list[str]
    labels: list[str] | None


def read_images(
    source: Any,
    *,
    bag: Name = None,
    label: Name = None,
    prevalences: Any = None,
    counts: bool = False,
    classes: Sequence[Any] | None = None,
    size: int = 32,
    color: bool = False,
    skip_unreadable: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Bags:
    """Read bags of images from files; decoded images are scaled to one size and cached.

    Parameters
    ----------
    source : path, glob, or list of these
        A folder with one folder of images per bag, a pattern of files such as ``"scans/*/*.png"``, or a table
        ``*.tsv`` that EcoTaxa exported, in the same folder as its images.
    bag : str or callable, optional
        A function that returns the bag of a file, or the name of the bag column in the table of prevalences. By
        default, the bag is the folder of an image, and its column is called "folder". For an EcoTaxa table, `bag` is
        the column of the bags, by default "sample_id".
    label : str or callable, optional
        A function that returns the class of a file. With any text, the folder of an image is its class, and the
        folder above is its bag. For an EcoTaxa table, `label` is the column of the classes, such as
        "object_annotation_category", and only rows whose "object_annotation_status" is "validated" are read.
    prevalences : table, optional
        The proportions of the classes in each bag, as in `read_bags`, instead of labels.
    counts : bool, default False
        Whether `prevalences` holds counts.
    classes : sequence, optional
        Names and order of the classes.
    size : int, default 32
        Height and width of the scaled images. The aspect ratio is kept, and margins get the colour of the first pixel.
    color : bool, default False
        Whether rows have three colours, of shape (3, size, size); otherwise they are grey, of shape (size, size).
    skip_unreadable : bool, default False
        Whether to skip files that cannot be decoded, with a warning that names them, instead of raising an error.
    cache_dir : path, optional
        Folder for the decoded images, by default histnetq/images in the user's cache directory. An image is decoded
        again if its path, size in bytes or modification time has changed.

    Returns
    -------
    Bags
        The bags, in the order of the file names. Rows are memory-mapped bytes.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for place in ("north", "south"):
    ...         Path(folder, place).mkdir()
    ...         Image.new("L", (40, 30), 128).save(Path(folder, place, "1.png"))
    ...     read_images(f"{folder}/*/*.png", size=16, cache_dir=folder)
    Bags(n_bags=2, sizes=1, rows=(2, 16, 16) uint8)
    """
    if find_spec("PIL") is None:
        raise ImportError("read_images: needs Pillow; pip install 'histnetq[images]'.")
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size not in _SIZES:
        raise InputError(
            "size", f"a whole number from {_SIZES[0]} to {_SIZES[-1]}", repr(size), "give the pixels of a side"
        )
    if prevalences is not None and label is not None:
        either = ("either ", Option("label"), " or ", Option("prevalences"))
        raise InputError("prevalences", either, "both", "leave one out")
    listed = _list(source, bag, label)
    shape: Shape = (3, int(size), int(size)) if color else (int(size), int(size))
    rows, unreadable = decode_images(listed.files, shape, cache_dir)
    kept = np.ones(len(listed.files), bool)
    if unreadable:
        kept[:] = [file not in unreadable for file in listed.files]
        _report(unreadable, len(listed.files), skip_unreadable)
    return _as_bags(listed, rows, kept, prevalences, counts, classes)


def _as_bags(
    listed: Listed, rows: Any, kept: Any, prevalences: Any, counts: bool, classes: Sequence[Any] | None
) -> Bags:
    """Group the images by bag, with proportions from a table or from the labels."""
    import pyarrow as pa

    def code(column: str, names: list[str]) -> tuple[Codes, Any]:
        codes = Codes(listed.name, [column], written=True)
        used = [name for name, wanted in zip(names, kept.tolist(), strict=True) if wanted]
        return codes, codes.of(pa.record_batch({column: used}), 0)

    bags, numbers = code(listed.key, listed.bags)
    readable = np.flatnonzero(kept)
    found = Bags.trusted(
        rows, readable[np.argsort(numbers, kind="stable")], offsets_of(np.bincount(numbers)), ids=np.array(bags.values)
    )
    if prevalences is not None:
        known, names = read_prevalences(prevalences, bags, counts, classes)
        return found.replaced(prevalences=known, classes=names)
    if listed.labels is None:
        return found
    read, codes = code("label", listed.labels)
    names, places = order_classes(read.values, classes, listed.name)
    labels = np.full(len(rows), -1)
    labels[readable] = places[codes]
    found = found.replaced(classes=names, labels=labels)
    return found.replaced(prevalences=found.label_prevalences())


def _report(unreadable: dict[Path, str], n_files: int, skip: bool) -> None:
    """Raise an error or warn about files that cannot be decoded; name the first ones."""
    first = ", ".join(f"{_shown(file)} ({why})" for file, why in list(unreadable.items())[:_NAMED])
    more = f" and {len(unreadable) - _NAMED:,} others" if len(unreadable) > _NAMED else ""
    some = f"{len(unreadable):,} of {n_files:,} images cannot be read: {first}{more}"
    if len(unreadable) == n_files:
        raise ValueError(f"source: {some}, expected images such as PNG or JPEG; name others.")
    if not skip:
        remedy = ("repair them", Way(", or pass ", Option("skip_unreadable", True)))
        raise InputError("source", problem=f"{some}, expected whole images", remedy=remedy)
    warnings.warn(f"{some}; they are left out.", UserWarning, stacklevel=3)


def _shown(path: Path) -> str:
    """Return a path as text, quoted if it has characters that would break the line or the terminal."""
    return str(path) if str(path).isprintable() else repr(str(path))


def _list(source: Any, bag: Name, label: Name) -> Listed:
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    for one in sources:
        local_path(one, "source")
    tables = [Path(one) for one in sources if str(one).lower().endswith(".tsv")]
    if tables and len(tables) < len(sources):
        raise InputError("source", "tables or images", "both", "read them one after the other")
    if len(tables) > 1:
        raise InputError("source", "one table", f"{len(tables)} of them", "put their rows together")
    if tables:
        return _read_table(tables[0], bag, label)
    files = [Path(file) for file in sorted({file for one in sources for file in _find(Path(one), str(one))})]
    if not files:
        raise FileNotFoundError(
            f"source: no images in {', '.join(map(str, sources))}, expected files such as *.png; name their folder."
        )
    above = 1 if label is not None and not callable(label) else 0  # folders of classes below the folder of a bag
    bags = [bag(file) for file in files] if callable(bag) else _folders(files, above)
    labels = None if label is None else [label(f) if callable(label) else f.parent.name for f in files]
    names = None if labels is None else [str(name) for name in labels]
    key, bags = bag if isinstance(bag, str) else "folder", [str(name) for name in bags]
    refuse_same([str(file) for file in files], "source", bags)
    for name in dict.fromkeys([*bags, *(names or ())]):
        if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InputError("source", "folders whose names are texts in UTF-8", repr(name), "rename it")
    return Listed(str(sources[0]), key, files, bags, names)


def is_image_table(source: Any) -> bool:
    """Return whether the source is an EcoTaxa table."""
    first = source if isinstance(source, str | os.PathLike) else next(iter(source), "")
    return str(first).lower().endswith(".tsv")


def _find(path: Path, pattern: str) -> list[str]:
    if path.is_dir():
        found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [file for file in found if file.lower().endswith(ENDINGS) and os.path.isfile(file)]
    if path.is_file():
        return [str(path)]
    return [file for file in glob(pattern, recursive=True) if os.path.isfile(file)]


def _folders(files: list[Path], above: int) -> list[str]:
    """Return the bag of each image, which is the name of its folder; raise an error if two folders share a name."""
    parents = [os.path.dirname(file) for file in files]
    names: dict[str, str] = {}  # name of the bag, by the folder of an image
    places: dict[str, Path] = {}
    for parent in dict.fromkeys(parents):
        folder = Path(os.path.abspath(parent), "image").parents[above]
        if places.setdefault(folder.name, folder) != folder:
            both = f"{_shown(places[folder.name])} and {_shown(folder)}"
            raise ValueError(
                f"bag: {both} have one name, expected one folder for each bag; rename one, or pass a function that "
                "names the bag of a file."
            )
        names[parent] = folder.name
    return [names[parent] for parent in parents]


def _read_table(path: Path, bag: Name, label: Name) -> Listed:
    """Read an EcoTaxa table; its second line may contain the column types [t] and [f]."""
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"source: {path} does not exist; name the table that EcoTaxa exported.")
    if path.stat().st_size > _LARGEST_TABLE:
        raise InputError("source", f"a table of at most {_LARGEST_TABLE:,} bytes", f"{path}", "divide it")
    if callable(bag) or callable(label):
        raise InputError("bag, label", f"names of columns of {path}", "a function", "name the columns")
    try:
        table = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except (ValueError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"source: {path} is not a tab-separated table ({reason}); export it again.") from None
    if len(table) and table.iloc[0].isin(["[t]", "[f]"]).all():
        table = table.iloc[1:]
    bag = _SAMPLE if bag is None else bag
    missing = [column for column in (_FILE, bag, *([label] if label else [])) if column not in table]
    if missing:
        raise ValueError(f"source: {path} has no column {missing[0]!r}, expected one; name a column that it has.")
    if label is not None and _STATUS in table:
        table = table[table[_STATUS] == "validated"]
    if _OBJECT in table:  # an object may have several images: keep the first
        rank = pd.to_numeric(table[_RANK], errors="coerce") if _RANK in table else pd.Series(0, table.index)
        table = table.loc[rank.sort_values(kind="stable").index].drop_duplicates(_OBJECT).sort_index()
    if table.empty:
        validated = " validated" if label is not None else ""
        raise ValueError(f"source: {path} has no{validated} rows, expected some; export others.")
    for column in (bag, *([label] if label else [])):
        if (table[column] == "").any():
            number = int(np.argmax((table[column] == "").to_numpy()))
            image = table[_FILE].iloc[number]
            raise ValueError(f"source: {path} has nothing in column {column!r} for {image!r}; fill it in.")
    files = [_inside(path, name) for name in table[_FILE]]
    return Listed(path.name, bag, files, table[bag].tolist(), None if label is None else table[label].tolist())


def _inside(table: Path, name: str) -> Path:
    """Return the path of an image in the folder of the table; raise an error for a path outside that folder."""
    relative = Path(name.replace("\\", "/"))
    if not name or relative.is_absolute() or ".." in relative.parts or ":" in name or "\0" in name:
        raise ValueError(f"source: {table} names the image {name!r}, expected a file beside it; move it there.")
    return table.parent / relative
