"""One account of bytes for all readers of tables and all answers."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import histnetq as hq
from histnetq.sketches.sketch import BagSketch, is_sketch
from histnetq.tables import budget as budgets
from histnetq.tables.budget import Budget, Charge, TooLargeError, limited_to, name_array
from histnetq.tables.columns import Codes
from histnetq.tables.parquet_files import read_parquet, read_parquet_schema
from histnetq.tables.row_buffers import Grown
from histnetq.tables.table_files import open_table
from histnetq.web import jobs, learning
from histnetq.web.children import environment
from histnetq.web.errors import RefusedError, in_one_sentence
from histnetq.web.json_rows import rows_as_table
from histnetq.web.limits import TableLimits
from histnetq.web.serializers import csv_parts, describe_estimates, json_parts
from histnetq.web.tables import Tables, look_at
from histnetq.web.uploads import Spool
from histnetq.workflows.estimating import sort_estimates

MB = 1 << 20


def exactly(sentence):
    return f"^{re.escape(sentence)}$"


def repeated(text, n):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), [text])


def written(path, columns, **options):
    parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return str(path)


def test_only_one_module_opens_parquet_files():
    source = Path(hq.__file__).parent
    opens = re.compile(r"\b(ParquetFile|ParquetDataset|parquet\.read_\w+|(pd|pl|pandas|polars)\.(read|scan)_parquet)\(")
    lines = ((path, line) for path in source.rglob("*.py") for line in path.read_text().splitlines())
    found = {path.name for path, line in lines if opens.search(line) and ">>>" not in line}
    assert found == {"parquet_files.py"}


def test_repeated_texts_are_read_once(tmp_path):
    path = written(tmp_path / "rows.parquet", {"x": repeated("y" * 60_000, 100_000)})
    with limited_to(Budget(64 * MB)):
        (batch,) = read_parquet(path, ["x"])
    assert batch.num_rows == 100_000
    assert batch.nbytes < MB


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_texts_are_the_same_however_they_are_written(tmp_path, use_dictionary):
    frame = pd.DataFrame({"tow": ["b", "a", "b", None], "x": [1.0, 2.0, 3.0, 4.0], "kind": ["u", None, "v", "u"]})
    path = written(tmp_path / "rows.parquet", pa.Table.from_pandas(frame), use_dictionary=use_dictionary)
    bags = hq.read_bags(path, features=["x", "kind"], missing="drop")
    expected = hq.read_bags(frame, features=["x", "kind"], missing="drop")
    assert bags.feature_names == expected.feature_names == ["x", "kind=u", "kind=v"]
    np.testing.assert_array_equal(bags.rows, expected.rows)
    with pytest.raises(ValueError, match=r"row 4 has nothing in column 'tow'"):
        hq.read_bags(path, bag="tow", features=["x"])


def test_cells_rows_columns_and_values_are_limited(tmp_path):
    long = written(tmp_path / "long.parquet", {"x": repeated("y" * 350_000, 9)})
    sentence = "table: column 'x' has a cell of 350,000 bytes, expected at most 65,536; shorten it."
    with limited_to(Budget(64 * MB)), pytest.raises(TooLargeError, match=exactly(sentence)):
        next(read_parquet(long, ["x"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 9_000_000], pa.int32()), pa.array(np.zeros(9_000_000)))
    path = written(tmp_path / "lists.parquet", {"x": lists})
    sentence = "table: expected at most 67,108,864 bytes when unpacked, got 72,00"
    with limited_to(Budget(64 * MB)), pytest.raises(TooLargeError, match=re.escape(sentence)):
        read_parquet_schema(path)
    fixed = pa.array([b"y" * 50_000] * 10, pa.binary(50_000)).take(pa.array(np.zeros(2000, np.int64)))
    path = written(tmp_path / "fixed.parquet", {"x": fixed})
    sentence = "table: expected at most 67,108,864 bytes when unpacked, got 100,000,000; send it in parts."
    with limited_to(Budget(64 * MB)), pytest.raises(TooLargeError, match=exactly(sentence)):
        read_parquet_schema(path)
    texts = {"x": ["y" * 60_000] * 400}
    path = written(tmp_path / "page.parquet", texts, use_dictionary=False, data_page_size=1 << 30, compression="zstd")
    sentence = (
        "table: column 'x' has a page of 24,001,607 bytes when unpacked, expected at most 16,777,216; write smaller "
        "pages or groups of rows."
    )
    with limited_to(Budget(64 * MB)), pytest.raises(TooLargeError, match=exactly(sentence)):
        read_parquet_schema(path)


def test_lists_of_different_texts_are_limited(tmp_path):
    texts = [f"{i}".ljust(2000) for i in range(10_000)]
    path = written(tmp_path / "rows.parquet", {"x": texts}, compression="zstd")
    with limited_to(Budget(64 * MB)), pytest.raises(TooLargeError, match="in a group of rows, expected at most 16,777"):
        next(read_parquet(path, ["x"]))


def test_columns_that_hold_no_names_are_not_read(tmp_path):
    path = written(tmp_path / "rows.parquet", {"x": [[1.0], [2.0]], "y": [1.0, 2.0]})
    table = open_table(path, "source")
    for numbers, names, expected in ((["x"], [], "numbers"), ([], ["x"], "texts or numbers")):
        sentence = f"{path}: column 'x' holds list<element: double>, expected {expected}; convert it."
        with pytest.raises(ValueError, match=exactly(sentence)):
            next(table.batches(numbers, names))
    assert hq.read_bags(path).feature_names == ["y"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_names_have_at_most_1000_characters(tmp_path, ending):
    path = str(tmp_path / f"rows.{ending}")

    def write(frame):
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)

    write(pd.DataFrame({"tow": ["é" * 1000, "b"], "x": [1.0, 2.0]}))
    assert len(hq.read_bags(path, bag="tow", features=["x"])) == 2
    write(pd.DataFrame({"tow": ["é" * 1001, "b"], "x": [1.0, 2.0]}))
    for option in ("bag", "label"):
        sentence = f"{path}: column 'tow' has a name of 1,001 characters, expected at most 1,000; shorten it."
        with pytest.raises(ValueError, match=exactly(sentence)):
            hq.read_bags(path, features=["x"], **{option: "tow"})
    write(pd.DataFrame({"y" * 1001: [1.0, 2.0], "x": [1.0, 2.0]}))
    sentence = (
        f"{path}: has a column name of 1,001 characters ('yyyyyyyyyyyyyyyyyyyy'…), expected at most 1,000; rename the "
        "column."
    )
    with pytest.raises(ValueError, match=exactly(sentence)):
        hq.read_bags(path, features=["x"])


def test_names_rows_and_sketches_are_charged_and_given_back():
    batch = pa.record_batch({"tow": pa.array(np.arange(10_000))})
    with limited_to(Budget(9 * MB)) as budget:
        codes = Codes("rows.csv", ["tow"])
        codes.of(batch, 0)
        taken = budget.spent
        assert 10_000 * 800 < taken < 9 * MB
        codes.of(batch, 0)  # they are known
        assert budget.spent == taken
        sentence = "memory: expected at most 9,437,184 bytes, names of bags take more; use fewer bags or shorter names."
        with pytest.raises(TooLargeError, match=exactly(sentence)):
            codes.of(pa.record_batch({"tow": pa.array(np.arange(10_000, 20_000))}), 0)
        del codes
        assert budget.spent == 0
        grown = Grown(np.float64, (10,))
        grown.add(np.zeros((10_000, 10)))
        assert budget.spent == 3 * grown.array.nbytes
        sentence = "memory: expected at most 9,437,184 bytes, 50,000 rows take more; send the table in parts."
        with pytest.raises(TooLargeError, match=exactly(sentence)):
            grown.add(np.zeros((40_000, 10)))
        del grown
        assert budget.spent == 0


def test_one_long_name_counts_for_all():
    names = ["y" * 1000, *map(str, range(999))]
    with limited_to(Budget(MB)):
        sentence = (
            "memory: expected at most 1,048,576 bytes, 1,000 names of up to 1,000 characters take more; use fewer "
            "bags or shorter names."
        )
        with pytest.raises(TooLargeError, match=exactly(sentence)):
            name_array(names)
        assert name_array(names[1:]).nbytes < 20_000
    assert name_array(names).nbytes == 4_000_000


def test_a_table_has_a_bounded_number_of_classes():
    frame = pd.DataFrame({"x": np.arange(20.0), "label": [f"c{i}" for i in range(20)]})
    sentence = "table: expected at most 10 classes, got 20; label rows by another column than 'label'."
    with limited_to(Budget(MB, columns=10)), pytest.raises(TooLargeError, match=exactly(sentence)):
        hq.read_bags(frame, label="label", features=["x"])


def sketch_file(tmp_path, **changed):
    model = hq.CC(random_state=0).fit(np.array([[0.0], [1.0]] * 10), ["a", "b"] * 10)
    sink = io.BytesIO()
    model.sketch(hq.Bags([[0.0], [1.0]], offsets=[0, 1, 2], ids=["x", "y"])).save(sink)
    table = parquet.read_table(sink)
    n = len(next(iter(changed.values())))
    table = table.take(pa.array(np.zeros(n, np.int64)))
    for name, column in changed.items():
        place = table.column_names.index(name) if name in table.column_names else len(table.column_names)
        table = table.append_column(name, column) if place == len(table.column_names) else table.set_column(
            place, name, column)  # fmt: skip
    return written(tmp_path / "sketch.parquet", table, compression="zstd")


def test_files_of_sketches_are_read_within_the_budget(tmp_path):
    path = sketch_file(tmp_path, id=pa.array([f"{i}".ljust(500) for i in range(9000)]))
    assert len(BagSketch.load(path)) == 9000
    sentence = "memory: expected at most 8,388,608 bytes, sketches of 9,000 bags take more; send fewer."
    with limited_to(Budget(8 * MB)):
        assert is_sketch(path)
        with pytest.raises(TooLargeError, match=exactly(sentence)):
            BagSketch.load(path)
    path = sketch_file(tmp_path, id=pa.array(np.arange(9000)), more=repeated("y" * 60_000, 9000))
    with limited_to(Budget(16 * MB)):
        assert len(BagSketch.load(path)) == 9000  # the further column is not read
    numbers = pa.FixedSizeListArray.from_arrays(np.zeros(4_000_000), 2_000_000)
    path = sketch_file(tmp_path, values=numbers)
    with limited_to(Budget(64 * MB)), pytest.raises(ValueError, match="has a damaged column 'values', expected number"):
        BagSketch.load(path)


def test_previews_write_out_few_texts(tmp_path):
    path = Path(written(tmp_path / "rows.parquet", {"x": repeated("y" * 60_000, 20_000), "z": np.arange(20_000.0)}))
    about = look_at(path, 0, TableLimits(64 * MB))
    assert about["rows"] == 20_000
    assert [column["kind"] for column in about["columns"]] == ["text", "number"]
    assert about["preview"][0] == ["y" * 79 + "…", "0"]
    path = Path(written(tmp_path / "long.parquet", {"x": repeated("y" * 70_000, 9)}))
    with pytest.raises(TooLargeError, match="has a cell of 70,000 bytes"):
        look_at(path, 0, TableLimits(64 * MB))


def test_rows_as_json_are_read_some_at_a_time():
    rows = [{"x": 1, "y": "a"}] * 200_000 + [{"x": 2.5, "z": True}]
    table = rows_as_table(json.dumps(rows).encode(), TableLimits(64 * MB))
    assert table.num_rows == 200_001
    assert table.slice(200_000).to_pylist() == [{"x": 2.5, "y": None, "z": True}]
    long = b'[{"x": 1}, {"x": "' + b"y" * 5_000_000 + b'"}]'
    sentence = "body: a row has more than 4,194,304 characters, expected fewer; shorten it."
    with pytest.raises(RefusedError, match=exactly(sentence)):
        rows_as_table(long + b" " * 20_000_000, TableLimits(64 * MB))
    for body in (b'[{"x": 1} {"x": 2}]', b'[{"x": 1},]', b'[{"x": 1}', b'[{"x": 1}] 2', b'[{"x": ' + b"[" * 500_000):
        with pytest.raises(RefusedError, match=r"^body: cannot be read as JSON"):
            rows_as_table(body, TableLimits(MB))
    for body in (b'{"x": 1}', b"7", b"[1, 2]", b'[[{"x": 1}]]'):
        with pytest.raises(RefusedError, match=r"^body: expected a list of objects"):
            rows_as_table(body, TableLimits(MB))


def estimates(n_bags, classes):
    values = np.full((n_bags, len(classes)), 1 / len(classes))
    names = pd.DataFrame({"tow": [f"t{i}" for i in range(n_bags)]})
    return sort_estimates(names, np.ones(n_bags, int), ["ok"] * n_bags, np.array(classes), {"estimate": values})


@pytest.mark.parametrize("wide", [False, True])
def test_answers_in_parts_are_the_same_and_bounded(wide):
    found = estimates(9000, ["cod", "eel"])
    frame = found.to_frame(wide)
    assert "".join(csv_parts(found, wide)) == frame.to_csv(index=False, lineterminator="\n")
    told = "".join(json_parts(found, wide))
    assert json.loads(told) == json.loads(frame.to_json(orient="records"))
    long = estimates(9000, ["y" * 60_000, "z" * 60_000])
    assert max(map(len, itertools.islice(json_parts(long, wide), 100))) < 2 * MB
    sentence = "response: it would have more than 8,388,608 bytes, which is the limit; send fewer bags."
    with pytest.raises(RefusedError, match=exactly(sentence)) as refused:
        list(TableLimits(8 * MB).answered(json_parts(long, wide), "send fewer bags"))
    assert refused.value.status == 413


def test_few_numbers_of_many_classes_are_shown():
    told = describe_estimates(estimates(200, [f"c{i}" for i in range(1000)]))
    assert (told["n_bags"], told["shown_bags"], len(told["bags"])) == (200, 100, 100)


def test_few_letters_of_long_names_are_shown():
    found = estimates(3000, ["a", "b"])
    named = found.names.assign(**{found.names.columns[0]: [f"{i:04}".ljust(1000, "y") for i in range(3000)]})
    told = describe_estimates(dataclasses.replace(found, names=named))
    assert told["n_bags"] == 3000
    assert told["shown_bags"] == len(told["bags"]) == 998


def test_previews_of_many_columns_have_few_cells(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({f"c{i}": ["y"] * 20 for i in range(3000)}), path)
    preview = look_at(path, 0, TableLimits(64 * MB))["preview"]
    assert (len(preview), len(preview[0])) == (3, 3000)


def test_jobs_together_are_asked_for_little(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_MOST_ASKED", 1000)
    kept = jobs.Jobs(Spool(tmp_path, "x"))
    first = kept.add("estimate", {"bag": "y" * 600})
    with pytest.raises(RefusedError, match=exactly("jobs: 1 of them run or wait, which is the most; try again later.")):
        kept.add("estimate", {"bag": "y" * 600})
    first.cancel()
    second = kept.add("estimate", {"bag": "y" * 600})
    assert kept.listed() == [second]


def test_what_is_told_of_tables_is_kept_in_files(tmp_path):
    tables = Tables(Spool(tmp_path, "x"), TableLimits(MB))
    table = tables.keep(tables.begin("rows.csv", 10), 7, {"rows": 3, "columns": [{"name": "a", "kind": "text"}]})
    assert (table.n_bytes, table.n_rows) == (7, 3)
    assert table.describe() == {"id": table.id, "name": "rows.csv", "bytes": 7, "rows": 3, "expires_in": 3600.0,
                                "columns": [{"name": "a", "kind": "text"}]}  # fmt: skip
    assert "text" not in repr(vars(table))


def test_sentences_are_short():
    assert len(in_one_sentence("source: " + "y" * 100_000 + "; rename it.")) < 2100
    assert in_one_sentence("source: " + "y" * 100_000 + "; rename it.").endswith("; rename it.")


def test_processes_get_the_budget_by_their_environment():
    given = Budget(123, rows=4, columns=5, cell_bytes=6)
    code = "from histnetq.tables.budget import current_budget; print(current_budget())"
    variables = {**environment(), **given.to_environment()}
    assert budgets.VARIABLE in variables
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert done.stdout.strip() == str(given), done.stderr


def test_a_charge_without_a_budget_is_free():
    charge = Charge()
    charge.grow_to(1 << 60, "rows", "send fewer")
    assert charge.n_bytes == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the system bounds no other process")
def test_a_process_that_learns_has_bounded_memory():
    code = "input(); bytearray(1 << 30)"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    learning._bound_memory(process.pid, 256 * MB)
    assert "MemoryError" in process.communicate("\n")[1]
    learning._bound_memory(process.pid, 256 * MB)  # it has ended


@pytest.mark.parametrize(
    ("code", "errors", "sentence"),
    [
        (-9, [], "memory: learning needs more than the 512 MB that it may take; use fewer rows."),
        (-6, [], "memory: learning needs more than the 512 MB that it may take; use fewer rows."),
        (2, ["memory: expected enough for the rows, got too little (x); use --scratch."],
         "memory: learning needs more than the 512 MB that it may take; use fewer rows."),
        (2, ["[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"],
         "memory: learning needs more than the 512 MB that it may take; use fewer rows."),
        (2, ["rows.parquet: cannot be read (malloc of size 1050112 failed); write it again."],
         "memory: learning needs more than the 512 MB that it may take; use fewer rows."),
        (2, ["label: expected 2 classes; add rows."], "label: expected 2 classes; add rows."),
        (3, [], "server: learning ended with code 3; try again."),
    ],
)  # fmt: skip
def test_a_process_that_ends_for_lack_of_memory_is_told(code, errors, sentence):
    process = learning._Process.__new__(learning._Process)
    process._errors = errors
    assert process._failure(code, 512 * MB) == sentence
