"""Where ``-o`` writes: files are replaced as a whole, links and devices stay what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.report.page import write_report
from histnetq.tables.files import fill_table, refuse_existing, whole_file


def write(path, text="new"):
    with whole_file(path) as partial:
        partial.write_text(text)


def test_a_link_is_written_through(tmp_path):
    target, link = tmp_path / "there" / "target.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["link.csv", "target.csv", "there"]


def test_a_link_to_nothing_makes_its_target(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to("target.csv")
    refuse_existing(link, force=False)
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "target.csv").read_text() == "new"


def test_a_loop_of_links_stays(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to("link.csv")
    with pytest.raises(OSError, match=r"output: .*link.csv cannot be written \(Too many levels of symbolic links\)"):
        write(link)
    assert link.is_symlink()


def test_a_failure_leaves_what_a_link_points_to(tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(TypeError):
        write(link, 7)
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.csv", "target.csv"]


def test_a_named_pipe_is_refused_at_once_and_stays(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    told = f"output: {pipe} is a named pipe, which is not written to; choose another place."
    for attempt in (
        lambda: write(pipe), lambda: refuse_existing(pipe, force=False), lambda: refuse_existing(pipe, force=True)
    ):  # fmt: skip
        with pytest.raises(OSError) as refused:
            attempt()
        assert str(refused.value) == told
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_that_this_process_has_open_is_written_to():
    reading, writing = os.pipe()
    refuse_existing(Path(f"/dev/fd/{writing}"), force=False)
    write(Path(f"/dev/fd/{writing}"))
    os.close(writing)
    with open(reading) as file:
        assert file.read() == "new"


def test_a_pipe_that_nobody_reads_any_more_is_not_waited_for():
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(OSError, match=r"output: /dev/fd/\d+ cannot be written \((No such|Broken)"):
        write(Path(f"/dev/fd/{writing}"))
    os.close(writing)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(OSError, match=r"output: .* cannot be written \(it is a directory\); choose another place\."):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_socket_is_refused_and_stays(tmp_path, monkeypatch):
    import socket

    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("place")
        with pytest.raises(
            OSError, match=r"output: .*place is a socket, which is not written to; choose another place"
        ):
            write(tmp_path / "place")
    assert (tmp_path / "place").is_socket()


def test_devices_are_written_to(tmp_path):
    null = os.stat("/dev/null")
    code = (
        "from pathlib import Path; from histnetq.tables.files import whole_file, refuse_existing\n"
        "for name in ('/dev/null', '/dev/stdout'):\n"
        "    refuse_existing(Path(name), False)\n"
        "    with whole_file(Path(name)) as partial: partial.write_text(name)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "/dev/stdout"
    assert os.stat("/dev/null").st_rdev == null.st_rdev


def test_files_are_refused_unless_they_may_be_replaced(tmp_path):
    path = tmp_path / "there.csv"
    path.write_text("old")
    with pytest.raises(FileExistsError, match="exists; choose another name or pass overwrite=True"):
        refuse_existing(path, force=False)
    write(path)
    assert path.read_text() == "new"


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model of the classes =cod and -1, which are learned from rows.csv."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    kind = np.where(rng.random(200) < 0.5, "=cod", "-1")
    rows = pd.DataFrame(
        {"tow": np.repeat(list("abcd"), 50), "x": rng.normal(size=200) + 3 * (kind == "-1"), "kind": kind}
    )
    rows["ts"] = pd.date_range("2026-01-01", periods=200).astype(str)
    rows.to_csv("rows.csv", index=False)
    hq.CC(random_state=0).fit(rows[["x"]], rows["kind"]).save("model")
    return rows


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        (["predict", "model", "rows.csv", "-o", "pipe"], "--output"),
        (["predict", "model", "rows.csv", "-o", "pipe", "--force"], "--output"),
        (["predict", "model", "rows.csv", "--rows", "pipe"], "--rows"),
        (["fit", "rows.csv", "--label", "kind", "--method", "cc", "-o", "pipe", "--force"], "--output"),
        (["report", "model", "rows.csv", "--bag", "tow", "-o", "pipe"], "--output"),
        (["sketch", "model", "rows.csv", "--bag", "tow", "-o", "pipe"], "--output"),
        *((["monitor", "model", "rows.csv", "--time", "ts", "--period", "M", "--reference", "2026-01..2026-03", name,
            "pipe"], name) for name in ("--output", "--csv", "--prometheus", "--state")),
    ],
)  # fmt: skip
def test_no_command_waits_for_a_reader_of_its_output(model, typed, option):
    os.mkfifo("pipe")
    before = sorted(os.listdir())
    found = run(*typed)
    told = f"Error: {option}: pipe is a named pipe, which is not written to; choose another place.\n"
    assert (found.exit_code, found.output) == (2, told)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("argument", [["pipe.csv"], ["rows.csv", "pipe.csv"]])
def test_a_pipe_as_input_is_refused(model, argument):
    os.mkfifo("pipe.csv")
    found = run("predict", "model", *argument)
    assert found.output == "Error: NEW: pipe.csv is not a regular file; write the table to one first.\n"


RUN = "which a spreadsheet runs as a formula"
FORMULA = f"{RUN}; texts are written unchanged, so import them there as text, or write .xlsx or Parquet."


def test_formulas_are_written_as_they_are_with_one_warning(model):
    told = f"Warning: CSV: column 'class' has '=cod', {FORMULA}\n"
    found = run("predict", "model", "rows.csv", "--bag", "tow", "-o", "out.csv")
    uncalibrated, _, _ = found.stderr.partition("Warning: CSV")
    assert found.stderr == uncalibrated + told
    assert run("predict", "model", "rows.csv", "--bag", "tow").stderr == uncalibrated + told
    assert list(pd.read_csv("out.csv", dtype=str)["class"].unique()) == ["-1", "=cod"]
    wide = run("predict", "model", "rows.csv", "--bag", "tow", "--wide", "-o", "wide.csv")
    assert wide.stderr == f"{uncalibrated}Warning: CSV: a column is named '=cod', {FORMULA}\n"
    assert run("predict", "model", "rows.csv", "--bag", "tow", "-o", "out.parquet").stderr == uncalibrated
    assert run("predict", "model", "rows.csv", "--bag", "tow", "-o", "out.xlsx").stderr == uncalibrated


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_what_spreadsheets_run_is_told(tmp_path, text):
    table = pd.DataFrame({"tow": ["a", text], "estimate": [-0.1, 0.1]})
    with pytest.warns(UserWarning, match="CSV: ") as told:
        fill_table(table, tmp_path / "out.csv", tmp_path / "out.csv")
    assert [str(one.message) for one in told] == [f"CSV: column 'tow' has {text!r}, {FORMULA}"]
    with pytest.warns(UserWarning, match="column 'tow' has"):
        fill_table(table.set_index("tow"), tmp_path / "indexed.csv", tmp_path / "indexed.csv", index=True)
    for name in ("out.csv", "indexed.csv"):
        assert (tmp_path / name).read_bytes().decode() == f"tow,estimate\na,-0.1\n{text},0.1\n"


@pytest.mark.filterwarnings("error")
def test_numbers_and_single_signs_are_no_formulas(tmp_path):
    table = pd.DataFrame({"tow": ["-0.1", "+3", "-", "a=b", ""], "estimate": [-0.1, -1e-9, 0, 1, np.nan]})
    fill_table(table, tmp_path / "out.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "-0.1,-0.1"


READERS = {
    ".csv": pd.read_csv, ".tsv": lambda path: pd.read_csv(path, sep="\t"), ".csv.gz": pd.read_csv,
    ".parquet": pd.read_parquet, ".xlsx": pd.read_excel, ".json": pd.read_json,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:CSV")
@pytest.mark.parametrize("ending", READERS)
def test_an_output_file_has_the_format_of_its_name(model, ending):
    for arguments in (["-o", f"out{ending}"], ["-o", "out.csv", "--force", "--rows", f"rows{ending}"]):
        assert run("predict", "model", "rows.csv", "--bag", "tow", *arguments).exit_code == 0
    estimates, rows = READERS[ending](f"out{ending}"), READERS[ending](f"rows{ending}")
    expected = pd.read_csv("out.csv")
    pd.testing.assert_frame_equal(estimates[["tow", "estimate", "n"]], expected[["tow", "estimate", "n"]], rtol=1e-9)
    assert estimates["class"].astype(str).tolist() == expected["class"].tolist()
    assert len(rows) == 200


TABLES = "a file name that ends in .csv, .parquet, .xlsx, .jsonl or .json"


@pytest.mark.parametrize(
    ("typed", "option", "expected", "remedy"),
    [
        (["predict", "model", "rows.csv", "-o", "est.xls"], "--output", TABLES, "choose one of these formats"),
        (["predict", "model", "rows.csv", "--rows", "rows.feather"], "--rows", TABLES, "choose one of these formats"),
        (["evaluate", "model", "rows.csv", "--bag", "tow", "--label", "kind", "-o", "errors.docx"], "--output", TABLES,
         "choose one of these formats"),
        (["report", "model", "rows.csv", "--bag", "tow", "-o", "rep.pdf"], "--output",
         "a file name that ends in .html or .htm", "write HTML, which a browser can print as PDF"),
        (["monitor", "model", "rows.csv", "--time", "ts", "--reference", "2026-01..2026-03", "-o", "m.csv"], "--output",
         "a file name that ends in .html or .htm", "write HTML, which a browser can print as PDF"),
        (["sketch", "model", "rows.csv", "--bag", "tow", "-o", "sketches.csv"], "--output",
         "a file name that ends in .parquet or .pq", "write Parquet, the format of sketches"),
    ],
)  # fmt: skip
def test_an_output_file_of_an_unknown_format_is_refused(model, typed, option, expected, remedy):
    before = sorted(os.listdir())
    told = f"Error: {option}: expected {expected}, got {typed[-1]!r}; {remedy}.\n"
    found = run(*typed)
    assert (found.exit_code, found.output) == (2, told)
    assert sorted(os.listdir()) == before


def test_python_refuses_a_report_of_an_unknown_format(model):
    with pytest.raises(ValueError, match=r"output: expected a file name that ends in \.html or \.htm, got 'rep\.pdf'"):
        write_report("rep.pdf", model=hq.load("model"), bags=hq.read_bags("rows.csv", bag="tow", features=["x"]))
