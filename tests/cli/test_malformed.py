"""Wrong input to the command line: one sentence that names it, exit code 2, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from tests.cli.test_commands import write_tables

LABELLED = ["--bag", "tow", "--label", "species"]
KNOWN = ["--bag", "tow", "--prevalences"]
FIT = ["fit", "bad.csv", *LABELLED, "--method", "pacc", "-o", "new"]
PREDICT = ["predict", "model", "bad.csv", "--bag", "tow", "-o", "new.csv"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Good tables, and a calibrated model of them."""
    folder = tmp_path_factory.mktemp("good")
    write_tables(folder)
    bags = hq.read_bags(folder / "rows.csv", bag="tow", label="species")
    q = hq.PACC(random_state=0).fit(hq.Bags(bags.rows, labels=bags.labels, classes=bags.classes))
    q.feature_names_ = bags.feature_names
    q.save(folder / "plain")
    q.calibrate(bags)
    q.save(folder / "model")
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(**columns):
    """Write bad.csv: rows.csv with other values in the fourth row."""

    def act():
        rows = pd.read_csv("rows.csv").astype(object)
        for name, value in columns.items():
            rows.loc[3, name] = value
        rows.to_csv("bad.csv", index=False)

    return act


def text(content, name="bad.csv", encoding="utf-8"):
    return lambda: Path(name).write_bytes(content.encode(encoding))


def rename(**names):
    return lambda: pd.read_csv("rows.csv").rename(columns=names).to_csv("bad.csv", index=False)


def proportions(act):
    """Write shares.csv: tows.csv, changed."""

    def made():
        act(pd.read_csv("tows.csv")).to_csv("shares.csv", index=False)

    return made


def few_bags():
    """Write few-bare.csv and few-tows.csv, of three bags."""
    for name in ("bare.csv", "tows.csv"):
        pd.read_csv(name).query("tow in ('tow0', 'tow1', 'tow2')").to_csv(f"few-{name}", index=False)


def cut(pattern, keep):
    def shorten():
        (path,) = Path().glob(pattern)
        path.write_bytes(path.read_bytes()[:keep])

    return shorten


def parquet_cut():
    pd.read_csv("rows.csv").to_parquet("bad.parquet")
    cut("bad.parquet", 400)()


def many_texts():
    rows = pd.read_csv("rows.csv")
    rows.assign(note=[f"note {i}" for i in range(len(rows))]).to_csv("bad.csv", index=False)


def nothing():
    """The tables are good, the arguments are not."""


CASES = {
    "no such file": (nothing, FIT, "TRAIN: bad.csv does not exist; check the path."),
    "a directory": (lambda: os.mkdir("bad.csv"), FIT, "such as bad.csv/*.parquet, or add --images if it"),
    "another format": (
        text("x", "bad.ods"),
        ["fit", "bad.ods", *LABELLED, "-o", "new"],
        "TRAIN: bad.ods ends neither in .csv nor .parquet nor .xlsx nor .jsonl nor .json; convert it to one of them.",
    ),
    "two formats": (
        lambda: pd.read_csv("rows.csv").to_parquet("more.parquet"),
        ["fit", "rows.csv", "more.parquet", *LABELLED, "-o", "new"],
        "TRAIN: expected files of one kind, got csv and parquet; convert some.",
    ),
    "files with other columns": (
        rename(depth="deep"),
        ["fit", "rows.csv", "bad.csv", *LABELLED, "-o", "new"],
        "bad.csv: has no column 'depth', which",
    ),
    "an empty file": (
        text(""),
        FIT,
        "bad.csv: is empty, expected a line of column names and rows; save the table again.",
    ),
    "no rows": (text("tow,length,depth,species\n"), FIT, "bad.csv: has no rows; check the file."),
    "no bag column": (rename(tow="haul"), FIT, "bad.csv: has no column 'tow', its columns are"),
    "no label column": (rename(species="kind"), FIT, "bad.csv: has no column 'species', its columns are"),
    "no weight column": (nothing, ["fit", "rows.csv", *LABELLED, "--weight", "w", "-o", "new"], "has no column 'w'"),
    "no such feature": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--features", "len", "-o", "new"],
        "has no column 'len'",
    ),
    "the bag as a feature": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--features", "tow", "-o", "new"],
        "features: expected columns other than the bag, label and weight columns, got 'tow'",
    ),
    "a column twice": (
        text("tow,length,length,species\na,1,2,cod\n"),
        FIT,
        "bad.csv: has two columns 'length'; rename one.",
    ),
    "text in numbers": (
        change(length="long"),
        FIT,
        "bad.csv: column 'length' holds numbers and the text 'long' (row 4)",
    ),
    "a number that is missing": (
        change(length=np.nan),
        FIT,
        "bad.csv: row 4 has nothing in column 'length', expected a",
    ),
    "infinity": (change(length="inf"), FIT, "bad.csv: row 4 has inf in column 'length', expected a number"),
    "a row without a bag": (change(tow=np.nan), FIT, "bad.csv: row 4 has nothing in column 'tow'; fill it in or drop"),
    "a row without a label": (
        change(species=np.nan),
        FIT,
        "bad.csv: row 4 has nothing in column 'species'; fill it in",
    ),
    "a wrong encoding": (
        text("tow,länge,species\na,1,cod\n", encoding="latin1"),
        FIT,
        "bad.csv: is not encoded in UTF-8",
    ),
    "a wrong encoding below": (
        text("tow,length,species\n" + "a,1,cod\n" * 999_999 + "a,2,åål\n", encoding="latin1"),
        FIT,
        "bad.csv: cannot be read",
    ),
    "a line too long": (
        text("tow,length,species\na,1,cod\na,2,eel,9\n"),
        FIT,
        "bad.csv: row 2 has 4 cells, expected 3",
    ),
    "truncated Parquet": (
        parquet_cut,
        ["fit", "bad.parquet", *LABELLED, "-o", "new"],
        "bad.parquet: cannot be read as Parq",
    ),
    "no Parquet": (
        text("x", "bad.parquet"),
        ["fit", "bad.parquet", *LABELLED, "-o", "new"],
        "bad.parquet: cannot be read",
    ),
    "a negative weight": (
        change(depth=-1),
        ["fit", "bad.csv", *LABELLED, "--weight", "depth", "-o", "new"],
        "in column 'depth', expected a weight of at least 0; correct it or drop the row.",
    ),
    "too many texts": (
        many_texts,
        ["fit", "bad.csv", *LABELLED, "--features", "length,note", "-o", "new"],
        "bad.csv: column 'note' has more than 1000 different texts, too many for categories",
    ),
    "no numbers": (
        text("tow,species\na,cod\nb,eel\n"),
        FIT,
        "bad.csv: has no columns of numbers beside 'tow', 'species'",
    ),
    "one class": (lambda: pd.read_csv("rows.csv").assign(species="cod").to_csv("bad.csv", index=False), FIT, "class"),
    "proportions without classes": (
        proportions(lambda t: t[["tow"]]),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: has no columns of classes beside 'tow'; add them.",
    ),
    "a bag without proportions": (
        proportions(lambda t: t[t["tow"] != "tow7"]),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: has no row for bag 'tow7'; add it, or drop the rows of this bag.",
    ),
    "bags that match nothing": (
        proportions(lambda t: t.assign(tow="x" + t["tow"])),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: has no row for bags ",
    ),
    "a bag twice": (
        proportions(lambda t: pd.concat([t, t[:1]])),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: row 101 names the bag tow0 again; give one row per bag.",
    ),
    "proportions that do not sum to 1": (
        proportions(lambda t: t.assign(cod=0.9 * t["cod"], eel=0.9 * t["eel"])),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "sums to 0.9, expected 1",
    ),
    "counts instead of proportions": (
        proportions(lambda t: t.assign(cod=12 * t["cod"], eel=12 * t["eel"])),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "sums to 12, expected 1; pass --counts if these are",
    ),
    "counts of nothing": (
        proportions(lambda t: t.assign(cod=0, eel=0)),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "--counts", "-o", "new"],
        "are all 0; drop the bag.",
    ),
    "a negative proportion": (
        proportions(lambda t: t.assign(cod=-0.5, eel=1.5)),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "has the negative number -0.5; correct it.",
    ),
    "text in proportions": (
        proportions(lambda t: t.assign(cod="few")),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: column 'cod' holds",
    ),
    "a class of a bag twice": (
        text("tow,class,value\ntow0,cod,1\ntow0,cod,0\n", "shares.csv"),
        ["fit", "bare.csv", *KNOWN, "shares.csv", "-o", "new"],
        "shares.csv: bag tow0 has class cod twice",
    ),
    "labels and proportions": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--prevalences", "tows.csv", "-o", "new"],
        "--prevalences: expected either --label or --prevalences, got both; leave one out.",
    ),
    "nothing known": (
        nothing,
        ["fit", "rows.csv", "--bag", "tow", "-o", "new"],
        "--label, --prevalences: expected one of them, got none; name the label column or give a table.",
    ),
    "an unknown method": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--method", "magic", "-o", "new"],
        "method: expected one of",
    ),
    "labels missing for a method": (
        nothing,
        ["fit", "bare.csv", *KNOWN, "tows.csv", "--method", "emq", "-o", "new"],
        "method: EMQ learns from labelled rows, but these have none; name their column by --label",
    ),
    "too few bags to compare": (
        few_bags,
        ["compare", "few-bare.csv", *KNOWN, "few-tows.csv"],
        "bags: expected at least 12 bags to hold some out for a comparison, got 3",
    ),
    "nothing to tune": (
        nothing,
        ["tune", "rows.csv", *LABELLED, "--method", "mlpe", "-o", "new"],
        "method: MLPE has nothing to tune; fit it.",
    ),
    "a model that is there": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "-o", "model"],
        "output: model exists; choose another",
    ),
    "a table that is there": (
        nothing,
        ["predict", "model", "bare.csv", "--bag", "tow", "-o", "rows.csv"],
        "output: rows.csv exists; choose another",
    ),
    "a report that is there": (
        text("mine", "mine.html"),
        ["report", "model", "rows.csv", *LABELLED, "-o", "mine.html"],
        "output: mine.html exists",
    ),
    "a file where a folder should be": (
        nothing,
        ["predict", "model", "bare.csv", "--bag", "tow", "-o", "rows.csv/new.csv"],
        "rows.csv/new.csv cannot be written",
    ),
    "a model below a file": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--method", "cc", "-o", "rows.csv/new"],
        "rows.csv/new cannot be written",
    ),
    "a place that takes no files": (
        nothing,
        ["fit", "rows.csv", *LABELLED, "--method", "cc", "-o", "/proc/new"],
        "/proc/new cannot be written",
    ),
    "no model": (nothing, ["predict", "rows.csv", "bare.csv", "--bag", "tow"], "is not a model directory"),
    "a truncated model": (cut("model/weights-*", 200), ["info", "model"], "model does not match its checksum"),
    "a damaged model": (cut("model/config.json", 100), ["info", "model"], "config.json is damaged, expected the JSON"),
    "a renamed column": (rename(length="size"), PREDICT, "bad.csv: has no column 'length', its columns are"),
    "text in numbers at prediction": (
        change(length="long"),
        PREDICT,
        "column 'length' holds numbers and the text 'long'",
    ),
    "an impossible coverage": (
        nothing,
        ["predict", "model", "bare.csv", "--bag", "tow", "--coverage", "90"],
        "coverage: expected a number between 0 and",
    ),
    "a coverage too high": (
        nothing,
        ["predict", "model", "bare.csv", "--bag", "tow", "--coverage", "0.999"],
        "coverage: 0.999 needs at least",
    ),
    "intervals without calibration": (
        nothing,
        ["predict", "plain", "bare.csv", "--bag", "tow", "--interval", "conformal"],
        "PACC is not calibrated; fit it to more bags",
    ),
    "no class that the model knows": (
        lambda: pd.read_csv("rows.csv").replace({"species": {"cod": "shark", "eel": "ray"}}).to_csv("bad.csv"),
        ["evaluate", "model", "bad.csv", *LABELLED],
        "classes: 'ray' is not among the expected ['cod', 'eel']",
    ),
    "models and methods": (
        nothing,
        ["compare", "rows.csv", *LABELLED, "--model", "model", "--methods", "cc"],
        "expected no --methods with --model: stored models have their own.",
    ),
}


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_nothing_left(case, folder):
    spoil, arguments, message = CASES[case]
    spoil()
    before = everything(folder)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert message in " ".join(result.output.split()), result.output
    assert result.output.count("Error:") == 1
    assert everything(folder) == before


def test_there_are_enough_of_them():
    assert len(CASES) >= 40


WRITES = [
    ["fit", "rows.csv", *LABELLED, "--method", "pacc", "-o", "new"],
    ["fit", "rows.csv", *LABELLED, "--method", "pacc", "-o", "model", "--force"],
    ["predict", "model", "bare.csv", "--bag", "tow", "-o", "new.csv"],
    ["predict", "model", "bare.csv", "--bag", "tow", "-o", "new.parquet"],
    ["evaluate", "model", "rows.csv", *LABELLED, "-o", "new.csv"],
    ["report", "model", "rows.csv", *LABELLED, "-o", "new.html"],
]
# No file may grow beyond a kilobyte. A process for all commands, as it takes seconds to start one.
ON_A_FULL_DISK = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
from click.testing import CliRunner
from histnetq.cli import main
for arguments in json.loads(sys.argv[1]):
    told = CliRunner().invoke(main, arguments)
    kept = sorted(str(path) for path in Path().rglob("*") if path.is_file() and "fontlist" not in path.name)
    print(json.dumps([told.exit_code, told.stderr, kept]))
"""


def test_a_full_disk(folder):
    before = everything(folder)
    environment = {**os.environ, "MPLCONFIGDIR": str(folder), "NUMBA_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", ON_A_FULL_DISK, json.dumps(WRITES)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = result.stdout.splitlines()
    assert len(lines) == len(WRITES)
    for line in lines:
        code, told, kept = json.loads(line)
        assert code == 2, told
        assert "cannot be written" in told
        assert os.strerror(errno.EFBIG) in told
        assert kept == sorted(map(str, before))
    after = {path: content for path, content in everything(folder).items() if "fontlist" not in path.name}
    assert after == before
