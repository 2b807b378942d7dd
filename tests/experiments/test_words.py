"""Words as rows: what is read of the lists, rows made once, bags that share none, and the paper's way on them."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from experiments import converged, paper_way, presets, staged, word_lists, words
from experiments.__main__ import main
from experiments.word_lists import WordList
from histnetq.training.pretraining import head_pretraining, label_pretraining

ROWS = words.RowPlan(labelled=30, development=200, test=60, sample=1_000, n_features=5)
PLAN = words.BagPlan(labelled=60, bag_size=20, training=12, validation=6, test=8)
LANGUAGES = {"first": "abcde", "second": "aefgh", "third": "hijka"}


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """Three languages of a few letters each, of 300 words."""
    root, found = tmp_path / "share", {}
    (root / "dict").mkdir(parents=True)
    for name, letters in LANGUAGES.items():
        every = itertools.islice(itertools.product(letters, repeat=4), 300)
        (root / "dict" / name).write_text("".join("".join(word) + "\n" for word in every))
        found[name] = WordList(f"dict/{name}", f"w{name}")
    monkeypatch.setattr(word_lists, "ROOT", root)
    monkeypatch.setattr(word_lists, "LISTS", found)
    (tmp_path / "data").mkdir()
    return root


def load(tmp_path, plan=PLAN):
    return words.load_words(tmp_path / "data", plan, ROWS)


def parts_of(data):
    return [np.unique(bags.index) for bags in (data.train, data.bags, data.validation, data.test)]


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-2"])
def test_words_are_folded_to_letters_without_accents(lists, encoding):
    text = "2\nŁódź/ab\nprzyjdźże\tpo:verb\n Straße \nkot\nd'or\nżółw\nzolw\nabcdefghijklmnopqrstu\nAbcd/\r\n¨aakal/Z\n"
    (lists / "dict/polish").write_bytes(text.encode(encoding))
    found = word_lists.read_words(WordList("dict/polish", "wpolish", "iso8859-2"))
    assert found == ["abcd", "lodz", "przyjdzze", "strasse", "zolw"]


def test_every_language_has_its_list():
    assert len(word_lists.LISTS) == 28
    assert list(word_lists.LISTS) == sorted(word_lists.LISTS)
    assert len({own.path for own in word_lists.LISTS.values()}) == 28


def test_a_missing_list_names_its_package(tmp_path, lists):
    (lists / "dict/second").unlink()
    with pytest.raises(Exception, match=r"expected the word list .*dict/second, got no such file") as caught:
        load(tmp_path)
    assert str(caught.value).endswith("; install the Debian package wsecond.")
    (lists / "dict/third").unlink()
    options = ["--data", str(tmp_path / "data"), "--work", str(tmp_path / "runs"), "--output", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["words", *options, "--methods", "CC"])
    assert result.exit_code == 2
    assert "install the Debian packages wsecond wthird." in " ".join(result.output.split())
    assert not list((tmp_path / "data").iterdir())


def test_a_list_of_few_words_is_refused_and_leaves_nothing(tmp_path, lists):
    (lists / "dict/second").write_text("abcd\n")
    with pytest.raises(Exception, match="at least 92 words of 4 to 20 letters in the second list, got 1; reinstall"):
        load(tmp_path)
    assert not list((tmp_path / "data/.histnetq").iterdir())


def test_a_directory_that_is_not_there(tmp_path, lists):
    result = CliRunner().invoke(main, ["words", "--data", str(tmp_path / "nowhere"), "--methods", "CC"])
    assert result.exit_code == 2
    assert "nowhere does not exist; make the directory" in " ".join(result.output.split())


def test_rows_are_made_once_and_mapped(tmp_path, lists, monkeypatch):
    first = load(tmp_path)
    monkeypatch.setattr(words, "make_rows", lambda plan, file: pytest.fail("the rows are there"))
    second = load(tmp_path)
    assert isinstance(second.bags.rows, np.memmap)
    assert second.bags.rows.dtype == np.float32
    assert all(bags.rows is second.train.rows for bags in (second.bags, second.validation, second.test))
    for one, other in ((first.bags, second.bags), (first.validation, second.validation), (first.test, second.test)):
        assert one.fingerprint() == other.fingerprint()
    np.testing.assert_array_equal(first.train.index, second.train.index)


def test_a_run_that_is_cut_leaves_nothing_half_made(tmp_path, lists, monkeypatch):
    def cut(plan, file):
        file.write(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(words, "make_rows", cut)
        with pytest.raises(KeyboardInterrupt):
            load(tmp_path)
    assert not list((tmp_path / "data/.histnetq").iterdir())
    assert load(tmp_path).train.rows.shape == (3 * 290, 5)


def test_rows_have_unit_variance_and_stand_by_language(lists):
    file = io.BytesIO()
    made = words.make_rows(ROWS, file)
    rows = np.frombuffer(file.getvalue(), np.float32).reshape(-1, ROWS.n_features)
    assert len(rows) == len(made["language"]) == 3 * 290
    np.testing.assert_allclose(rows.std(0), 1, rtol=1e-4)
    np.testing.assert_array_equal(np.bincount(made["part"]), [90, 600, 180])
    assert (np.diff(made["language"]) >= 0).all()


def test_parts_share_no_rows_and_know_what_they_may(tmp_path, lists):
    data = load(tmp_path)
    for one, other in itertools.combinations(parts_of(data), 2):
        assert np.intersect1d(one, other).size == 0
    assert [len(part) for part in (data.bags, data.validation, data.test)] == [12, 6, 8]
    assert data.classes.tolist() == list(LANGUAGES)
    assert all(part.labels is None for part in (data.bags, data.validation, data.test))
    assert (data.train.labels >= 0).sum() == len(data.train.index) == 60
    language = np.repeat(np.arange(3), 290)
    for bags in (data.bags, data.validation, data.test):
        counted = hq.Bags(bags.rows, bags.index, bags.offsets, labels=language, classes=data.classes)
        np.testing.assert_allclose(counted.label_prevalences(), bags.prevalences)
    np.testing.assert_array_equal(data.train.labels[data.train.index], language[data.train.index])


def test_some_languages_alone(tmp_path, lists):
    data = load(tmp_path, dataclasses.replace(PLAN, languages=("third", "first")))
    assert data.classes.tolist() == ["third", "first"]
    language = np.repeat([1, -1, 0], 290)
    np.testing.assert_array_equal(data.train.labels[data.train.index], language[data.train.index])
    assert all((language[rows] >= 0).all() for rows in parts_of(data))


def test_no_row_is_dealt_twice_before_all_are_once():
    piles = [np.arange(10), np.arange(100, 130)]
    index, prevalences = words.deal(piles, n_bags=40, bag_size=9, rng=np.random.default_rng(0))
    assert all(len(np.unique(bag)) == 9 for bag in index)
    np.testing.assert_allclose((index >= 100).mean(1), prevalences[:, 1])
    for pile in piles:
        times = np.bincount(index[np.isin(index, pile)], minlength=130)[pile]
        assert times.max() - times.min() <= 1
    again, _ = words.deal(piles, n_bags=40, bag_size=9, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(index, again)


@pytest.fixture
def small_words(lists, monkeypatch):
    whole = presets.PRESETS["words"]
    small = dataclasses.replace(whole, load=lambda folder: words.load_words(folder, PLAN, ROWS))
    monkeypatch.setitem(presets.PRESETS, "words", small)


def run(tmp_path, *extra, command="words"):
    options = [f"--{name}={tmp_path / place}" for name, place in (("data", "data"), ("work", "w"), ("output", "out"))]
    return CliRunner().invoke(main, [command, *options, *extra])


def test_all_kinds_of_methods_run_on_words(tmp_path, small_words):
    methods = "MLPE,CC,EMQ-BCTS,HistNetQ-hard,EMNetQ-labels"
    result = run(tmp_path, "--methods", methods, "--trials", "1", "--epochs", "1")
    assert result.exit_code == 0, (result.output, result.exception)
    with (tmp_path / "out/words.csv").open() as file:
        errors = {(row["method"], row["measure"]): float(row["mean"]) for row in csv.DictReader(file)}
    assert {method for method, _ in errors} == set(methods.split(","))
    assert errors["CC", "ae"] < errors["MLPE", "ae"]


def test_the_papers_way_goes_on_where_it_was(tmp_path, small_words, monkeypatch):
    monkeypatch.setattr(paper_way, "SETTING", {**paper_way.SETTING, "encoder": (4,), "head": (4,)})
    monkeypatch.setattr(paper_way, "TRAINING", dataclasses.replace(paper_way.TRAINING, bags_per_epoch=4))
    some = ("--networks", "8-bins-mixed,64-bins-alone")
    first = run(tmp_path, *some, "--epochs", "1", command="words-paper")
    assert first.exit_code == 0, (first.output, first.exception)
    assert "8-bins-mixed, epoch 1:" in first.output
    longer = run(tmp_path, *some, "--epochs", "3", command="words-paper")
    assert "epoch 1:" not in longer.output, "the first epoch is read from the checkpoint"
    assert "64-bins-alone, epoch 3:" in longer.output
    with (tmp_path / "out/words-paper.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["setting", "epoch", "seconds", "train", "validation"]
    assert [(row["setting"], row["epoch"]) for row in rows] == [
        (name, epoch) for name in ("8-bins-mixed", "64-bins-alone") for epoch in "123"
    ]
    assert all(float(row["validation"]) > 0 for row in rows)
    assert (tmp_path / "out/words-paper.png").stat().st_size > 0
    text = (tmp_path / "out/words-paper.md").read_text()
    assert "| 1.2878 |" in text
    assert "| 1.5108 |" in text
    wrong = run(tmp_path, "--networks", "9-bins", command="words-paper")
    assert "Invalid value for --networks: '9-bins' is none of 8-bins-mixed, 8-bins-alone" in " ".join(
        wrong.output.split()
    )


def test_posteriors_of_rows_in_parts_are_those_of_all_rows(tmp_path, lists, monkeypatch):
    from experiments.classical import Posteriors

    data, params = load(tmp_path), {"C": 0.1, "class_weight": None}
    whole = Posteriors(data, tmp_path / "whole").get(params)
    monkeypatch.setattr("histnetq.bags.memmap._CHUNK", 500)
    parts = Posteriors(data, tmp_path / "parts").get(params)
    assert whole[1].shape == (3 * 290, 3)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.fixture
def small_converged(lists, monkeypatch):
    own = {"LANGUAGES": tuple(LANGUAGES), "ROWS": ROWS, "_VALIDATION": 6, "_TEST": 9, "_BAG_SIZE": 20}
    own["TRAINING"] = {**converged.TRAINING, "epochs": 2, "bags_per_epoch": 4, "batch_bags": 2}
    own["PLANS"] = {"effects": lambda seeds: [dataclasses.replace(one, bags=12) for one in _effects(seeds)[:2]]}
    for name, value in own.items():
        monkeypatch.setattr(converged, name, value)


_effects = converged.PLANS["effects"]


def test_a_finished_run_of_converged_is_not_repeated(tmp_path, small_converged, monkeypatch):
    options = ["converged", "--data", str(tmp_path / "data"), "--output", str(tmp_path / "out"), "--seeds", "1"]
    first = CliRunner().invoke(main, [*options, "--plans", "effects"], catch_exceptions=False)
    assert first.exit_code == 0, first.output
    with (tmp_path / "out/converged.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["bins"], row["mixer"], row["epochs"], row["reason"]) for row in rows] == [
        ("8", "True", "2", "clock"), ("8", "False", "2", "clock"),
    ]  # fmt: skip
    shifts = [float(rows[0][f"ae_{part}_shift"]) for part in ("low", "middle", "high")]
    assert np.mean(shifts) == pytest.approx(float(rows[0]["ae"]), rel=1e-3)
    monkeypatch.setattr(converged, "_run", lambda *given: pytest.fail("the run is in the table"))
    again = CliRunner().invoke(main, [*options, "--plans", "effects"], catch_exceptions=False)
    assert again.exit_code == 0
    with (tmp_path / "out/converged-curves.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2"] * 2


def test_a_run_ends_by_patience_only_if_the_lowest_rate_did_not_improve_it():
    rates = np.repeat([1e-3, 1e-5], [30, 20])
    assert converged.reason(rates, best_epoch=10) == "patience"
    assert converged.reason(rates, best_epoch=40) == "clock"
    assert converged.reason(rates[:45], best_epoch=10) == "clock"
    assert converged.reason(rates[:30], best_epoch=1) == "clock"


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((2.0, 2.2, 1.9), "holds"),
        ((1.01, 0.99, 1.0), "does not hold"),
        ((0.5, 4.0, 1.0), "undecided"),
        ((2.0,), "undecided"),
    ],
)
def test_a_finding_is_judged_by_its_interval_over_seeds(ratios, verdict):
    finding = converged.Finding("more bins", {"bins": 8}, {"bins": 64}, (0.03, 0.01))
    rows = [{"bins": bins, "loss": "ae", "seed": seed, "ae": 0.01 * (ratio if bins == 8 else 1)}
            for seed, ratio in enumerate(ratios) for bins in (8, 64)]  # fmt: skip
    assert converged.judge(pd.DataFrame(rows), finding, "ae")["verdict"] == verdict


@pytest.mark.hard
def test_networks_in_stages_are_trained_once_and_stand_beside_emq(tmp_path, small_words, monkeypatch):
    monkeypatch.setattr(head_pretraining, "_STEPS", {False: 10, True: 10})
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 100)
    setting = {"encoder": (4,), "n_bins": 4, "epochs": 1, "bags_per_epoch": 4}
    monkeypatch.setattr(staged, "SETTINGS", {"words": [setting, {**setting, "n_bins": 8}]})
    args = ["staged", "--on", "words", "--seeds", "2", "--measures", "ae", "--data", str(tmp_path / "data")]
    args += ["--work", str(tmp_path / "work"), "--output", str(tmp_path / "out")]
    found = CliRunner().invoke(main, args, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    with (tmp_path / "out/staged-words.csv").open() as file:
        table = list(csv.DictReader(file))
    beside = "EMQ-BCTS on the encoder of HistNetQ-labels-ae"
    rows = ["HistNetQ-ae"] * 2 + ["HistNetQ-labels-ae"] * 2 + [beside] * 2 + ["EMQ-BCTS"]
    assert [row["method"] for row in table] == rows
    assert all(0 <= float(row["ae"]) < 1 and row["n_bags"] == "8" for row in table)
    assert "n_bins=" in table[0]["setting"]
    again = CliRunner().invoke(main, args, catch_exceptions=False)
    assert again.output.count("done before") == 5
