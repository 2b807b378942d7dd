"""Experiments as commands: resumable, and refusing what they do not know."""

from __future__ import annotations

import csv

import numpy as np
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


def test_networks_learn_from_bags_and_continue_their_trials(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    options = ("--methods", "HistNetQ-hard,DeepSets-max", "--trials", "2", "--epochs", "1")
    first = run(tmp_path, *options)
    assert first.exit_code == 0, first.output
    trials = sorted(path.name for path in tmp_path.glob("runs/*/trials/*"))
    assert trials[:2] == ["DeepSets-max-seed0-0", "DeepSets-max-seed0-1"]
    for path in tmp_path.glob("runs/*/trials-2/*.npz"):
        path.unlink()  # as if cut off after the trials
    again = run(tmp_path, *options)
    with (tmp_path / "out/imdb.csv").open() as file:
        assert {r["method"] for r in csv.DictReader(file)} == {"HistNetQ-hard", "DeepSets-max"}
    assert [line.split(" s to")[0][:60] for line in again.output.splitlines()[:2]] == [
        line.split(" s to")[0][:60] for line in first.output.splitlines()[:2]
    ]


def test_unknown_method_and_missing_data(tmp_path):
    assert "'magic' is none of MLPE, CC, PCC" in run(tmp_path, "--methods", "magic").output
    missing = run(tmp_path)
    assert missing.exit_code == 2
    assert "binary_imdb_w2v300.npz does not exist" in " ".join(missing.output.split())


def test_frozen_images(tmp_path, monkeypatch):
    from experiments import fashion, images
    from histnetq import Bags, Training
    from histnetq.datasets import Examples

    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    posteriors = rng.dirichlet(np.ones(3), size=120) * 0.5 + 0.5 * np.eye(3)[labels]
    pool = np.zeros((120, 28, 28), np.uint8)
    parts = [Bags(pool, np.arange(a, b), labels=labels, classes=list("abc")) for a, b in ((0, 60), (60, 120))]
    test = Bags(pool, labels=labels, classes=list("abc"))
    encoded = {"train_posteriors": posteriors, "test_posteriors": posteriors}
    monkeypatch.setattr("histnetq.datasets.fashion_mnist", lambda folder: Examples("fashion", parts[0], test, parts[1]))
    monkeypatch.setattr(images, "encoded_images", lambda data, path, say: encoded)
    for name, value in {"BAG_SIZE": 10, "TEST_BAGS": 8, "CHOOSING_BAGS": 4, "_CHOOSING": 20}.items():
        monkeypatch.setattr(fashion, name, value)
    monkeypatch.setattr(fashion, "TRAINING", Training(epochs=1, bags_per_epoch=4, batch_bags=2, progress=False))
    options = ["--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out"), "--trials", "1"]
    methods = "MLPE,CC,KDEy,HistNetQ-hard,DeepSets-avg"
    result = CliRunner().invoke(main, ["fashion-mnist", *options, "--methods", methods])
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/fashion-mnist.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["measure"] for r in rows] == ["ae"] * 5 + ["rae"] * 5
    assert all(float(r["validation"]) >= 0 for r in rows)
    assert float(rows[1]["mean"]) < float(rows[0]["mean"])
