"""What is printed is visible: names from models, tables and arguments neither steer the terminal nor hide."""

from __future__ import annotations

import json
import logging
import re
import shutil
import unicodedata
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.cli.terminal import VisibleFormatter, echo, speaking, visible

CLEAR, TITLE, REVERSED, HIDDEN = "\x1b[2J", "\x9b31m", "\u202egpj.", "\u200b\u2066\ufeff\U000e0041"
COD, EEL = f"cod{CLEAR}", f"eel{REVERSED}"
TOW, LENGTH = f"tow{TITLE}", f"length{HIDDEN}\x7f"


def is_visible(text: str) -> bool:
    """Whether a text has no character of control or format except newlines; tables of pandas have no tabs."""
    return all(letter == "\n" or unicodedata.category(letter) not in ("Cc", "Cf", "Zl", "Zp") for letter in text)


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory):
    """A folder with a model and a table whose names hold control characters."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    species = np.where(rng.random(400) < 0.5, EEL, COD)
    tows = np.repeat([f"t{i}\x1b]0;owned\x07\u2028" for i in range(40)], 10)
    table = pd.DataFrame({TOW: tows, LENGTH: rng.normal(size=400) + 3 * (species == EEL), "species": species})
    table.to_csv(folder / "rows.csv", index=False)
    bags = hq.read_bags(table, bag=TOW, label="species")
    model = hq.CC(random_state=0).fit(bags).cross_calibrate(bags)
    model.provenance_ = {"command": f"histnetq{CLEAR}\nmethod       forged", "bags": 40, "calibration_bags": 40}
    model.save(folder / "model")
    return folder, table


@pytest.fixture
def hostile(hostile_folder, tmp_path, monkeypatch):
    folder, table = hostile_folder
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return table


@pytest.mark.parametrize(
    "typed",
    [
        ["info", "model"],
        ["predict", "model", "rows.csv", "--bag", TOW],
        ["predict", "model", "rows.csv", "--bag", TOW, "--wide"],
        ["predict", "model", "rows.csv", "--bag", TOW, "-o", f"out{CLEAR}.csv"],
        ["evaluate", "model", "rows.csv", "--bag", TOW, "--label", "species"],
        ["fit", "rows.csv", "--bag", TOW, "--label", "species", "--method", "cc", "-o", f"new{REVERSED}"],
        ["compare", "rows.csv", "--bag", TOW, "--label", "species", "--methods", "cc,acc"],
        ["predict", "model", "rows.csv", "--bag", f"none{CLEAR}"],
        ["predict", "model", f"none{CLEAR}\nError: forged.csv", "--bag", TOW],
        ["predict", "model", "rows.csv", f"--none{CLEAR}"],
        ["predict", "model", "rows.csv", "--coverage", f"{CLEAR}"],
        ["info", "model", f"more{CLEAR}\nError: forged"],
        [f"none{CLEAR}"],
        [f"--none{CLEAR}"],
    ],
    ids=lambda typed: visible("-".join(typed))[:40].replace("\n", " "),
)
@pytest.mark.parametrize("more", [[], ["--json"]], ids=["words", "json"])
def test_hostile_names_are_printed_as_escapes(hostile, typed, more):
    found = run(*typed, *more)
    assert is_visible(found.stdout), repr(found.stdout)
    assert is_visible(found.stderr), repr(found.stderr)
    assert not re.search(r"^(Error: |method +)forged", found.output, re.MULTILINE)
    if more and found.exit_code == 0:
        json.loads(found.stdout)


def test_escapes_can_be_read_and_files_keep_the_names(hostile):
    told = run("info", "model").output
    assert r"classes      cod\x1b[2J (" in told
    assert r"eel\u202egpj. (" in told
    assert r"features     length\u200b\u2066\ufeff\U000e0041\u007f" in told
    assert r"command      histnetq\x1b[2J\nmethod       forged" in told
    printed = run("predict", "model", "rows.csv", "--bag", TOW).output
    assert printed.startswith(r"tow\x9b31m,class,estimate")
    assert r"t0\x1b]0;owned\x07\u2028,cod\x1b[2J," in printed
    assert run("predict", "model", "rows.csv", "--bag", TOW, "-o", "out.csv").exit_code == 0
    kept = pd.read_csv("out.csv")
    assert kept.columns[0] == TOW
    assert set(kept["class"]) == {COD, EEL}
    assert set(kept[TOW]) == set(hostile[TOW])
    as_json = json.loads(run("info", "model", "--json").output)
    assert as_json["classes"] == [COD, EEL]
    assert as_json["features"] == [LENGTH]


def test_what_is_meant_stays(capsys):
    text = "größe\tØ 鳕鱼 🐟 العربية\n± 0.1 — “cod”"
    assert visible(text) == text
    echo(text)
    assert capsys.readouterr().out == text + "\n"


def test_warnings_and_log_lines_are_one_visible_line(capsys):
    with speaking(progress=True):
        warnings.warn(f"histnetq: {CLEAR}\nError: forged", UserWarning, stacklevel=1)
        logging.getLogger("histnetq.progress").info("%s", f"{CLEAR}\nforged")
    assert capsys.readouterr().err.splitlines() == [r"Warning: histnetq: \x1b[2J\nError: forged", r"\x1b[2J\nforged"]


def test_a_traceback_in_the_log_of_the_service_keeps_its_lines():
    try:
        raise KeyError(f"{REVERSED}") from ValueError(CLEAR)
    except KeyError as error:
        record = logging.makeLogRecord({"msg": f"A request failed.\n{CLEAR}", "exc_info": (type(error), error, None)})
    lines = VisibleFormatter("%(levelname)s %(message)s").format(record).splitlines()
    assert lines[0] == r"Level None A request failed.\n\x1b[2J"
    assert r"ValueError: \x1b[2J" in lines
    assert len(lines) > 3
