"""Output files: written completely or not at all, by one process, and never over an existing file or an input."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from histnetq.errors import ExistingFileError, FileInputError, InputError, Option, Way
from histnetq.registry import PAGES, WRITTEN, TableFormat
from histnetq.tables.places import Address, is_address

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device"}
_FORMULA = re.compile("[=+\\-@\t\r＝＋－＠].", re.DOTALL)  # texts that spreadsheets run as a formula
_SHOWN = 60  # characters of a formula in a warning
_ADDRESS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # variables that torchrun sets in every process


def are_processes_together() -> bool:
    """Return whether torchrun started this process together with other processes."""
    return all(name in os.environ for name in _ADDRESS) and os.environ["WORLD_SIZE"] != "1"


def is_first_process() -> bool:
    """Return whether this process writes files; only the first of the processes started by torchrun does."""
    return not are_processes_together() or os.environ["RANK"] == "0"


def refuse_existing(path: Path | Address | None, force: bool, argument: str = "output") -> None:
    """Raise an error if a file or directory exists and `force` is False; call it also before long computations.

    Character devices are allowed, since writing to them replaces nothing. Named pipes are refused even with `force`.
    `argument` is the name of the argument at the beginning of the message.
    """
    if isinstance(path, Path):
        _refuse_special(path, argument)
    if path is not None and not force and is_first_process() and _exists(path):
        remedy = ("choose another name", Way(" or pass ", Option("overwrite", True), " to replace it"))
        raise ExistingFileError(argument, problem=f"{path} exists", remedy=remedy)


def _exists(path: Path | Address) -> bool:
    return path.kind() is not None if isinstance(path, Address) else path.is_file() or path.is_dir()


@contextlib.contextmanager
def whole_file(path: Path | Address, argument: str = "output") -> Iterator[Path]:
    """Yield a temporary path; on success, its file replaces `path`, and after an exception it is deleted.

    A link is kept, and the file that it points to is replaced. A character device, or a descriptor of this process
    such as /dev/stdout, is written to at the end. The file of an address is uploaded in one step at the end.
    """
    if isinstance(path, Address):
        with _copied(path.upload) as partial:
            yield partial
        return
    _refuse_special(path, argument)
    try:
        kind = stat.S_IFREG
        with contextlib.suppress(FileNotFoundError):
            kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        with _replacing(path) if stat.S_ISREG(kind) else _copied(lambda whole: _write_to(path, whole)) as partial:
            yield partial
    except (FileInputError, ExistingFileError):  # the error is about another file that is written inside the block
        raise
    except OSError as error:
        reason = error.strerror or error
        problem = f"{path} cannot be written ({reason})"
        raise FileInputError(argument, problem=problem, remedy="choose another place") from None


def write_files(*files: tuple[str, Path | Address | None, Any, bool]) -> None:
    """Write files completely or not at all: they appear together once all of them are complete.

    A file is its option, its path (None for no file), its content, and whether it may replace an existing file, such as
    one that appeared in the meantime. The content is a table, a text, or a function that writes to a path. The index of
    a table is written if it has a name.
    """
    with contextlib.ExitStack() as written:
        for name, path, content, _ in files:
            if path is None:
                continue
            partial = written.enter_context(whole_file(path, name))
            if callable(content):
                content(partial)
            elif isinstance(content, str):
                partial.write_text(content, encoding="utf-8", newline="\n")
            else:
                fill_table(content, partial, path, index=content.index.name is not None)
        for name, path, _, force in files:
            refuse_existing(path, force, name)


def refuse_same_file(**places: Path | Address | None) -> None:
    """Refuse two options that name the same file."""
    known: dict[Path | Address, str] = {}
    for name, place in places.items():
        if isinstance(place, Address) or (place is not None and (place.is_file() or not place.exists())):
            other = known.setdefault(place if isinstance(place, Address) else place.resolve(), name)
            if other != name:
                raise ValueError(f"{name}: {place} is also the file of {other}; name another file.")


def refuse_inputs(rows: Sequence[str], model: Path | Address, **places: Path | Address | None) -> None:
    """Raise an error if an output would replace one of the files `rows`, or is in the directory of the model."""
    known = {os.path.realpath(path) for path in rows}
    for name, place in places.items():
        if place is None:
            continue
        target = Path(os.path.realpath(place))
        if str(target) in known:
            raise ValueError(f"{name}: {place} is an input file, which would be replaced; name another output file.")
        if Path(os.path.realpath(model)) in target.parents:
            raise ValueError(
                f"{name}: {place} is in the directory of the model, which must not change; name another output file."
            )


def fill_table(table: pd.DataFrame, path: Path, name: Path | Address, index: bool = False) -> None:
    """Write a table in the format of the file name `name`; `path` is a temporary file with any name."""
    format_to_write(name).load().write_file(table, path, index, name.name.lower())


def format_to_write(path: Path | Address, argument: str = "output") -> TableFormat:
    """Return the format of a table file by its ending, CSV without an ending; raise an error for an unknown ending.

    Examples
    --------
    >>> format_to_write(Path("estimates.xlsx")).module, format_to_write(Path("/dev/stdout")).module
    ('excel_files', 'csv_files')
    """
    for known in WRITTEN.values():
        if path.name.lower().endswith(known.endings):
            return known
    if path.suffix:
        require_ending(path, [known.endings[0] for known in WRITTEN.values()], argument)
    return WRITTEN["csv"]


def require_ending(path: Path | Address, endings: Sequence[str], argument: str = "output", remedy: str = "") -> None:
    """Raise an error if an output file has another ending; a name without a dot, as of a device, is allowed."""
    if path.suffix and not path.name.lower().endswith(tuple(endings)):
        known = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        remedy = remedy or "choose one of these formats"
        raise InputError(argument, f"a file name that ends in {known}", repr(path.name), remedy)


def require_page(path: Path | Address, argument: str = "output") -> None:
    """Raise an error if the name of a page has another ending than HTML."""
    require_ending(path, PAGES, argument, "write HTML, which a browser can print as PDF")


def require_page_or_table(path: Path | Address, argument: str = "output") -> None:
    """Raise an error if the name has neither the ending of a page nor of a table."""
    require_ending(path, [*PAGES, *(end for known in WRITTEN.values() for end in known.endings)], argument)


def require_parquet(path: Path | Address, argument: str = "output") -> None:
    """Raise an error if the name of a file of sketches has another ending than Parquet."""
    require_ending(path, WRITTEN["parquet"].endings, argument, "write Parquet, the format of sketches")


def write_csv(
    table: pd.DataFrame, target: Path | IO[str], index: bool = False, header: bool = True, separator: str = ","
) -> None:
    """Write a table as CSV; warn of the first name or text that a spreadsheet would run as a formula."""
    found = _first_formula(table.reset_index() if index else table)
    if found is not None:
        warnings.warn(
            f"CSV: {found}, which a spreadsheet runs as a formula; texts are written unchanged, so import them there "
            "as text, or write .xlsx or Parquet.",
            UserWarning,
            stacklevel=2,
        )
    table.to_csv(target, index=index, header=header, sep=separator, lineterminator="\n")


def _first_formula(table: pd.DataFrame) -> str | None:
    """Return a phrase about the first column name or cell that begins like a formula, or None."""
    for name in table.columns:
        if _is_formula(name):
            return f"a column is named {name[:_SHOWN]!r}"
    for name, kind in table.dtypes.items():
        if kind.kind not in "biufcmM":
            for text in table[name].unique():
                if _is_formula(text):
                    return f"column {name!r} has {text[:_SHOWN]!r}"
    return None


def _is_formula(text: object) -> bool:
    if not isinstance(text, str) or not _FORMULA.match(text):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def refuse_same(paths: Sequence[str], argument: str, bags: Sequence[str] | None = None) -> None:
    """Raise an error if two paths are the same file, also by links; with `bags`, different bags may share a file."""
    known: dict[tuple[object, ...], str] = {}
    for path, bag in zip(paths, bags or [""] * len(paths), strict=True):
        key: tuple[object, ...] = (path, bag)
        if not is_address(path):
            about = os.stat(path)
            key = about.st_dev, about.st_ino, bag
        if key in known:
            what = f"{path} is given twice" if known[key] == path else f"{known[key]} and {path} are one file"
            raise ValueError(f"{argument}: {what}, which would count double; name it once.")
        known[key] = path


def _refuse_special(path: Path, argument: str) -> None:
    """Raise an error for a socket, a block device, or a named pipe, whose opening would wait for a reader."""
    try:
        about = path.stat()
    except OSError:  # nothing exists there, or writing will fail with a better message
        return
    kind = _KINDS.get(stat.S_IFMT(about.st_mode))
    if kind is not None and not _is_open_here(about):
        problem = f"{path} is {kind}, which is not written to"
        raise FileInputError(argument, problem=problem, remedy="choose another place")


def _is_open_here(about: os.stat_result) -> bool:
    """Return whether this process has the file open, such as the pipe behind /dev/stdout or a shell's >(command)."""
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is already closed
            if os.path.samestat(os.fstat(int(number)), about):
                return True
    return False


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same directory, and move its file to `path` on success."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    partial = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if is_first_process():
            os.replace(partial, target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _copied(copy: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a temporary path, and call `copy` with it on success."""
    with tempfile.TemporaryDirectory() as place:
        yield Path(place) / "whole"
        if is_first_process():
            copy(Path(place) / "whole")


def _write_to(path: Path, whole: Path) -> None:
    """Copy a file to a device or descriptor."""
    with whole.open("rb") as source, open(path, "wb", opener=open_at_once) as file:
        shutil.copyfileobj(source, file)


def open_at_once(path: str, flags: int) -> int:
    """Open a file; raise an error, instead of waiting, if it is a pipe that no process reads."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
