"""Tables with one defect each: refused in one sentence by every command; what only looks different changes no answer.

The kinds are the keys of `DEFECTS`, `DEFECTS_OF_PROPORTIONS` and `HARMLESS`; a defect with several places is tried at
each of them, by `fit`, `predict` and `evaluate`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from histnetq.cli import main
from tests.cli.test_commands import write_tables
from tests.conftest import hard_unless

LABELLED = ["--bag", "tow", "--label", "species"]
N_ROWS = 96


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """rows.csv, its model, and what the commands answer."""
    folder = tmp_path_factory.mktemp("clean")
    before = os.getcwd()
    os.chdir(folder)
    write_tables(folder, n_bags=8)
    assert run("fit", "rows.csv", *LABELLED, "--method", "pacc", "-o", "model").exit_code == 0
    yield folder, answers("rows.csv")
    os.chdir(before)


@pytest.fixture
def folder(clean, tmp_path, monkeypatch):
    for name in ("rows.csv", "tows.csv"):
        shutil.copy(clean[0] / name, tmp_path)
    shutil.copytree(clean[0] / "model", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def answers(*tables):
    """What a model says about these tables, and what one that is learned from them says about rows.csv."""
    assert run("fit", *tables, *LABELLED, "--method", "pacc", "-o", "again", "--force").exit_code == 0
    found = []
    for model, sources in (("model", tables), ("again", ["rows.csv"])):
        predicted = run("predict", model, *sources, "--bag", "tow", "--json")
        measured = run("evaluate", model, *sources, *LABELLED, "--json")
        assert (predicted.exit_code, measured.exit_code) == (0, 0), predicted.output + measured.output
        found.append((predicted.stdout, measured.stdout))
    shutil.rmtree("again")
    return found


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows():
    return pd.read_csv("rows.csv").astype({"depth": object, "length": object})


def to_bytes(table, **options):
    return table.to_csv(index=False, lineterminator="\n", **options).encode()


def lines(change, at):
    """The clean file with one line changed; 0 is that of the names."""
    found = to_bytes(rows()).split(b"\n")
    found[at] = change(found[at])
    return b"\n".join(found)


def cell(text, column, at):
    table = rows()
    table.loc[at, column] = text
    return to_bytes(table, na_rep="")


def parquet(table=None, **options):
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(pd.read_csv("rows.csv")) if table is None else table, buffer, **options)
    return buffer.getvalue()


def retyped(column, values):
    table = pa.Table.from_pandas(pd.read_csv("rows.csv"))
    return parquet(table.set_column(table.schema.get_field_index(column), column, values))


def spoilt(content, at, by=b"\xff\xff\xff"):
    at %= len(content)
    return content[:at] + by + content[at + len(by) :]


def packed():
    return gzip.compress(to_bytes(rows()), mtime=0)


FIRST, MIDDLE, LAST = 1, N_ROWS // 2, N_ROWS
PLACES = (FIRST, MIDDLE, LAST)
NO_NUMBERS = ["long", "1,5", "0x1F", "12:30", "1.2.3", "--", "1 000", "1_000", "½", "5%", "€5", "#N/A", "n/a", "?"]
NO_NUMBERS += ["true", "[1]", "inf", "-inf", "Infinity", "1e400", "", "NA", "NaN", "null", "None", "1;2", "1.234,5"]
NO_NUMBERS += ["x" * 10_000]
NAMED = ["tow", "length", "depth", "species"]
EACH = ("fit", "predict", "evaluate")
BY_LABEL = ("fit", "evaluate")  # predict does not read labels

# The content of a file from its parameter, the parameters, the end of its name, and the commands that must refuse it.
DEFECTS = {
    "no number": (lambda text: cell(text, "length", 40), NO_NUMBERS, ".csv", EACH),
    "no number in the last row": (lambda text: cell(text, "depth", N_ROWS - 1), NO_NUMBERS[:8], ".csv", EACH),
    "no bag": (lambda at: cell("", "tow", at - 1), PLACES, ".csv", EACH),
    "no label": (lambda at: cell("", "species", at - 1), PLACES, ".csv", BY_LABEL),
    "an open quotation mark": (lambda at: lines(lambda line: b'"' + line, at), PLACES, ".csv", EACH),
    "an open mark in the last cell": (
        lambda at: lines(lambda line: line[::-1].replace(b",", b'",', 1)[::-1], at), (0, *PLACES), ".csv", EACH,
    ),
    "two open marks": (
        lambda at: lines(lambda line: b'"' + line, at).replace(b"\ntow3", b'\n"tow3', 1), PLACES, ".csv", EACH,
    ),
    "a mark within a cell": (lambda at: lines(lambda line: b't"' + line, at), PLACES, ".csv", EACH),
    "text after a mark": (lambda at: lines(lambda line: b'"t"' + line, at), PLACES, ".csv", EACH),
    "a cell too many": (lambda at: lines(lambda line: line + b",9", at), (0, *PLACES), ".csv", EACH),
    "a cell too few": (lambda at: lines(lambda line: line[: line.rindex(b",")], at), (0, *PLACES), ".csv", EACH),
    "two lines in one": (
        lambda at: lines(lambda line: line + b"," + line, at), PLACES, ".csv", EACH,
    ),
    "a NUL byte": (lambda at: lines(lambda line: line + b"\0", at), (0, *PLACES), ".csv", EACH),
    "another encoding": (
        lambda code: cell("é", "tow", 3).decode().replace("tow,", "töw,", 1).encode(code),
        ["latin1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"], ".csv", EACH,
    ),
    "a byte that is no text": (lambda at: lines(lambda line: b"\xff" + line, at), (0, *PLACES), ".csv", EACH),
    "a name twice": (
        lambda name: to_bytes(rows()).replace(b"\n", b",1\n").replace(b",1", f",{name}".encode(), 1), NAMED, ".csv",
        EACH,
    ),
    "a name changed": (lambda name: to_bytes(rows().rename(columns={name: name + "2"})), NAMED[:1], ".csv", EACH),
    "a feature renamed": (
        lambda name: to_bytes(rows().rename(columns={name: name.upper()})), ["length", "depth"], ".csv",
        ("predict", "evaluate"),
    ),
    "the label renamed": (
        lambda name: to_bytes(rows().rename(columns={"species": name})), ["kind", ""], ".csv", BY_LABEL,
    ),
    "no header": (lambda _: to_bytes(rows()).partition(b"\n")[2], [0], ".csv", EACH),
    "no rows": (lambda end: b"tow,length,species,depth" + end, [b"", b"\n", b"\r\n", b"\n\n\n"], ".csv", EACH),
    "nothing": (lambda content: content, [b"", b"\n", b" ", b"\xef\xbb\xbf", b"\r\n\r\n"], ".csv", EACH),
    "another format": (
        lambda make: make(),
        [packed, parquet, lambda: b"PK\x03\x04" + bytes(range(256)), lambda: b'{"tow": 1}', lambda: b"<html></html>"],
        ".csv", EACH,
    ),
    "spaces between cells": (lambda sep: to_bytes(rows(), sep=sep), [" ", ":", "\x1f"], ".csv", EACH),
    "two separators": (
        lambda sep: to_bytes(rows()[["tow", "length"]], sep=";").replace(b"\n", b",0;1\n").replace(b"0;1", b"a;b", 1),
        [0], ".csv", EACH,
    ),
    "decimal commas and points": (
        lambda _: to_bytes(rows().assign(length=rows()["length"].astype(str).str.replace(".", ",")).assign(
            depth=rows()["depth"] + 0.5), sep=";"), [0], ".csv", EACH,
    ),
    "signs between thousands": (
        lambda text: to_bytes(rows().assign(length=text), sep=";"),
        ["1,234", "1.234,5", "1,234.5", "1.234.567", "1 234,5", "1'234.5"], ".csv", EACH,
    ),
    "a row without end": (lambda n: cell("x" * n, "tow", 3), [12_000_000], ".csv", EACH),
    "a name of a million characters": (
        lambda _: to_bytes(rows().rename(columns={"length": "x" * 1_000_000})), [0], ".csv", EACH,
    ),
    "a packed file cut short": (lambda at: packed()[:at], [1, 5, 12, 200, -9, -1], ".csv.gz", EACH),
    "a packed file with wrong bytes": (lambda at: spoilt(packed(), at), [0, 2, 100, 500, -8, -4], ".csv.gz", EACH),
    "a packed file of something else": (
        lambda content: content, [b"tow,length\n", b"BZh91AY&SY", gzip.compress(b""), gzip.compress(bytes(9999))],
        ".csv.gz", EACH,
    ),
    "a packed line without end": (
        lambda n: gzip.compress(b"tow,length\n" + b"9" * n, 1), [20_000_000], ".csv.gz", EACH,
    ),
    "Parquet cut short": (lambda at: parquet()[:at], [0, 3, 200, -200, -9, -1], ".parquet", EACH),
    "Parquet with a wrong footer": (
        lambda at: spoilt(parquet(), at), [-4, -8, -20, -60, -300], ".parquet", EACH,
    ),
    "Parquet with wrong pages": (lambda at: spoilt(parquet(), at, b"\xff" * 24), [4, 30], ".parquet", EACH),
    "encrypted Parquet": (lambda end: parquet()[:-4] + end, [b"PARE"], ".parquet", EACH),
    "a bag of no type": (
        lambda make: retyped("tow", make()),
        [
            lambda: pa.array([[1]] * N_ROWS), lambda: pa.array([{"a": 1}] * N_ROWS),
            lambda: pa.array([b"\xff"] * N_ROWS),
            lambda: pa.nulls(N_ROWS), lambda: pa.array([[("a", 1)]] * N_ROWS, pa.map_(pa.string(), pa.int8())),
            lambda: pa.array([None] + [1.0] * (N_ROWS - 1)), lambda: pa.array([float("nan")] * N_ROWS),
        ], ".parquet", EACH,
    ),
    "a label of no type": (
        lambda make: retyped("species", make()),
        [
            lambda: pa.array([[1], [2]] * (N_ROWS // 2)), lambda: pa.array([{"a": 1}] * N_ROWS),
            lambda: pa.array([b"a", b"b"] * (N_ROWS // 2)), lambda: pa.nulls(N_ROWS),
        ], ".parquet", BY_LABEL,
    ),
    "a feature of no type": (
        lambda make: retyped("length", make()),
        [
            lambda: pa.array([[1.0]] * N_ROWS), lambda: pa.array([{"a": 1}] * N_ROWS),
            lambda: pa.array([b"1"] * N_ROWS),
            lambda: pa.array([1] * N_ROWS, pa.timestamp("us")), lambda: pa.array([1] * N_ROWS, pa.time64("us")),
            lambda: pa.array([1] * N_ROWS, pa.duration("us")), lambda: pa.nulls(N_ROWS),
            lambda: pa.array([None] + [1.0] * (N_ROWS - 1)), lambda: pa.array([float("inf")] * N_ROWS),
            lambda: pa.array([float("nan")] * N_ROWS), lambda: pa.array([["x"], None] * (N_ROWS // 2)),
        ], ".parquet", ("predict", "evaluate"),
    ),
}  # fmt: skip
# Commands share the code that reads tables: each tries two cases of a defect, and the first one all of them.
TRIED = hard_unless(
    lambda kind, i, command: i < 2 or command == DEFECTS[kind][3][0],
    [
        (kind, i, command)
        for kind, (_, parameters, _, commands) in DEFECTS.items()
        for i in range(len(parameters))
        for command in commands
    ],
)


def arguments(command, path):
    if command == "fit":
        return ["fit", path, *LABELLED, "--method", "pacc", "-o", "new"]
    return ["predict", "model", path, "--bag", "tow", "-o", "new.csv"] if command == "predict" else [
        "evaluate", "model", path, *LABELLED, "-o", "new.csv"]  # fmt: skip


def refuse(folder, path, *line):
    """The command line is refused by one sentence about the file or one of its columns, and nothing is left."""
    before = everything(folder)
    result = run(*line)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, f"silent: {result.output}"
    assert result.output.startswith("Error: "), result.output
    told = result.output.removeprefix("Error: ").removesuffix("\n")
    assert "\n" not in told
    assert told.endswith(".")
    assert path in told or any(repr(name) in told for name in NAMED), told
    assert len(told) < 1000
    assert everything(folder) == before


@pytest.mark.parametrize(("kind", "i", "command"), TRIED)
def test_a_defect_is_refused(folder, kind, i, command):
    make, parameters, end, _ = DEFECTS[kind]
    (folder / f"bad{end}").write_bytes(make(parameters[i]))
    refuse(folder, f"bad{end}", *arguments(command, f"bad{end}"))


def shares(change):
    return lambda: to_bytes(change(pd.read_csv("tows.csv").astype({"cod": object, "eel": object})))


def put(table, name, value):
    table.loc[2, name] = value
    return table


DEFECTS_OF_PROPORTIONS = {
    "no number": shares(lambda t: put(t, "cod", "few")),
    "nothing": shares(lambda t: put(t, "cod", None)),
    "infinity": shares(lambda t: put(t, "cod", "inf")),
    "a comma": shares(lambda t: put(t, "cod", "0,5")),
    "a negative number": shares(lambda t: put(t, "cod", -1)),
    "a wrong sum": shares(lambda t: put(t, "cod", 7)),
    "a bag twice": shares(lambda t: pd.concat([t, t[:1]])),
    "a bag too few": shares(lambda t: t[1:]),
    "a bag without a name": shares(lambda t: put(t, "tow", None)),
    "other bags": shares(lambda t: t.assign(tow="x")[:1]),
    "no bags": shares(lambda t: t[:0]),
    "no bag column": shares(lambda t: t.drop(columns="tow")),
    "no classes": shares(lambda t: t[["tow"]]),
    "one class": shares(lambda t: t[["tow"]].assign(cod=1)),
    "a class twice": lambda: b"tow,cod,cod\ntow0,1,0\n",
    "a value twice": lambda: b"tow,class,value\ntow0,cod,1\ntow0,cod,0\n",
    "a value without a class": lambda: b"tow,class,value\ntow0,,1\n",
    "an open mark": lambda: b'tow,cod,eel\n"tow0,1,0\n',
    "a cell too few": lambda: b"tow,cod,eel\ntow0,1\n",
    "an empty file": lambda: b"",
    "another encoding": lambda: "tow,kodå,eel\n".encode("latin1"),
}


@pytest.mark.parametrize("kind", DEFECTS_OF_PROPORTIONS)
def test_a_defect_of_proportions_is_refused(folder, kind):
    (folder / "shares.csv").write_bytes(DEFECTS_OF_PROPORTIONS[kind]())
    table = to_bytes(rows().drop(columns="species"))
    (folder / "bare.csv").write_bytes(table)
    line = ["evaluate", "model", "bare.csv", "--bag", "tow", "--prevalences", "shares.csv", "-o", "new.csv"]
    refuse(folder, "shares.csv", *line)


def test_what_is_no_file_is_refused(folder, monkeypatch):
    """A pipe would wait for a writer forever."""
    os.mkfifo("pipe.csv")
    os.mkdir("folder.csv")
    os.symlink("nowhere.csv", "broken.csv")
    os.symlink("loop.csv", "loop.csv")
    for path in ("pipe.csv", "folder.csv", "broken.csv", "loop.csv", "none.csv", "pip[e].csv"):
        for command in EACH:
            refuse(folder, path.replace("[e]", "e"), *arguments(command, path))

    def forbid(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("histnetq.tables.csv_files.open_bytes", forbid)
    refuse(folder, "rows.csv", *arguments("fit", "rows.csv"))


@pytest.mark.parametrize(
    "error", [MemoryError("malloc of size 1 failed"), SystemError("?"), pa.ArrowNotImplementedError("?")]
)
@pytest.mark.parametrize("end", [".csv", ".parquet"])
def test_a_reader_that_fails_is_told_with_the_file(folder, monkeypatch, error, end):
    def fail(*args, **kwargs):
        raise error

    (folder / "bad.parquet").write_bytes(parquet())
    (folder / "bad.csv").write_bytes(to_bytes(rows()))
    monkeypatch.setattr("pyarrow.csv.open_csv", fail)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", fail)
    for command in EACH:
        refuse(folder, f"bad{end}", *arguments(command, f"bad{end}"))


def test_memory_that_runs_out_is_told_in_a_sentence(folder, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr("histnetq.tables.row_buffers.Grown.add", fail)
    result = run(*arguments("fit", "rows.csv"))
    assert result.exit_code == 2
    assert result.output.startswith("Error: memory: expected enough for the rows, got too little (Unable to allocate 9")


def commas(table):
    return table.assign(length=table["length"].astype(str).str.replace(".", ","))


HARMLESS = {
    **{f"separated by {sep!r}": (lambda sep=sep: to_bytes(rows(), sep=sep), ".csv") for sep in ";\t|"},
    "all in quotation marks": (lambda: to_bytes(rows(), quoting=1), ".csv"),
    "texts in quotation marks": (lambda: to_bytes(rows(), quoting=2), ".csv"),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + to_bytes(rows()), ".csv"),
    "a byte order mark before a quotation mark": (lambda: b"\xef\xbb\xbf" + to_bytes(rows(), quoting=1), ".csv"),
    "lines of Windows": (lambda: to_bytes(rows()).replace(b"\n", b"\r\n"), ".csv"),
    "lines of old Macs": (lambda: to_bytes(rows()).replace(b"\n", b"\r"), ".csv"),
    "no last line break": (lambda: to_bytes(rows())[:-1], ".csv"),
    "empty lines": (lambda: b"\n" + to_bytes(rows()).replace(b"\n", b"\n\n"), ".csv"),
    "a column of texts": (lambda: to_bytes(rows().assign(note="none")), ".csv"),
    "a column of dates": (lambda: to_bytes(rows().assign(day="2020-02-02")), ".csv"),
    "an empty column": (lambda: to_bytes(rows().assign(note=None)), ".csv"),
    "a text of several lines": (lambda: to_bytes(rows().assign(note='one\n"two",\r\nthree')), ".csv"),
    "other order of columns": (lambda: to_bytes(rows()[["depth", "species", "length", "tow"]][NAMED]), ".csv"),
    "decimal commas": (lambda: to_bytes(commas(rows()), sep=";"), ".csv"),
    "decimal commas in quotation marks": (lambda: to_bytes(commas(rows())), ".csv"),
    "whole numbers with points": (lambda: to_bytes(rows().astype({"depth": float})), ".csv"),
    "exponents": (lambda: to_bytes(rows().assign(depth=rows()["depth"].map(lambda n: f"+{n}.0e0"))), ".csv"),
    "spaces about numbers": (lambda: to_bytes(rows().assign(depth=rows()["depth"].map(lambda n: f" {n} "))), ".csv"),
    "packed": (packed, ".csv.gz"),
    "packed in two pieces": (lambda: packed()[:0] + b"".join(gzip.compress(half) for half in halves()), ".csv.gz"),
    "as .txt": (lambda: to_bytes(rows()), ".txt"),
    "Parquet": (parquet, ".parquet"),
    "Parquet of many groups": (lambda: parquet(row_group_size=7), ".parquet"),
    "Parquet of categories": (
        lambda: retyped("species", pa.array(rows()["species"].tolist()).dictionary_encode()),
        ".parquet",
    ),
    "Parquet of long texts": (lambda: retyped("tow", pa.array(rows()["tow"].tolist(), pa.large_string())), ".parquet"),
}  # fmt: skip


def halves():
    content = to_bytes(rows())
    return content[:1000], content[1000:]


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_only_looks_different_changes_no_answer(folder, clean, kind):
    make, end = HARMLESS[kind]
    (folder / f"other{end}").write_bytes(make())
    assert answers(f"other{end}") == clean[1]


def test_pieces_of_other_kinds_change_no_answer(folder, clean):
    """Each file of a list has its own separator and decimal mark."""
    table = rows()
    (folder / "a.csv").write_bytes(to_bytes(table[:30]))
    (folder / "b.csv").write_bytes(to_bytes(commas(table[30:60]), sep=";"))
    (folder / "c.csv").write_bytes(to_bytes(table[60:], sep="\t", quoting=1))
    assert answers("a.csv", "b.csv", "c.csv") == clean[1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    "names", [(7, 8), (True, False), ("None", "NA"), ("nan", "null"), ("007", "7"), ("1.5", "2.5")]
)
def test_other_names_change_nothing_else(folder, clean, kind, names):
    table = pd.read_csv("rows.csv").replace({"species": dict(zip(["cod", "eel"], names, strict=True))})
    table = table.assign(tow=table["tow"].replace("tow1", str(names[0])))
    table.to_csv("named.csv", index=False)
    table.infer_objects().to_parquet("named.parquet")
    assert run("fit", f"named.{kind}", *LABELLED, "--method", "pacc", "-o", "named").exit_code == 0
    info = json.loads(run("info", "named", "--json").output)
    assert info["classes"] == sorted(names)
    for other in "named.csv", "named.parquet":
        found = json.loads(run("predict", "named", other, "--bag", "tow", "--json").stdout)
        expected = json.loads(clean[1][0][0])
        assert str(names[0]) in {row["tow"] for row in found}
        np.testing.assert_allclose(*(sorted(row["estimate"] for row in t) for t in (found, expected)), atol=1e-6)
        measured = json.loads(run("evaluate", "named", other, *LABELLED, "--json").stdout)
        assert measured["ae"] == pytest.approx(json.loads(clean[1][0][1])["ae"], abs=1e-6)


def test_there_are_enough_of_them():
    refused, same = len(TRIED) + len(DEFECTS_OF_PROPORTIONS), len(HARMLESS)
    kinds = len(DEFECTS) + len(DEFECTS_OF_PROPORTIONS)
    sys.stdout.write(f"{refused} malformed tables of {kinds} kinds refused, {same} harmless ones answered alike\n")
    assert refused >= 200
