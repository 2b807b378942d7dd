"""Experiments as commands: resumable, and refusing what they do not know."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from experiments import audit, bayes, coverage, few_bags, labelled, verdicts
from experiments.__main__ import main
from histnetq.training.pretraining import head_pretraining, label_pretraining
from tests.experiments.test_npz import write_npz


def run(tmp_path, *extra, command="imdb"):
    options = ["--data", str(tmp_path), "--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    return CliRunner().invoke(main, [command, *options, *extra])


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
    assert {r["method"]: r["trials"] for r in rows} == {"MLPE": "0", "CC": "4", "PACC": "4", "DyS": "4"}
    other = run(tmp_path, "--methods", "CC", "--trials", "2")
    assert "CC, seed 0: validation" in other.output
    assert float(rows[2]["mean"]) < float(rows[0]["mean"])
    assert "| 0.0916 | 1.0840 |" in (tmp_path / "out/imdb.md").read_text(), "the paper's numbers stand beside"
    assert r"& 0.0916 & 1.0840 \\" in (tmp_path / "out/imdb.tex").read_text()


def test_classical_methods_stand_side_by_side(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    methods = "CC,MS,ED,EDx,HDx,ReadMe,Ensemble,EMQ-corrected"
    options = ["--on", "imdb", "--trials", "1", "--methods", methods, "--data", str(tmp_path)]
    places = ["--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["classical", *options, *places])
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/classical-imdb.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] == "ae"]
    assert [row["method"] for row in rows] == methods.split(",")
    chosen = {row["method"]: row["chosen"] for row in rows}
    assert "C=" in chosen["MS"]
    assert chosen["EDx"] == '[""]', "no classifier, and nothing to choose"
    assert "n_bins=" in chosen["HDx"]
    assert "C=" not in chosen["HDx"]


def test_networks_learn_from_bags_and_continue_their_trials(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    options = ("--methods", "HistNetQ-hard,DeepSets-max", "--trials", "2", "--epochs", "1")
    first = run(tmp_path, *options)
    assert first.exit_code == 0, first.output
    trials = sorted(path.name for path in tmp_path.glob("runs/*/all-*/trials/*"))
    assert trials[:2] == ["DeepSets-max-seed0-0", "DeepSets-max-seed0-1"]
    for path in tmp_path.glob("runs/*/all-*/*.npz"):
        path.unlink()  # as if cut off after the trials
    again = run(tmp_path, *options)
    with (tmp_path / "out/imdb.csv").open() as file:
        assert {r["method"] for r in csv.DictReader(file)} == {"HistNetQ-hard", "DeepSets-max"}
    assert [line.split(" s to")[0][:60] for line in again.output.splitlines()[:2]] == [
        line.split(" s to")[0][:60] for line in first.output.splitlines()[:2]
    ]


def test_emnetq_learns_from_bags_or_from_both_and_classifies_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._FEWEST_UPDATES", 10)
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._MOST_EPOCHS", 3)
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    small = ("--trials", "1", "--epochs", "1")
    table = run(tmp_path, "--methods", "EMNetQ,EMNetQ-labels", *small)
    assert table.exit_code == 0, table.output
    assert "EMNetQ-labels, seed 0: validation" in table.output
    assert "label_weight=0.05" in table.output
    rows = run(tmp_path, *small, command="rows")
    assert rows.exit_code == 0, rows.output
    with (tmp_path / "out/rows-imdb.csv").open() as file:
        found = {r["method"]: float(r["accuracy"]) for r in csv.DictReader(file)}
    assert list(found) == ["EMNetQ", "EMNetQ-labels", "logistic regression"]
    assert all(0 <= accuracy <= 1 for accuracy in found.values())


def test_a_smaller_budget_after_a_larger_one_gives_what_it_gives_alone(tmp_path):
    for folder in ("after", "alone"):
        (tmp_path / folder).mkdir()
        write_npz(tmp_path / folder / "binary_imdb_w2v300.npz")
    options = ("--methods", "HistNetQ-hard", "--trials", "1", "--epochs")
    run(tmp_path / "after", *options, "3")
    for folder in ("after", "alone"):
        assert run(tmp_path / folder, *options, "2").exit_code == 0
    tables = [(tmp_path / folder / "out/imdb.md").read_text() for folder in ("after", "alone")]
    assert tables[0] == tables[1]


def test_an_interrupted_training_is_not_kept_as_finished(tmp_path, monkeypatch):
    from histnetq.training import loop as training

    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    epoch, done = training.Run._epoch, []

    def interrupted(self):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return epoch(self)

    monkeypatch.setattr(training.Run, "_epoch", interrupted)
    result = run(tmp_path, "--methods", "HistNetQ-hard", "--trials", "1", "--epochs", "4")
    assert result.exit_code != 0
    assert not list(tmp_path.glob("runs/*/all-*/*.npz"))


@pytest.mark.parametrize(
    ("command", "wrong", "message"),
    [
        ("imdb", ["--methods", "magic"], "Invalid value for --methods: 'magic' is none of MLPE, CC, PCC"),
        ("newsgroups", ["--trials", "9"], "Invalid value for --trials: 9 is more than the 4 settings of networks."),
        ("lequa-t1a", ["--trials", "2"], "Invalid value for --trials: 2 is more than the 1 settings of networks."),
        ("fashion-mnist", ["--methods", "magic"], "Invalid value for --methods: 'magic' is none of MLPE, CC, PCC"),
        ("fashion-mnist", ["--measures", "kld"], "Invalid value for --measures: 'kld' is none of ae, rae."),
        ("nz-elections", ["--methods", "magic"], "Invalid value for --methods: 'magic' is none of mean prevalence"),
        ("bins", ["--on", "nope"], "Invalid value for --on: 'nope' is none of imdb, newsgroups, goemotions"),
        ("mixer-ablation", ["--on", "nope"], "Invalid value for --on: 'nope' is none of imdb, newsgroups, goemotions"),
        ("mixer-error", ["--on", "nope"], "Invalid value for --on: 'nope' is none of imdb, newsgroups, goemotions."),
        ("classical", ["--on", "nope"], "Invalid value for --on: 'nope' is none of imdb, newsgroups, goemotions"),
        ("shift", ["--on", "nope"], "Invalid value for --on: 'nope' is none of imdb, newsgroups, goemotions"),
        ("shift", ["--methods", "magic"], "Invalid value for --methods: 'magic' is none of MLPE, CC, PCC"),
        ("shift-types", ["--on", "nope"], "Invalid value for '--on': 'nope' is not one of 'imdb', 'newsgroups'"),
        ("coverage", ["--on", "nope"], "Invalid value for --on: 'nope' is none of digits, imdb, newsgroups."),
        ("rows", ["--on", "imdb,newsgroups"], "Invalid value for '--on': 'imdb,newsgroups' is not one of 'imdb',"),
    ],
)
def test_arguments_are_checked_before_data_are_looked_for(tmp_path, command, wrong, message):
    result = run(tmp_path / "no data", *wrong, command=command)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_coverage_asks_for_the_directory_of_texts_before_it_begins(tmp_path):
    result = CliRunner().invoke(main, ["coverage", "--on", "digits,imdb", "--work", str(tmp_path)])
    assert result.exit_code == 2
    assert "Error: imdb needs the directory of the texts; name it by --data." in result.output
    assert not list(tmp_path.iterdir())


def test_unknown_method_and_missing_data(tmp_path):
    write_npz(tmp_path / "multi20_newsgroups_w2v300.npz")
    many = run(tmp_path, "--methods", "CC", "--trials", "9", command="newsgroups")
    assert "Invalid value for --trials: 9 is more than the 4 settings of networks." in many.output
    assert "Invalid value for --on: 'nope' is none of" in run(tmp_path, "--on", "nope", command="bins").output
    wrong = CliRunner().invoke(main, ["fashion-mnist", "--measures", "kld"])
    assert "Invalid value for --measures: 'kld' is none of ae, rae." in " ".join(wrong.output.split())
    assert "'magic' is none of MLPE, CC, PCC" in run(tmp_path, "--methods", "magic").output
    missing = run(tmp_path)
    assert missing.exit_code == 2
    assert "binary_imdb_w2v300.npz does not exist" in " ".join(missing.output.split())


def test_frozen_images(tmp_path, monkeypatch):
    from experiments import fashion
    from histnetq import Bags, Training
    from histnetq.datasets import Examples

    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    posteriors = rng.dirichlet(np.ones(3), size=120) * 0.5 + 0.5 * np.eye(3)[labels]
    pool = np.zeros((120, 28, 28), np.uint8)
    parts = [Bags(pool, np.arange(a, b), labels=labels, classes=list("abc")) for a, b in ((0, 60), (60, 120))]
    test = Bags(pool, labels=labels, classes=list("abc"))
    encoded = {f"{name}_posteriors": posteriors for name in ("train", "mirrored", "test")}
    monkeypatch.setattr(
        "experiments.fashion_mnist.read_fashion_mnist", lambda folder: Examples("fashion", parts[0], test, parts[1])
    )
    monkeypatch.setattr(fashion, "encoded_images", lambda data, path, say: encoded)
    for name, value in {"BAG_SIZE": 10, "TEST_BAGS": 8, "CHOOSING_BAGS": 4, "_CHOOSING": 20}.items():
        monkeypatch.setattr(fashion, name, value)
    monkeypatch.setattr(fashion, "TRAINING", Training(bags_per_epoch=4, batch_bags=2, progress=False))
    options = ["--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out"), "--trials", "1", "--epochs", "1"]
    methods = "MLPE,CC,KDEy,HistNetQ-hard,DeepSets-avg"
    result = CliRunner().invoke(main, ["fashion-mnist", *options, "--methods", methods])
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/fashion-mnist.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["measure"] for r in rows] == ["ae"] * 5 + ["rae"] * 5
    assert all(float(r["validation"]) >= 0 for r in rows)
    assert float(rows[1]["mean"]) < float(rows[0]["mean"])


def test_images_learned_anew_continue_where_they_were(tmp_path, monkeypatch):
    from experiments import pixels
    from histnetq import Bags, Training
    from histnetq.datasets import Examples

    labels = np.arange(60) % 3
    pool = (np.random.default_rng(0).normal(size=(60, 28, 28)) * 20 + 60 * labels[:, None, None]).clip(0, 255)
    part = Bags(pool.astype(np.uint8), labels=labels, classes=list("abc"))
    monkeypatch.setattr(
        "experiments.fashion_mnist.read_fashion_mnist", lambda folder: Examples("fashion", part, part, part)
    )
    for name, value in {"BAG_SIZE": 5, "TEST_BAGS": 4, "CHOOSING_BAGS": 4}.items():
        monkeypatch.setattr(pixels, name, value)
    monkeypatch.setattr(pixels, "TRAINING", Training(bags_per_epoch=2, batch_bags=2, standardize=False, progress=False))
    options = ["--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out"), "--encoder", "scratch"]
    arguments = ["fashion-mnist", *options, "--methods", "DeepSets-avg", "--measures", "ae", "--minutes"]
    first = CliRunner().invoke(main, [*arguments, "0"])
    assert first.exit_code == 0, first.output
    assert "DeepSets-avg, seed 0, ae, epoch 1:" in first.output
    longer = CliRunner().invoke(main, [*arguments, "9", "--epochs", "2"])
    assert "epoch 1:" not in longer.output, "the first epoch is read from the checkpoint"
    assert "epoch 2:" in longer.output
    assert "| DeepSets-avg |" in (tmp_path / "out/fashion-mnist-scratch.md").read_text()
    refused = CliRunner().invoke(main, ["fashion-mnist", *options, "--methods", "CC"])
    assert "'CC' is none of DeepSets-avg" in refused.output


@pytest.mark.hard
def test_variants_shift_and_figures(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    short = ("--epochs", "1")
    for command, extra in {
        "bins": ("--on", "imdb", *short),
        "mixer-ablation": ("--on", "imdb", *short),
        "mixer-error": ("--on", "imdb"),
        "shift-types": short,
        "hdy": (),
    }.items():
        result = run(tmp_path, *extra, command=command)
        assert result.exit_code == 0, (command, result.output, result.exception)
    out = tmp_path / "out"
    assert {path.name for path in out.glob("*.png")} == {"mixer-ablation.png", "mixer-error.png", "hdy.png"}
    with (out / "mixer-ablation.csv").open() as file:
        variants = [row["variant"] for row in csv.DictReader(file)]
    assert variants[-4:] == ["HistNetQ-hard alone", *(f"HistNetQ-hard real {r}" for r in (0.1, 0.5, 0.9))]
    assert "%) |" in (out / "mixer-ablation.md").read_text()
    with (out / "shift-types-imdb.csv").open() as file:
        assert {row["learned from"] for row in csv.DictReader(file)} == {
            "labelled rows", "bags under prior shift", "bags under covariate shift"
        }  # fmt: skip


def test_error_by_shift_needs_finished_methods(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    unfinished = run(tmp_path, "--on", "imdb", "--methods", "CC", command="shift")
    assert "CC is not finished; run python -m experiments imdb --budget quick first." in unfinished.output
    run(tmp_path, "--methods", "CC,PACC")
    result = run(tmp_path, "--on", "imdb", "--methods", "CC,PACC", command="shift")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out/shift.csv").open() as file:
        assert sum(int(row["n_bags"]) for row in csv.DictReader(file)) == 10


def test_elections(tmp_path):
    rng = np.random.default_rng(0)
    year = np.repeat([2014, 2017, 2020], 12)
    counts = rng.integers(0, 30, size=(36, 3)) + 1
    counts[0] = 0  # nobody voted
    np.savez(
        tmp_path / "natural_nz_elections_bags.npz", year=year, instance_counts=counts,
        prevalence=counts / np.maximum(counts.sum(1, keepdims=True), 1), group_names=np.array(["a", "b", "c"]),
    )  # fmt: skip
    methods = "mean prevalence,party share,ridge on bag means,HistNetQ-soft"
    result = run(tmp_path, "--methods", methods, "--epochs", "1", command="nz-elections")
    assert result.exit_code == 0, (result.output, result.exception)
    with (tmp_path / "out/nz-elections.csv").open() as file:
        errors = {row["method"]: float(row["mean"]) for row in csv.DictReader(file)}
    assert errors["party share"] < 1e-6, "here candidates get what their parties get"
    assert errors["ridge on bag means"] < errors["mean prevalence"]


def test_lequa_with_the_papers_networks(tmp_path, monkeypatch):
    from experiments import presets
    from experiments.npz import read_npz

    write_npz(tmp_path / "small.npz")
    monkeypatch.setattr(presets, "lequa2022", lambda task, folder: read_npz(folder / "small.npz"))
    whole = presets.PRESETS["lequa-t1a"]
    small = dataclasses.replace(whole, training=dataclasses.replace(whole.training, bags_per_epoch=2, batch_bags=2))
    monkeypatch.setitem(presets.PRESETS, "lequa-t1a", small)
    result = run(tmp_path, "--methods", "CC,HistNetQ-hard", "--epochs", "1", command="lequa-t1a")
    assert result.exit_code == 0, result.output
    assert "LeQua 2022, task T1A" in (tmp_path / "out/lequa-t1a.md").read_text()
    with (tmp_path / "out/lequa-t1a.csv").open() as file:
        chosen = [row["chosen"] for row in csv.DictReader(file) if row["method"] == "HistNetQ-hard"]
    assert "encoder=(1024, 1024, 300), head=(2048, 2048, 2048), lr=0.0001" in chosen[0]


def test_intervals_without_calibration_bags(tmp_path):
    found = bayes.summary(bayes.run_bayes("digits", None, splits=1, n_bags=10))
    assert len(found) == 3 * len(bayes.METHODS)
    assert ((found["coverage"] > 0.5) & (found["width_ratio"] < 2)).all()
    refused = CliRunner().invoke(main, ["bayes", "--on", "imdb", "--output", str(tmp_path)], env={"HISTNETQ_DATA": ""})
    assert refused.exit_code != 0
    assert "data: imdb needs the directory of the texts; name it by --data." in refused.output


def test_intervals_from_few_bags(monkeypatch):
    monkeypatch.setattr(few_bags, "BAGS", (20, 80))
    monkeypatch.setattr(few_bags, "CLASSES", (3, 10))
    found = few_bags.summary(few_bags.few_bags(draws=1)).set_index(["classes", "calibration_bags"])
    assert len(found) == 2 * len(few_bags.BAGS) * len(few_bags.CLASSES)
    assert (found["empty"] == 0).all()
    assert found["largest_width"].max() < 0.5
    assert found["coverage"].between(0.75, 1).all()


def test_audited_intervals_under_shifts(monkeypatch, tmp_path):
    monkeypatch.setitem(audit.DATA, "4 normal classes", 300)
    found = pd.concat(audit.run_audit("4 normal classes", 20, (60,), tmp_path)).set_index("shift")
    assert list(found.index) == list(audit.SHIFTS)
    assert found["common_coverage"].between(0.7, 1).all()
    assert found.loc["prior shift", "common_width"] < 0.9
    monkeypatch.setattr(audit, "extend_labels", None)  # finished shifts are not repeated
    again = pd.concat(audit.run_audit("4 normal classes", 20, (60,), tmp_path)).set_index("shift")
    pd.testing.assert_frame_equal(again, found)


def test_coverage_of_a_trained_quantifier():
    data = hq.datasets.digits(n_bags=5, bag_size=20)
    pool = data.test
    held = hq.Bags(pool.rows, labels=pool.labels, classes=pool.classes)
    trained = coverage.Trained({"PACC": hq.PACC(random_state=0).fit(data.train)}, held, (10, 30), data.train)
    table = coverage.run_conformal("digits", trained, n_splits=2, n_calibration=60, n_test=40)
    assert len(table) == 2 * len(coverage.LEVELS)
    found = coverage.summary(table).set_index("level")
    assert found.loc[0.95, "coverage"] >= found.loc[0.8, "coverage"] > 0.6
    assert found.loc[0.95, "width"] > found.loc[0.8, "width"] > 0
    assert (found["splits"] == 2).all()


@pytest.mark.hard
def test_alerts_are_counted_over_streams(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    options = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--streams", "1"]
    found = CliRunner().invoke(main, ["monitor", *options])
    assert found.exit_code == 0, found.output
    with (tmp_path / "out/monitor-power.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["size"] for row in rows] == ["250"] * 4 + ["1000"] * 4
    assert float(rows[-1]["within 8"]) == 1, "a shift of 0.2 in chunks of 1,000 rows"
    with (tmp_path / "out/monitor-false-alarms.csv").open() as file:
        assert [row["mix"] for row in csv.DictReader(file)] == ["0.5", "0.5", "0.2", "0.2", "0.05", "0.05"]


def test_networks_from_a_labelled_table(tmp_path, monkeypatch):
    monkeypatch.setattr(head_pretraining, "_STEPS", {False: 50, True: 50})
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 100)
    for name, value in {"BAG_SIZE": 20, "CHOOSING_BAGS": 10, "TEST_BAGS": 15}.items():
        monkeypatch.setattr(labelled, name, value)
    y = np.arange(600) % 3
    rows = np.random.default_rng(0).normal(size=(600, 2)) + 2 * np.eye(3)[y, :2]
    pd.DataFrame(rows, columns=["a", "b"]).assign(kind=y).to_csv(tmp_path / "rows.csv", index=False)
    places = ["--work", str(tmp_path / "runs"), "--output", str(tmp_path)]
    args = ["labelled", "--table", str(tmp_path / "rows.csv"), "--label", "kind", "--seeds", "1", "--minutes", "0.001"]
    result = CliRunner().invoke(main, [*args, *places])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "labelled-rows.csv")
    beside = [f"EMQ-BCTS on the encoder of {network}" for network in ("HistNetQ", "EMNetQ")]
    assert table["method"].tolist() == ["HistNetQ", beside[0], "EMNetQ", beside[1], "EMQ-BCTS"]
    assert table["ae"].max() < 0.2


def test_starts_are_compared_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(head_pretraining, "_STEPS", {False: 2, True: 2})
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 2)
    monkeypatch.setattr(label_pretraining, "_MOST_EPOCHS", 1)
    places = ["--work", str(tmp_path / "work"), "--output", str(tmp_path)]
    args = ["starts", "--methods", "DeepSets", "--seconds", "0", "--seeds", "1", *places]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, (result.output, result.exception)
    assert pd.read_csv(tmp_path / "starts-digits.csv")["start"].tolist() == ["random", "in stages"]
    assert CliRunner().invoke(main, args).output.count("done before") == 2
    refused = CliRunner().invoke(main, [*args, "--on", "newsgroups"], env={"HISTNETQ_DATA": ""})
    assert "newsgroups needs --data, the directory of the data sets." in refused.output


def test_classes_of_labelled_rows_keep_their_order(tmp_path, monkeypatch):
    for name, value in {"BAG_SIZE": 20, "CHOOSING_BAGS": 10, "TEST_BAGS": 15}.items():
        monkeypatch.setattr(labelled, name, value)
    y = np.arange(600) % 3
    X = (np.random.default_rng(0).normal(size=(600, 2)) + 3 * np.eye(3)[y, :2]).astype(np.float32)
    pools = (hq.Bags(X[part], labels=y[part], classes=["tin", "gold", "iron"]) for part in np.split(np.arange(600), 3))
    rows = labelled.Rows("metals", *pools)
    test, runs = labelled.learn(rows, ["EMNetQ"], 0.001, 1, tmp_path, print)
    errors = labelled.errors_of(rows, test, runs)
    assert errors["method"].tolist() == ["EMNetQ", "EMQ-BCTS on the encoder of EMNetQ"]
    assert errors["ae"].max() < 0.15


def test_verdicts_are_counted_and_streams_are_not_repeated(tmp_path, monkeypatch):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    monkeypatch.setattr(verdicts, "DATA", {"digits": (1, 1)})
    monkeypatch.setattr(verdicts, "CHANGES", dict(list(verdicts.CHANGES.items())[:2]))
    watched = []
    monkeypatch.setattr(verdicts.Watched, "watch", counting(verdicts.Watched.watch, watched))
    options = ["--data", str(tmp_path), "--output", str(tmp_path / "out")]
    for _ in range(2):
        found = CliRunner().invoke(main, ["monitor-verdicts", *options])
        assert found.exit_code == 0, found.output
    assert len(watched) == 3, "a stream of mixes, one without a change, and one with a change"
    with (tmp_path / "out/monitor-changes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["rows look different"]) for row in rows] == [0, 1]
    with (tmp_path / "out/monitor-mixes.csv").open() as file:
        assert [float(row["mix"]) for row in csv.DictReader(file)] == list(verdicts.MIXES)


def counting(function, calls):
    def counted(*arguments):
        calls.append(1)
        return function(*arguments)

    return counted


def test_false_alarms_of_a_network(tmp_path):
    write_npz(tmp_path / "binary_imdb_w2v300.npz")
    options = ["--data", str(tmp_path), "--output", str(tmp_path / "out"), "--streams", "1", "--epochs", "1"]
    found = CliRunner().invoke(main, ["monitor-network", *options])
    assert found.exit_code == 0, found.output
    with (tmp_path / "out/monitor-network.csv").open() as file:
        assert [row["mix"] for row in csv.DictReader(file)] == ["0.5", "0.5", "0.2", "0.2", "0.05", "0.05"]
