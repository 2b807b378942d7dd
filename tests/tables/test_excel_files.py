"""Excel files: the same tables and answers as CSV files, and bounded memory for hostile files."""

from __future__ import annotations

import datetime
import io
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest

import histnetq as hq
from histnetq.tables.budget import Budget, TooLargeError, limited_to
from histnetq.tables.files import fill_table
from histnetq.tables.table_files import open_table


def write_rows(path, *sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for i, rows in enumerate(sheets):
        sheet = book.create_sheet(f"S{i}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return str(path)


def read_all(path):
    table = open_table(str(path), "source")
    texts = [name for name, kind in table.types.items() if str(kind) == "string"]
    return pd.concat([batch.to_pandas() for _, batch in table.batches(table.columns, texts)])


def test_bags_are_the_same_as_from_csv(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"tow": np.repeat([7, 8, 9], 20), "length": rng.normal(size=60), "kind": ["cod", "eel"] * 30})
    rows.loc[3, "length"] = np.nan
    totals = pd.DataFrame({"tow": [7, 8, 9], "cod": [1, 2, 3], "eel": [3, 2, 1]})
    for name, table in (("rows", rows), ("totals", totals)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.to_excel(tmp_path / f"{name}.xlsx", index=False)
    found = {}
    for end in ("csv", "xlsx"):
        labelled = hq.read_bags(tmp_path / f"rows.{end}", bag="tow", label="kind", missing="drop")
        known = hq.read_bags(
            tmp_path / f"rows.{end}", bag="tow", features=["length"], prevalences=tmp_path / f"totals.{end}",
            counts=True, missing="drop",
        )  # fmt: skip
        found[end] = (labelled.rows, labelled.prevalences, known.prevalences, labelled.ids, labelled.index)
    for csv, excel in zip(found["csv"], found["xlsx"], strict=True):
        np.testing.assert_array_equal(csv, excel)


def test_cells_are_read_as_their_kinds(tmp_path):
    header = ["tow", "day", "ok", "x", "text"]
    first = ["007", datetime.datetime(2026, 1, 2), True, 1, "a, b\nc"]
    second = ["008", datetime.datetime(2026, 1, 3, 4, 5), False, 2.5, None]
    path = write_rows(tmp_path / "rows.xlsx", [header, first, [None] * 5, second])
    assert next(open_table(path, "source").batches([], ["tow"]))[1].column("tow").to_pylist() == ["007", "008"]
    found = read_all(path)
    assert found["day"].tolist() == ["2026-01-02", "2026-01-03 04:05:00"]
    assert found["x"].tolist() == [1.0, 2.5]
    assert found["ok"].tolist() == [True, False]
    assert found["text"].iloc[0] == "a, b\nc"
    assert pd.isna(found["text"].iloc[1])


def test_only_the_first_sheet_is_read_with_a_warning(tmp_path):
    path = write_rows(tmp_path / "rows.xlsx", [["x"], [1]], [["y"], [2]], [["z"], [3]])
    told = "only the first sheet, 'S0', is read, not 'S1', 'S2'; save another sheet as its own file to read it."
    with pytest.warns(UserWarning, match="sheet") as warned:
        assert open_table(path, "source").columns == ["x"]
    assert [str(one.message) for one in warned] == [f"{path}: {told}"]


def test_a_title_above_the_columns_is_refused(tmp_path):
    path = write_rows(tmp_path / "rows.xlsx", [["Catches of 2026"], [], ["tow", "a", "b", "c"], *[[1, 2, 3, 4]] * 5])
    with pytest.raises(ValueError) as error:
        open_table(path, "source")
    assert str(error.value) == (
        f"{path}: begins with the title 'Catches of 2026', expected the line of column names, perhaps 'tow', 'a', 'b', "
        "…; delete this line."
    )


def test_a_text_among_numbers_names_its_row(tmp_path):
    path = write_rows(tmp_path / "rows.xlsx", [["x", "y"], [1, 2], ["n.a", 3], *[[1, 2]] * 5])
    with pytest.raises(ValueError, match=r"column 'x' holds numbers and the text 'n.a' \(row 2\); correct it"):
        read_all(path)


@pytest.mark.parametrize("content", [b"", b"tow,x\n1,2\n", b"PK\x03\x04 nothing"])
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "rows.xlsx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows.xlsx: cannot be read as Excel \(.*\); save it again as .xlsx or CSV\."):
        open_table(str(path), "source")


def repacked(path, part, text):
    """Write the file again with other contents of one part."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in {**parts, part: text}.items():
            new.writestr(name, content)
    path.write_bytes(packed.getvalue())


SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData></worksheet>'
)


def test_entities_are_refused(tmp_path):
    path = tmp_path / "rows.xlsx"
    write_rows(path, [["x"], [1]])
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'
    repacked(
        path, "xl/worksheets/sheet1.xml", bomb + SHEET.format("<row><c t='inlineStr'><is><t>&b;</t></is></c></row>")
    )
    with pytest.raises(ValueError, match="cannot be read as Excel"):
        open_table(str(path), "source")


def test_unpacked_sizes_are_limited(tmp_path):
    path = tmp_path / "rows.xlsx"
    write_rows(path, [["x"], [1]])
    repacked(path, "xl/worksheets/sheet1.xml", SHEET.format("<row/>" * 4_000_000))
    with limited_to(Budget(64 << 20)), pytest.raises(TooLargeError, match="bytes when unpacked"):
        open_table(str(path), "source")
    write_rows(path, [["x"], [1]])
    repacked(path, "xl/styles.xml", "<a>" * 200_000)
    with limited_to(Budget(64 << 20)), pytest.raises(TooLargeError, match="bytes of styles"):
        open_table(str(path), "source")


def test_a_cell_far_away_takes_no_memory(tmp_path):
    path = tmp_path / "rows.xlsx"
    write_rows(path, [["x"], [1]])
    far = "".join(f'<row r="{n}"><c r="XFD{n}"><v>1</v></c></row>' for n in range(1, 2000))
    repacked(path, "xl/worksheets/sheet1.xml", SHEET.format(far))
    with (
        limited_to(Budget(64 << 20)),
        pytest.raises(TooLargeError, match="expected at most 10,000 columns, got 16,384"),
    ):
        open_table(str(path), "source")


def test_formulas_and_missing_numbers_are_written_as_text_and_nothing(tmp_path):
    path = tmp_path / "out.xlsx"
    table = pd.DataFrame({"tow": ["=1+1", "b"], "x": [np.nan, np.inf], "n": np.array([1, 2], np.int32)})
    table["day"] = pd.to_datetime(["2026-01-01", None])
    fill_table(table, path, path)
    sheet = openpyxl.load_workbook(path).active
    assert [[cell.value for cell in row] for row in sheet.rows] == [
        ["tow", "x", "n", "day"], ["=1+1", None, 1, datetime.datetime(2026, 1, 1)], ["b", None, 2, None]
    ]  # fmt: skip
    assert sheet["A2"].data_type == "s"


def test_what_excel_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "out.xlsx"
    with pytest.raises(ValueError, match=r"out.xlsx: the name or text 'a.x01' has a control character, which"):
        fill_table(pd.DataFrame({"x": ["a\x01"]}), path, path)
    with pytest.raises(
        ValueError, match=r"out.xlsx: expected texts of at most 32,767 characters .*, got one of 40,000"
    ):
        fill_table(pd.DataFrame({"x": ["a" * 40_000]}), path, path)
    with pytest.raises(ValueError, match=r"out.xlsx: expected at most 1,048,575 rows .*, got 1,048,576 rows"):
        fill_table(pd.DataFrame({"x": np.zeros(1_048_576)}), path, path)
