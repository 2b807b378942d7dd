"""Files that are written as a whole or not at all, by one process, and never over others unasked."""

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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from histnetq.errors import ExistingFileError, FileInputError, Option, Way
from histnetq.registry import FORMATS

if TYPE_CHECKING:
    import pandas as pd

_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a block device"}
_FORMULA = re.compile("[=+\\-@\t\r＝＋－＠].", re.DOTALL)  # what spreadsheets take for the beginning of a formula
_SHOWN = 60  # characters of a formula in a warning
_ADDRESS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells every process


def are_processes_together() -> bool:
    """Whether torchrun started this process and others."""
    return all(name in os.environ for name in _ADDRESS) and os.environ["WORLD_SIZE"] != "1"


def is_first_process() -> bool:
    """Whether this process is the one that writes, of those that torchrun started together."""
    return not are_processes_together() or os.environ["RANK"] == "0"


def refuse_existing(path: Path | None, force: bool, argument: str = "output") -> None:
    """Refuse to replace a file or a directory; called before work that takes long, too.

    A character device is written to, which replaces nothing; a named pipe is refused even if files may be replaced.
    Messages begin with the argument that named the path.
    """
    if path is not None:
        _refuse_special(path, argument)
    if path is not None and not force and is_first_process() and (path.is_file() or path.is_dir()):
        remedy = ("choose another name", Way(" or pass ", Option("overwrite", True), " to replace it"))
        raise ExistingFileError(argument, problem=f"{path} exists", remedy=remedy)


@contextlib.contextmanager
def whole_file(path: Path, argument: str = "output") -> Iterator[Path]:
    """A place to write to; what is there in the end takes the path, unless something failed.

    A link stays, and the file that it points to is replaced. A character device, or a descriptor of this process such
    as /dev/stdout, is written to when all is there.
    """
    _refuse_special(path, argument)
    try:
        kind = stat.S_IFREG
        with contextlib.suppress(FileNotFoundError):
            kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        with _replacing(path) if stat.S_ISREG(kind) else _writing_to(path) as partial:
            yield partial
    except (FileInputError, ExistingFileError):  # about another file, which is written beside this one
        raise
    except OSError as error:
        reason = error.strerror or error
        problem = f"{path} cannot be written ({reason})"
        raise FileInputError(argument, problem=problem, remedy="choose another place") from None


def fill_table(table: pd.DataFrame, path: Path, suffix: str, index: bool = False) -> None:
    """Write a table as the ending of a file name asks for, to a place whose own name says nothing."""
    found = next((known for known in FORMATS.values() if suffix.lower() in known.endings), FORMATS["csv"])
    found.load().write_file(table, path, index)


def write_csv(table: pd.DataFrame, target: Path | IO[str], index: bool = False, header: bool = True) -> None:
    """Write a table as CSV, with names as they are; warn of the first that spreadsheets would run as a formula."""
    found = _first_formula(table.reset_index() if index else table)
    if found is not None:
        warnings.warn(
            f"CSV: {found}, which a spreadsheet runs as a formula; texts are written unchanged, so import them there "
            "as text, or write Parquet.",
            UserWarning,
            stacklevel=2,
        )
    table.to_csv(target, index=index, header=header, lineterminator="\n")


def _first_formula(table: pd.DataFrame) -> str | None:
    """Find the first text that begins like a formula: a column's name, or else a cell; numbers are none."""
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
    """Refuse two paths of one file: links, hard links, other spellings, or one path twice.

    Where the bag of each file is given, bags may share files.
    """
    known: dict[tuple[int, int, str], str] = {}
    for path, bag in zip(paths, bags or [""] * len(paths), strict=True):
        about = os.stat(path)
        key = about.st_dev, about.st_ino, bag
        if key in known:
            what = f"{path} is given twice" if known[key] == path else f"{known[key]} and {path} are one file"
            raise ValueError(f"{argument}: {what}, which would count double; name it once.")
        known[key] = path


def _refuse_special(path: Path, argument: str) -> None:
    """Refuse a named pipe, whose opening would wait for a reader, a socket and a block device."""
    try:
        about = path.stat()
    except OSError:  # nothing is there, or writing will fail with a better message
        return
    kind = _KINDS.get(stat.S_IFMT(about.st_mode))
    if kind is not None and not _is_open_here(about):
        problem = f"{path} is {kind}, which is not written to"
        raise FileInputError(argument, problem=problem, remedy="choose another place")


def _is_open_here(about: os.stat_result) -> bool:
    """Return whether this process has it open, such as the pipe behind /dev/stdout or a shell's >(command)."""
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed
            if os.path.samestat(os.fstat(int(number)), about):
                return True
    return False


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
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
def _writing_to(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place) / "whole"
        if is_first_process():
            with (Path(place) / "whole").open("rb") as whole, open(path, "wb", opener=_open_at_once) as file:
                shutil.copyfileobj(whole, file)


def _open_at_once(path: str, flags: int) -> int:
    """Open a pipe without waiting; it is an error if nobody reads it any more."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
