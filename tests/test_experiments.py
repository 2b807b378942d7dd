"""Experiments as commands: resumable, and refusing what they do not know."""

from __future__ import annotations

import csv

from click.testing import CliRunner

from experiments.__main__ import main
from tests.test_datasets import write_npz


def run(tmp_path, *extra):
    options = ["--data", str(tmp_path), "--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    return CliRunner().invoke(main, ["imdb", *options, *extra])


def test_a_finished_method_is_not_repeated(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    first = run(tmp_path, "--methods", "CC,PACC")
    assert first.exit_code == 0, first.output
    assert "CC, seed 0: validation" in first.output
    second = run(tmp_path, "--methods", "PACC,DyS,MLPE")
    assert second.exit_code == 0, second.output
    assert "PACC, seed 0: done before" in second.output
    with (tmp_path / "out/imdb.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["method"], r["measure"]) for r in rows[:2]] == [("MLPE", "ae"), ("MLPE", "rae")]
    assert {r["method"] for r in rows} == {"MLPE", "CC", "PACC", "DyS"}
    assert {r["method"]: r["trials"] for r in rows} == {"MLPE": "0", "CC": "8", "PACC": "8", "DyS": "8"}
    other = run(tmp_path, "--methods", "CC", "--trials", "2")
    assert "CC, seed 0: validation" in other.output
    assert float(rows[2]["mean"]) < float(rows[0]["mean"])
    assert "| CC | " in (tmp_path / "out/imdb.md").read_text()


def test_unknown_method_and_missing_data(tmp_path):
    assert "'magic' is none of MLPE, CC, PCC" in run(tmp_path, "--methods", "magic").output
    missing = run(tmp_path)
    assert missing.exit_code == 2
    assert "binary_imdb_w2v300.npz does not exist" in " ".join(missing.output.split())
