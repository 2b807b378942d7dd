"""Excel files (.xlsx): the first sheet is copied to a temporary CSV file, which is read like any CSV file.

openpyxl reads the sheet row by row, so that a sheet with one cell far away takes no memory. Together with defusedxml
it refuses XML entities. Formulas are never computed: their stored values are read. Within a budget, the unpacked
sizes of the parts of the file are checked first; zipfile unpacks no part beyond its stated size.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from histnetq.errors import InputError, StructuredError
from histnetq.tables.budget import Budget, TooLargeError, current_budget
from histnetq.tables.csv_files import CsvCopy, as_table, detect_format, shorten
from histnetq.tables.places import open_binary
from histnetq.tables.table_files import Table

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL = 1_048_576, 16_384, 32_767  # of a sheet, as Excel limits them
_MOST_PARTS = 10_000  # files in the zip archive
_XML = 16  # bytes of memory that a byte of XML may take
_SMALL = 1000  # the same for styles, which become many objects
_LARGE = ("xl/worksheets/", "xl/sharedStrings.xml", "xl/media/")  # parts that are not read into objects
_SMALLEST = 1 << 18  # bytes of styles that every budget allows


def open_files(paths: list[str]) -> Table:
    """Open the first sheets of Excel files as one table."""
    return as_table([detect_format(path, _as_csv(path)) for path in paths])


def write_file(frame: pd.DataFrame, path: Path, index: bool, name: str) -> None:
    """Write a data frame to one sheet; texts are written as texts, also if they begin like a formula."""
    openpyxl = _import()
    frame = frame.reset_index() if index else frame
    n_rows, n_columns = frame.shape
    if n_rows >= _MOST_ROWS or n_columns > _MOST_COLUMNS:
        got = f"{n_rows:,} rows and {n_columns:,} columns"
        expected = f"at most {_MOST_ROWS - 1:,} rows and {_MOST_COLUMNS:,} columns in an Excel sheet"
        raise InputError(name, expected, got, "write CSV or Parquet")
    names = [str(column) for column in frame.columns]
    columns = [[_value(value) for value in frame.iloc[:, j].astype(object)] for j in range(n_columns)]
    for texts in (names, *columns):
        _refuse_texts(name, texts)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for row in (names, *zip(*columns, strict=True)):
        sheet.append([_as_text(sheet, value) if isinstance(value, str) else value for value in row])
    book.save(path)


def _value(value: Any) -> Any:
    """Return a value as an Excel cell holds it: a number, a truth value, a time, a text, or None."""
    if value is None or value != value or (isinstance(value, float) and math.isinf(value)):
        return None
    held = isinstance(value, bool | int | float) or (isinstance(value, datetime.datetime) and value.tzinfo is None)
    return value if held else str(value)


def _refuse_texts(name: str, values: list[Any]) -> None:
    """Raise an error for a text that an Excel cell cannot hold; a sheet that is half written cannot be closed."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    for text in (value for value in values if isinstance(value, str)):
        if ILLEGAL_CHARACTERS_RE.search(text):
            problem = f"the name or text {shorten(text)!r} has a control character, which Excel files cannot hold"
            raise InputError(name, problem=problem, remedy="write CSV or Parquet")
        if len(text) > _LONGEST_CELL:
            expected = f"texts of at most {_LONGEST_CELL:,} characters in an Excel sheet"
            raise InputError(name, expected, f"one of {len(text):,}", "write CSV or Parquet")


def _as_text(sheet: Any, text: str) -> Any:
    """Return a cell that holds a text, also if it begins like a formula."""
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, text)
    cell.data_type = "s"
    return cell


def _import() -> Any:
    try:
        import defusedxml  # noqa: F401
        import openpyxl
    except ModuleNotFoundError:
        raise ImportError("Excel files need openpyxl and defusedxml; pip install 'histnetq[excel]'.") from None
    return openpyxl


def _as_csv(path: str) -> CsvCopy:
    """Return the rows of the first visible sheet as CSV."""
    openpyxl, budget = _import(), current_budget()
    copy = CsvCopy()
    try:
        with open_binary(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parts of a workbook that are not read
            if budget is not None:
                _check_parts(file, budget)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"] or book.worksheets
            sheets[0].reset_dimensions()  # files may state wrong ones
            text = io.TextIOWrapper(copy.file, "utf-8", "replace", newline="", write_through=True)
            csv.writer(text, lineterminator="\n").writerows(_rows(sheets[0], budget))
            text.detach()
    except (TooLargeError, MemoryError, StructuredError):
        raise
    except Exception as error:  # openpyxl raises many kinds for files that are damaged or made up
        reason = str(error).partition("\n")[0].rstrip(".")[:120] or type(error).__name__
        raise ValueError(f"{path}: cannot be read as Excel ({reason}); save it again as .xlsx or CSV.") from None
    if len(sheets) > 1:
        others = ", ".join(repr(sheet.title) for sheet in sheets[1:4]) + (", …" if len(sheets) > 4 else "")
        warnings.warn(
            f"{path}: only the first sheet, {sheets[0].title!r}, is read, not {others}; save another sheet as its own "
            "file to read it.",
            UserWarning,
            stacklevel=2,
        )
    return copy


def _rows(sheet: Any, budget: Budget | None) -> Iterator[list[str]]:
    """Yield the rows that are not empty as texts, each at least as wide as the first."""
    width = 0
    for n, cells in enumerate(sheet.iter_rows(values_only=True)):
        if n >= _MOST_ROWS:
            raise TooLargeError(f"table: expected at most {_MOST_ROWS:,} rows in an Excel sheet, got more; use CSV.")
        if budget is not None:
            budget.check_cells(n, max(width, len(cells)))
        row = [_text(value) for value in cells]
        while row and not row[-1]:
            row.pop()
        if row:
            width = width or len(row)
            yield row + [""] * (width - len(row))


def _text(value: Any) -> str:
    """Return a cell as a CSV file has it; a time at midnight is a date."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        at_midnight = value.time() == datetime.time()
        return value.date().isoformat() if at_midnight else value.isoformat(" ")
    return str(value)


def _check_parts(file: IO[bytes], budget: Budget) -> None:
    """Raise an error if the parts of the file are too large when they are unpacked."""
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
    budget.check("parts in the file", len(parts), _MOST_PARTS, "save it again as .xlsx or CSV")
    most, total = budget.bytes // _XML, sum(part.file_size for part in parts)
    budget.check("bytes when unpacked", total, most, "send it in parts, or as CSV")
    most = max(_SMALLEST, budget.bytes // _SMALL)
    largest = max((part.file_size for part in parts if not part.filename.startswith(_LARGE)), default=0)
    budget.check("bytes of styles", largest, most, "send it as CSV")
    file.seek(0)
