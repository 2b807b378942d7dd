"""The default fit to labelled rows, and its choice of a classifier."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import sparse

import histnetq as hq
from histnetq.cli import main
from histnetq.quantifiers.classical.cross_fitting import CrossFitted
from histnetq.registry import CLASSIFIERS
from histnetq.workflows import candidates, classifier_choice
from histnetq.workflows.candidates import Candidate
from histnetq.workflows.classifier_choice import COMPARED, affordable, log_loss
from histnetq.workflows.fitting import Workbench


@pytest.fixture(autouse=True)
def small_trees(monkeypatch):
    monkeypatch.setitem(CLASSIFIERS["forest"].params, "n_estimators", 10)
    monkeypatch.setitem(CLASSIFIERS["boosting"].params, "max_iter", 10)


def rows_of(kind, n_rows=300, seed=0):
    """Return rows that a logistic regression separates ("line"), or that only trees separate ("corners")."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 2))
    score = X.sum(1) if kind == "line" else X[:, 0] * X[:, 1]
    y = np.where(score + 0.1 * rng.normal(size=n_rows) > 0, "b", "a")
    return hq.Bags.from_labels(X, y)


@pytest.mark.parametrize(("kind", "best"), [("line", {"logistic"}), ("corners", {"forest", "boosting"})])
def test_the_classifier_suits_the_rows(kind, best):
    model, comparison = Workbench(rows_of(kind)).fit("auto")
    assert comparison is None
    assert isinstance(model, hq.Pretrained)
    losses = model.provenance_["log_losses"]
    assert model.classifier in best
    assert set(losses) == set(COMPARED)
    assert losses[model.classifier] == min(losses.values())
    same = hq.Pretrained(model.classifier, random_state=0).fit(rows_of(kind))
    new = hq.APP(30).draw(rows_of(kind, seed=1), 10, random_state=0)
    np.testing.assert_array_equal(model.predict(new), same.predict(new))


def test_the_sentence_names_the_log_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bags = rows_of("line")
    frame = pd.DataFrame({"x": bags.rows[:, 0], "y": bags.rows[:, 1], "kind": bags.classes[bags.labels]})
    frame.to_csv("rows.csv", index=False)
    told = CliRunner().invoke(main, ["fit", "rows.csv", "--label", "kind", "-o", "model"])
    assert told.exit_code == 0, told.output
    known = hq.load("model").provenance_
    losses = {name: f"{loss:.4f}" for name, loss in known["log_losses"].items()}
    assert known["why"] == (
        f"The classifier is a logistic regression, with the lowest log-loss on held-out rows: {losses['logistic']} "
        f"(forest {losses['forest']}, boosting {losses['boosting']})."
    )
    assert known["why"] in told.output
    assert f"  forest: log-loss {losses['forest']} on held-out rows." in told.output
    again = CliRunner().invoke(main, ["fit", "rows.csv", "--label", "kind", "-o", "other", "--json"])
    assert json.loads(again.output)["why"] == known["why"]
    relative = CliRunner().invoke(main, ["fit", "rows.csv", "--label", "kind", "--loss", "rae", "-o", "relative"])
    assert relative.exit_code == 0, relative.output
    assert hq.load("relative").loss == "rae"


def test_a_named_classifier_is_not_compared():
    model, _ = hq.fit_best(rows_of("corners"), classifier="logistic")
    assert model.classifier == "logistic"
    assert "log_losses" not in model.provenance_


def test_bags_of_labelled_rows_have_the_same_default():
    bags = rows_of("line")
    grouped = hq.Bags.from_labels(bags.rows, bags.classes[bags.labels], groups=np.arange(300) // 10)
    model, _ = hq.fit_best(grouped)
    assert model.classifier == "logistic"
    assert model.provenance_["calibrated"] == "by cross-validated estimates of 30 bags"


def test_the_default_is_named_in_one_place(monkeypatch):
    monkeypatch.setattr("histnetq.workflows.fitting.DEFAULT", Candidate("pacc"))
    assert isinstance(Workbench(rows_of("line")).fit("auto")[0], hq.PACC)
    assert Candidate("pretrained") == candidates.DEFAULT


def test_scores_need_no_classifier():
    P = np.random.default_rng(0).dirichlet([1, 1], size=200)
    frame = pd.DataFrame(P, columns=["p_a", "p_b"]).assign(kind=np.where(P[:, 0] > 0.5, "a", "b"))
    model, _ = hq.fit_best(frame, label="kind", proba="p_*")
    assert isinstance(model, hq.Pretrained)
    assert model.classifier_ is None


def test_many_rows_are_compared_on_a_part(monkeypatch):
    monkeypatch.setattr(classifier_choice, "_MOST_ROWS", 100)
    seen, given = [], hq.Pretrained.cross_fit
    monkeypatch.setattr(
        hq.Pretrained, "cross_fit", lambda self, bags: seen.append(len(bags.index)) or given(self, bags)
    )
    model, _ = Workbench(rows_of("line")).fit("auto")
    assert seen == [100, 100, 100, 300]
    assert len(model.training_labels_) == 300


def test_slow_boosting_is_skipped(monkeypatch):
    bags = rows_of("line")
    assert affordable(COMPARED, bags) == (list(COMPARED), "")
    monkeypatch.setattr(classifier_choice, "_MOST_UNITS", 0.5)
    words = "Boosting is skipped because it takes long on 300 rows, 2 features and 2 classes."
    assert affordable(COMPARED, bags) == (["logistic", "forest"], words)
    assert affordable(["logistic"], bags) == (["logistic"], "")
    assert Workbench(bags).fit("auto")[0].provenance_["why"].endswith(f" {words}")
    assert words in Workbench(bags)._candidates(None)[1]


def test_sparse_rows_are_not_boosted():
    bags = rows_of("line")
    assert affordable(COMPARED, hq.Bags.from_labels(sparse.csr_matrix(bags.rows), bags.labels)) == (
        ["logistic", "forest"], "Boosting is skipped because it cannot read sparse rows.",
    )  # fmt: skip


def test_log_loss_of_rescaled_and_weighted_posteriors():
    P, y = np.array([[0.8, 0.2]] * 1000 + [[0.2, 0.8]] * 1000), np.repeat([0, 1], 1000)
    y[:100], y[1000:1100] = 1, 0  # nine in ten are right
    found = log_loss(CrossFitted(None, None, P, y, None, None))
    assert found == pytest.approx(-0.9 * np.log(0.9) - 0.1 * np.log(0.1), abs=1e-4)
    w = np.ones(2000)
    w[:100] = w[1000:1100] = 1e-9
    assert log_loss(CrossFitted(None, None, P, y, w, None)) < 0.02
    certain = np.array([[1.0, 0.0]] * 10 + [[0.0, 1.0]] * 10)
    y = np.repeat([0, 1], 10)
    y[0], y[10] = 1, 0  # two in twenty are wrong
    assert log_loss(CrossFitted(None, None, certain, y, None, None)) < 0.5, "unscaled, it is 2.8"
