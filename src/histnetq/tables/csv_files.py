"""CSV files: detection of the separator, the decimal mark and the column types.

The first rows decide the type of each column. A later cell that does not fit is an error that names its row.
"""

from __future__ import annotations

import codecs
import csv as csv_lines
import gzip
import io
import itertools
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from histnetq.errors import InputError, StructuredError
from histnetq.tables.budget import within_budget
from histnetq.tables.files import write_csv
from histnetq.tables.places import open_binary
from histnetq.tables.table_files import OTHER_FEATURES, Table, name_files, reading, refuse_other_columns, refuse_twice

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None"]  # in numeric columns; in text columns, only an empty cell
_BLOCK_BYTES = 1 << 22  # bytes read at once, and the limit for one row
_SAMPLE_ROWS = 100  # rows used to detect the separator
_SEPARATORS = ",;\t|"
_BOM = codecs.BOM_UTF8
_QUOTE = ord('"')
_MOST_TITLES = 20  # first lines that may contain the column names
_OTHER_FORMATS = {  # first bytes: the content of the file, and the remedy
    b"PK\x03\x04": ("an Excel sheet or another zip file", "rename it to end in .xlsx, or save the sheet as CSV"),
    b"\xd0\xcf\x11\xe0": ("an Excel sheet of the old format .xls", "save it as .xlsx or CSV"),
    b"PAR1\x15": ("Parquet", "rename it to end in .parquet"),
    b"\x1f\x8b": ("data compressed by gzip", "rename it to end in .csv.gz"),
}

_EXPONENT = r"([eE][+-]?\d+)?\s*$"
_POINT = r"^\s*[+-]?(\d+\.?\d*|\.\d+)" + _EXPONENT
_COMMA = r"^\s*[+-]?(\d+,?\d*|,\d+)" + _EXPONENT
_NOT_FINITE = r"(?i)^\s*[+-]?(inf|infinity|nan)\s*$"
_THOUSANDS = r"^\s*[+-]?\d{1,3}([.,' \x{A0}]\d{3})+([.,]\d+)?\s*$"
_PERCENT = r"^\s*[+-]?(\d+[.,]?\d*|[.,]\d+)\s*%\s*$"
_SURE_COMMA = r",\d{0,2}\D*$|,\d{4,}|^\D*0\d*,|\d{4,},"  # a decimal comma: wrong number of digits for thousands
_TRUTH_WORD = r"^(true|True|TRUE|false|False|FALSE)$"
_TRUTH = r"^(true|True|TRUE|false|False|FALSE|0|1)$"


class CsvCopy:
    """An unnamed temporary file with the rows of a file in another format; it is deleted with this object."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.path = f"/dev/fd/{self.file.fileno()}"

    def __del__(self) -> None:
        self.file.close()


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with its detected separator, decimal mark and column types."""

    path: str
    separator: str
    names: list[str]
    decimal: str = "."
    # "number", "truth" or "text" for each column; None if all its cells are missing.
    kinds: dict[str, str | None] = field(default_factory=dict)
    # The error of each numeric column whose numbers are ambiguous; raised only if the column is read.
    faults: dict[str, InputError] = field(default_factory=dict)
    # Rows of a file in another format, which are read instead.
    copy: CsvCopy | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Path of the file that is read."""
        return place_of(self.path, self.copy)

    def read(self, columns: Sequence[str] | None, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows; an empty text cell is an empty string, not a missing value."""
        import pyarrow as pa
        from pyarrow import csv

        convert = csv.ConvertOptions(
            null_values=MISSING, decimal_point=self.decimal, include_columns=columns, column_types=types
        )
        # Allowing line breaks in cells takes a few percent more time.
        parse = csv.ParseOptions(delimiter=self.separator, newlines_in_values=True)
        read = csv.ReadOptions(block_size=_BLOCK_BYTES)
        checked = _CheckedBytes(self.path, self.separator, self.place)
        try:
            with csv.open_csv(checked, read_options=read, parse_options=parse, convert_options=convert) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            if "straddling" in str(error):
                self._refuse_marks()
                raise ValueError(
                    f"{self.path}: has a row of more than {_BLOCK_BYTES >> 20} MB, expected shorter ones; check its "
                    "line breaks, or convert it to Parquet."
                ) from None
            raise

    def read_texts(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows, with each cell as the text in the file."""
        import pyarrow as pa

        return self.read(columns, dict.fromkeys(columns, pa.string()))

    def refuse_misfits(self, kinds: Mapping[str, str]) -> None:
        """Raise an error for the first row with a wrong number of cells or with a text in one of these columns."""
        self._refuse_marks()
        with open_bytes(self.place) as file, io.TextIOWrapper(file, "utf-8-sig", "replace", newline="") as lines:
            rows, n = enumerate(filter(None, _cells(lines, self.separator))), len(self.names)
            i, cells = next(((i, len(row)) for i, row in rows if len(row) != n), (0, n))
        if cells != n:
            raise ValueError(
                f"{self.path}: row {i} has {cells} cells, expected {n} as in the line of column names; correct the row."
            )
        n = 0
        for batch in self.read_texts(list(kinds)) if kinds else ():
            for column, kind in kinds.items():
                found = _first_misfit(batch.column(column), kind, self.decimal)
                if found is not None:
                    what = "numbers" if kind == "number" else "true and false"
                    where = f"the text {shorten(found[1])!r} (row {n + found[0] + 1})"
                    problem = f"column {column!r} holds {what} and {where}"
                    raise InputError(self.path, problem=problem, remedy=("correct it", *OTHER_FEATURES))
            n += batch.num_rows

    def _refuse_marks(self) -> None:
        checked = _CheckedBytes(self.path, self.separator, self.place)
        while checked.read(_BLOCK_BYTES):
            pass


def open_files(paths: list[str]) -> Table:
    """Open CSV files as one table."""
    return as_table([detect_format(path) for path in paths])


def as_table(files: list[CsvFile]) -> Table:
    """Return a table of the rows of all files, whose columns must be the same."""
    import pyarrow as pa

    paths = [file.path for file in files]
    refuse_other_columns(paths, [file.names for file in files])
    # All numbers are read as doubles: a column may have whole numbers in its first rows and decimals later.
    types = {"number": pa.float64(), "truth": pa.bool_(), "text": pa.string()}
    found = ((name, (file.kinds.get(name) for file in files)) for name in files[0].names)
    kinds = {name: next(filter(None, in_files), "text") for name, in_files in found}

    def batches(columns: list[str], names: list[str]) -> Iterator[pa.RecordBatch]:
        numbers = {name: kinds[name] for name in columns if name not in names and kinds[name] != "text"}
        wanted = {name: types[numbers.get(name, "text")] for name in columns}
        for file in files:
            for fault in (file.faults[name] for name in numbers if name in file.faults):
                raise fault
            with reading(file.path, "cannot be read as CSV", "correct the file", partial(file.refuse_misfits, numbers)):
                for batch in within_budget(file.read(columns, wanted)):
                    yield _without_missing(batch, kinds)

    return Table(
        name_files(paths), pa.schema([(name, types[kind]) for name, kind in kinds.items()]), batches, written=True
    )


def _without_missing(batch: pa.RecordBatch, kinds: dict[str, str]) -> pa.RecordBatch:
    """Replace missing texts by null: empty cells and, in numeric columns that are read as texts, words such as "NA"."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(column.type):
            missing = pc.is_in(column, pa.array(MISSING[:1] if kinds[name] == "text" else MISSING))
            column = pc.if_else(missing, None, column) if pc.any(missing).as_py() else column
        columns.append(column)
    return pa.record_batch(columns, batch.schema.names)


def write_file(frame: pd.DataFrame, path: Path, index: bool, name: str) -> None:
    """Write a data frame: with tabs if `name` ends in .tsv, and compressed if it ends in .gz."""
    separator = "\t" if ".tsv" in name[-7:] else ","
    if not name.endswith(".gz"):
        write_csv(frame, path, index, separator=separator)
        return
    with gzip.open(path, "wt", encoding="utf-8", newline="") as packed:
        write_csv(frame, packed, index, separator=separator)


def place_of(path: str, copy: CsvCopy | None) -> str:
    """Return the path of a file, or of the temporary file that has its rows as CSV."""
    return path if copy is None else copy.path


def detect_format(path: str, copy: CsvCopy | None = None) -> CsvFile:
    """Detect the separator and types of a file from its first rows; later rows decide for columns empty there.

    `copy` is a temporary file with the same rows as CSV, separated by commas, if the file has another format.
    """
    with reading(path, "cannot be read as CSV", "correct the file"):
        return _detect_format(CsvFile(path, *_find_separator(path, copy), copy=copy))


def _detect_format(file: CsvFile) -> CsvFile:
    import pyarrow as pa

    path, names = file.path, file.names
    refuse_twice(path, names)
    try:
        first = next(file.read(None, {}), None)
    except pa.ArrowInvalid:
        file.refuse_misfits({})
        raise
    found = {} if first is None else {name: _typed(kind) for name, kind in zip(names, first.schema.types, strict=True)}
    unknown = [name for name, about in found.items() if about.kind is None]
    for batch in file.read_texts(unknown) if unknown else ():
        for name in unknown:
            found[name] = _written(batch.column(name))
        unknown = [name for name in unknown if found[name].kind is None]
        if not unknown:
            break
    kinds, faults = {name: about.kind for name, about in found.items()}, _find_faults(path, found)
    commas = any(about.comma and name not in faults for name, about in found.items())
    return replace(file, decimal="," if commas else ".", kinds=kinds, faults=faults)


def open_bytes(path: str) -> IO[bytes]:
    """Open a file for reading, and decompress it if its name ends in .gz."""
    file = open_binary(path)
    return gzip.open(file) if path.endswith(".gz") else file  # type: ignore[return-value]


@dataclass(frozen=True)
class _Column:
    """The type of a column, and example cells with a decimal point, a comma, thousands separators or a percent sign."""

    kind: str | None
    point: str = ""
    comma: str = ""
    sure: bool = False  # whether the comma can only be a decimal mark
    grouped: str = ""
    percent: str = ""


def _typed(kind: pa.DataType) -> _Column:
    """Return the type that arrow inferred; texts and dates get no type yet, as their cells are inspected later."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return _Column("truth")
    if pa.types.is_integer(kind):
        return _Column("number")
    return _Column("number", point="decimal points") if pa.types.is_floating(kind) else _Column(None)


def _written(cells: pa.StringArray) -> _Column:
    """Infer the type of a column from its texts: numeric if more than half are numbers, as the rest may be typos."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = cells.filter(pc.invert(pc.is_in(cells, pa.array(MISSING))))
    if not len(cells):
        return _Column(None)
    if 2 * pc.sum(pc.match_substring_regex(cells, _TRUTH_WORD)).as_py() > len(cells):
        return _Column("truth")
    point = pc.or_(pc.match_substring_regex(cells, _POINT), pc.match_substring_regex(cells, _NOT_FINITE))
    patterns = _COMMA, _THOUSANDS, _PERCENT
    comma, thousands, percent = (pc.match_substring_regex(cells, pattern) for pattern in patterns)
    number = pc.or_(pc.or_(point, comma), pc.or_(thousands, percent))
    if 2 * pc.sum(number).as_py() <= len(cells):
        return _Column("text")

    def first(chosen: Any) -> str:
        some = cells.filter(chosen)
        return some[0].as_py() if len(some) else ""

    comma = pc.and_not(comma, point)
    sure = pc.any(pc.and_(comma, pc.match_substring_regex(cells, _SURE_COMMA))).as_py()
    grouped = pc.and_not(pc.and_not(thousands, point), comma)
    return _Column(
        "number", first(pc.and_(point, pc.match_substring(cells, "."))), first(comma), bool(sure), first(grouped),
        first(percent),
    )  # fmt: skip


def _find_faults(path: str, found: Mapping[str, _Column]) -> dict[str, InputError]:
    """Return the errors of numeric columns with signs, thousands separators, mixed decimal marks or unclear commas."""
    faults = {}
    point = next((name for name, about in found.items() if about.point), None)
    sure = any(about.sure for about in found.values())
    remedy = ("write numbers with decimal points and nothing between thousands", *OTHER_FEATURES)
    for name, about in found.items():
        if about.percent:
            problem = f"column {name!r} has {about.percent!r}, expected a number without a percent sign"
        elif about.grouped:
            problem = f"column {name!r} has the number {about.grouped!r}, expected one like 1234.5"
        elif about.comma and point is not None:
            both = f"the number {about.comma!r} and column {point!r} has decimal points"
            problem = f"column {name!r} has {both}, expected one decimal mark"
        elif about.comma and not sure:
            problem = f"column {name!r} has {about.comma!r}, whose comma may stand before decimals or between thousands"
        else:
            continue
        own = ("delete the signs, and write decimal points", *OTHER_FEATURES) if about.percent else remedy
        faults[name] = InputError(path, problem=problem, remedy=own)
    return faults


def _first_misfit(cells: pa.StringArray, kind: str, decimal: str) -> tuple[int, str] | None:
    """Return the row and text of the first cell that is neither missing nor of this type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = pc.is_in(cells, pa.array(MISSING))
    for pattern in [_TRUTH] if kind == "truth" else [_POINT if decimal == "." else _COMMA, _NOT_FINITE]:
        fits = pc.or_(fits, pc.match_substring_regex(cells, pattern))
    i = pc.index(fits, False).as_py()
    return None if i < 0 else (i, cells[i].as_py())


def _find_separator(path: str, copy: CsvCopy | None) -> tuple[str, list[str]]:
    """Return the separator that gives all first rows as many cells as the header has, and the column names."""
    with open_bytes(place_of(path, copy)) as file:
        start = _CheckedBytes.read_from(file, path, _BLOCK_BYTES)
    if copy is None:
        _refuse_other_format(path, start)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            f"{path}: is encoded in UTF-16, expected UTF-8; convert it, such as by iconv -f utf16 -t utf8."
        )
    whole = len(start) < _BLOCK_BYTES
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start, final=whole)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not encoded in UTF-8; convert it, such as by iconv -f latin1 -t utf8.") from None
    if not text.strip():
        raise ValueError(f"{path}: is empty, expected a line of column names and rows; save the table again.")
    rows, lines = {}, io.StringIO(text, newline="")
    for separator in _SEPARATORS if copy is None else ",":
        lines.seek(0)
        sample = list(itertools.islice(filter(None, _cells(lines, separator)), _SAMPLE_ROWS + 1))
        complete = whole or len(sample) > _SAMPLE_ROWS
        rows[separator] = sample if complete or len(sample) == 1 else sample[:-1]
    rows = {separator: found for separator, found in rows.items() if found}
    if not rows:
        raise ValueError(
            f"{path}: has a cell of more than {csv_lines.field_size_limit()} characters in its first line; shorten it."
        )
    fitting = [sign for sign, found in rows.items() if {len(row) for row in found} == {len(found[0])} != {1}]
    if len(fitting) > 1:
        raise ValueError(
            f"{path}: its cells may be separated by {' or '.join(map(repr, fitting))}; write names and texts that hold "
            "such a sign in quotation marks."
        )
    best = fitting[0] if fitting else max(rows, key=lambda sign: len(rows[sign][0]))
    _refuse_title(path, {sign: rows[sign] for sign in fitting or rows}, text)
    return best, rows[best][0]


def _refuse_other_format(path: str, start: bytes) -> None:
    """Raise an error for a file of another format whose name ends like a CSV file."""
    found = next((about for begin, about in _OTHER_FORMATS.items() if start.startswith(begin)), None)
    if found is not None:
        what, remedy = found
        raise ValueError(f"{path}: holds {what}, expected CSV as its name says; {remedy}.")


def _refuse_title(path: str, samples: Mapping[str, list[list[str]]], text: str) -> None:
    """Raise an error for a title above the column names: a first line with at most half of the cells of most lines."""
    for separator, rows in samples.items():
        n_cells = [sum(map(bool, map(str.strip, row))) for row in rows[:_MOST_TITLES]]
        widest = max(n_cells)
        header = rows[n_cells.index(widest)]
        of_two = widest == 2 and not any(re.search(r"\d", cell) for cell in header)  # such as texts with a comma
        is_usual = (widest > 2 or of_two) and 2 * n_cells.count(widest) > len(n_cells)
        if is_usual and 2 * n_cells[0] <= widest:
            title, names = next(filter(str.strip, rows[0]), ""), ", ".join(map(repr, header[:3]))
            begin = f"the title {shorten(title)!r}" if title else "an empty line"
            n_above = next(i for i, row in enumerate(_cells(io.StringIO(text, newline=""), separator)) if row == header)
            above = "delete this line" if n_above == 1 else f"delete the {n_above} lines above the column names"
            raise ValueError(
                f"{path}: begins with {begin}, expected the line of column names, perhaps {names}"
                f"{', …' if len(header) > 3 else ''}; {above}."
            )


def shorten(text: str) -> str:
    """Return a text with at most 40 characters, for messages."""
    return text if len(text) <= 40 else text[:40] + "…"


def _cells(text: IO[str], separator: str) -> Iterator[list[str]]:
    """Yield the cells of each line; stop at a cell that is too long for the standard library."""
    try:
        yield from csv_lines.reader(text, delimiter=separator)
    except csv_lines.Error:
        return


class _CheckedBytes(io.RawIOBase):
    """The bytes of a file; a NUL byte or a quotation mark within a cell is an error that names the row."""

    def __init__(self, path: str, separator: str, place: str) -> None:
        self._path, self._place, self._file = path, place, open_bytes(place)
        self._limits = np.isin(np.arange(256), list(f'{separator}\r\n"'.encode()))
        self._kept = b"\n"  # the last byte that was checked, and the byte after it
        self._n_read, self._n_marks, self._opened = 0, 0, 0

    @staticmethod
    def read_from(file: IO[bytes], path: str, n: int) -> bytes:
        try:
            return file.read(n)
        except StructuredError:  # of a store
            raise
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"{path}: cannot be read ({reason}); write or fetch the file again.") from None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def read(self, n: int = -1) -> bytes:
        chunk = self.read_from(self._file, self._path, n)
        if b"\0" in chunk:
            row = _row_at(self._place, self._n_read + chunk.index(b"\0"))
            raise ValueError(f"{self._path}: row {row} holds a NUL byte, expected text; write the file again as UTF-8.")
        self._check_marks(chunk)
        self._n_read += len(chunk)
        return chunk

    def _check_marks(self, chunk: bytes) -> None:
        """Check every quotation mark as soon as the byte after it is known."""
        start = self._n_read - len(self._kept)
        window = self._kept + (chunk or b"\n")
        if self._n_read == 0 and chunk.startswith(_BOM):
            start, window = start + len(_BOM), self._kept + chunk[len(_BOM) :]
        self._kept = window[-2:]
        if b'"' in window[1:-1]:
            signs = np.frombuffer(window, np.uint8)
            marks = 1 + np.flatnonzero(signs[1:-1] == _QUOTE)
            opening, closing = marks[self._n_marks % 2 :: 2], marks[1 - self._n_marks % 2 :: 2]
            wrong = [*opening[~self._limits[signs[opening - 1]]][:1], *closing[~self._limits[signs[closing + 1]]][:1]]
            before = opening[: np.searchsorted(opening, min(wrong), "right")] if wrong else opening
            if before.size:
                self._opened = start + int(before[-1])
            if wrong:
                self._refuse_mark()
            self._n_marks += len(marks)
        if not chunk and self._n_marks % 2:
            self._refuse_mark()

    def _refuse_mark(self) -> None:
        raise ValueError(
            f"{self._path}: row {_row_at(self._place, self._opened)} has a misplaced quotation mark, expected marks "
            "around whole cells only; end the cell with a mark, or write marks inside a quoted cell twice."
        )


def _row_at(path: str, place: int) -> int:
    """Return the row of a byte, counted from 1 after the header; line breaks in quoted cells do not count."""
    row = quoted = 0
    with open_bytes(path) as file:
        while place > 0:
            signs = np.frombuffer(file.read(min(place, _BLOCK_BYTES)), np.uint8)
            inside = (quoted + np.cumsum(signs == _QUOTE)) % 2 == 1
            row += int(((signs == ord("\n")) & ~inside).sum())
            quoted, place = int(inside[-1]), place - len(signs)
    return row
