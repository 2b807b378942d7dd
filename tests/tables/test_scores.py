"""Scores of a model of the user's own: read from tables, learned from by every method, and corrected row by row."""

from __future__ import annotations

import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from sklearn.metrics import f1_score

import histnetq as hq
from histnetq.cli import main
from histnetq.training.pretraining import head_pretraining, label_pretraining
from histnetq.workflows.candidates import from_scores
from tests.conftest import CLASSICAL, QUANTIFIERS, QUICK, exactly, hard_unless, labelled, learn
from tests.persistence.test_tampered import entry, without

NAMES = ["cod", "eel", "hake"]


def scored_rows(n_bags=60, size=20, seed=0, n_classes=3):
    """Rows with calibrated scores of overlapping classes, in bags whose mixes differ."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([rng.choice(n_classes, size, p=p) for p in rng.dirichlet(np.ones(n_classes), n_bags)])
    logits = 3 * (np.eye(n_classes)[codes] + rng.normal(size=(len(codes), n_classes)) * 0.5)
    P = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    frame = pd.DataFrame(P.round(4), columns=[f"p_{name}" for name in NAMES[:n_classes]])
    frame["site"] = np.repeat(np.arange(n_bags), size)
    frame["species"] = np.array(NAMES)[codes]
    frame["depth"] = rng.normal(size=len(codes))
    return frame.assign(y=codes, y_pred=P.argmax(1))


@pytest.fixture(scope="module")
def frame():
    return scored_rows()


@pytest.fixture
def files(tmp_path, monkeypatch, frame):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("scored.csv", index=False)
    scored_rows(seed=1).drop(columns=["species", "y"]).to_csv("new.csv", index=False)
    scored_rows(seed=1).to_csv("checked.csv", index=False)
    two = scored_rows(seed=2, n_classes=2).drop(columns="p_cod").rename(columns={"p_eel": "score"})
    two.to_csv("two.csv", index=False)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def in_bags(frame, **reading):
    return hq.read_bags(frame, bag="site", label="species", **{"proba": "p_*", **reading})


def posteriors(frame):
    P = frame[["p_cod", "p_eel", "p_hake"]].to_numpy()
    return P / P.sum(1, keepdims=True)


@pytest.mark.parametrize("proba", [
    "p_*", "cod=p_cod,eel=p_eel,hake=p_hake", "hake = p_hake, cod=p_cod, eel=p_eel",
    {"eel": "p_eel", "hake": "p_hake", "cod": "p_cod"}, '"cod=p_cod",eel=p_eel,hake=p_hake',
])  # fmt: skip
def test_scores_are_rows_of_probabilities_in_the_order_of_the_classes(frame, proba):
    bags = in_bags(frame, proba=proba)
    assert bags.feature_names == ["p_cod", "p_eel", "p_hake"]
    assert bags.scores.tolist() == bags.classes.tolist() == NAMES
    np.testing.assert_allclose(bags.rows, posteriors(frame), atol=1e-7)
    np.testing.assert_allclose(bags.rows.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_classes_may_be_numbers_and_columns_may_have_any_pattern(frame, tmp_path, ending):
    named = frame.rename(columns={f"p_{name}": f"score {j} of 3" for j, name in enumerate(NAMES)})
    path = tmp_path / f"rows.{ending}"
    named.to_csv(path, index=False) if ending == "csv" else named.to_parquet(path)
    bags = hq.read_bags(path, bag="site", label="y", proba="score * of 3")
    assert bags.classes.tolist() == [0, 1, 2]
    np.testing.assert_allclose(bags.rows, posteriors(frame), atol=1e-7)


def test_of_two_classes_one_column_is_enough():
    frame = pd.DataFrame({"y": ["spam", "ham", "spam"], "score": [0.9, 0.2, 0.7]})
    bags = hq.read_bags(frame, label="y", proba="spam=score")
    assert bags.feature_names == ["1 - score", "score"]
    np.testing.assert_allclose(bags.rows, [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], atol=1e-7)
    other = hq.read_bags(frame, label="y", proba={"ham": "score"})
    assert other.feature_names == ["score", "1 - score"]
    q = hq.PACC().fit(hq.Bags.concat([bags] * 10))
    again = hq.read_bags(frame, features=q.reading())
    np.testing.assert_allclose(again.rows, bags.rows)


def test_rounded_scores_are_divided_by_their_sum():
    frame = pd.DataFrame({"y": ["a", "b"], "p_a": [0.33, 0.66], "p_b": [0.66, 0.35]})
    bags = hq.read_bags(frame, label="y", proba="p_*")
    np.testing.assert_allclose(bags.rows, [[1 / 3, 2 / 3], [66 / 101, 35 / 101]], atol=1e-7)


def test_scores_without_labels_are_estimated_by_their_classes(frame):
    q = hq.EMQ().fit_posteriors(in_bags(frame))
    new = scored_rows(seed=1)
    bags = hq.read_bags(new.sample(frac=1, axis=1, random_state=0), bag="site", proba="p_*")
    assert bags.scores.tolist() == NAMES
    expected = (
        hq.EMQ()
        .fit_posteriors(posteriors(frame), frame["species"])
        .predict_posteriors(hq.Bags.from_labels(posteriors(new), new["species"], groups=new["site"]))
    )
    np.testing.assert_allclose(q.predict(bags), expected, atol=1e-5)
    np.testing.assert_allclose(q.predict_posteriors(bags), expected, atol=1e-5)


@pytest.mark.parametrize("name", [*CLASSICAL, "QuaNet"])
def test_classical_methods_take_scores_for_posteriors(frame, name, tmp_path):
    bags = in_bags(frame)
    q = QUANTIFIERS[name]().fit(bags)
    assert q.scores_
    assert q.classifier_ is None
    same = QUANTIFIERS[name]().fit_posteriors(bags.rows, frame["species"])
    np.testing.assert_array_equal(q.predict(bags), same.predict_posteriors(bags))
    np.testing.assert_array_equal(same.predict(bags.rows[:50]), same.predict_posteriors(bags.rows[:50]))
    q.save(tmp_path / "model")
    loaded = hq.load(tmp_path / "model")
    assert loaded.scores_
    assert loaded.reading().scores
    np.testing.assert_array_equal(loaded.predict(bags), q.predict(bags))


@pytest.mark.parametrize(
    ("make", "standardize"),
    hard_unless(
        lambda make, standardize: standardize == (make is not hq.HistNetQ),
        itertools.product([hq.EMNetQ, hq.HistNetQ, hq.DeepSets], [True, False]),
    ),
)
def test_networks_learn_from_scores_as_log_odds(frame, make, standardize, tmp_path, monkeypatch):
    monkeypatch.setattr(head_pretraining, "_STEPS", {False: 20, True: 20})
    monkeypatch.setattr(label_pretraining, "_FEWEST_UPDATES", 50)
    bags = in_bags(frame)
    training = hq.Training(epochs=2, bags_per_epoch=20, validation_bags=20, device="cpu", standardize=standardize)
    q = make(training=training, random_state=0).fit(bags)
    prepared = q.network_.prepare(torch.as_tensor(bags.rows)).numpy()
    odds = np.log(np.maximum(bags.rows, 1e-4))
    odds = odds - odds.mean(1, keepdims=True)
    expected = (odds - odds.mean(0)) / odds.std(0) if standardize else odds
    assert np.corrcoef(prepared.ravel(), expected.ravel())[0, 1] > 0.99
    if not standardize:
        np.testing.assert_allclose(prepared, odds, atol=1e-4)
    q.save(tmp_path / "model")
    np.testing.assert_allclose(hq.load(tmp_path / "model").predict(bags), q.predict(bags), atol=1e-6)
    with pytest.raises(ValueError, match=r"^posteriors: expected rows of probabilities that sum to 1"):
        q.predict(np.array([[1.0, 2.0, -1.0]]))


@pytest.mark.hard
def test_networks_on_scores_learn_the_mixes(frame):
    bags, new = in_bags(frame), in_bags(scored_rows(seed=1))
    floor = np.abs(new.prevalences - bags.prevalences.mean(0)).mean()
    for make in (hq.EMNetQ, hq.HistNetQ):
        training = hq.Training(epochs=5, bags_per_epoch=50, validation_bags=20, device="cpu")
        q = make(training=training, random_state=0).fit_posteriors(bags)
        assert np.abs(q.predict(new) - new.prevalences).mean() < 0.5 * floor
        # Their rows have scores, which the estimated mix corrects.
        assert q.predict_rows(new).shape == (len(new.index), 3)
        assert q.estimate_performance(new)["accuracy"].between(0.5, 1).all()


def test_networks_learn_from_scores_and_proportions_alone(frame):
    proportions = frame.groupby("site")["species"].value_counts(normalize=True).unstack(fill_value=0).reset_index()
    bags = hq.read_bags(frame, bag="site", proba="p_*", prevalences=proportions)
    assert bags.classes.tolist() == NAMES
    q = hq.EMNetQ(training=QUICK, random_state=0).fit(bags)
    assert q.scores_
    assert np.abs(q.predict(bags) - bags.prevalences).mean() < 0.1


@pytest.mark.parametrize("method", ["pacc", "acc", "emq", "kdey", "hdy", "cc", "mlpe"])
def test_from_a_file_of_scores_to_an_answer(files, method):
    known = ["fit", "scored.csv", "--bag", "site", "--label", "species", "--method", method]
    fitted = run(*known, "--proba", "cod=p_cod,eel=p_eel,hake=p_hake", "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    assert (
        "Learns from p_cod, p_eel, p_hake.\nThe scores must come from rows that your classifier was not trained on: "
        in (fitted.output)
    )
    assert run("predict", "model", "new.csv", "--bag", "site", "-o", "estimates.csv").exit_code == 0
    found = pd.read_csv("estimates.csv").pivot(index="site", columns="class", values="estimate")[NAMES]
    q = hq.load("model")
    np.testing.assert_allclose(found, q.predict(hq.read_bags("new.csv", bag="site", proba="p_*")), atol=1e-5)
    told = run("info", "model").output
    assert "features     p_cod, p_eel, p_hake (scores of a model, in the order of the classes)" in told
    measured = json.loads(
        run("evaluate", "model", "checked.csv", "--bag", "site", "--label", "species", "--json").output
    )
    assert method == "mlpe" or measured["ae"] < 0.6 * measured["baseline"]["ae"]
    if q.sketch_kind is not None:
        assert run("sketch", "model", "new.csv", "--bag", "site", "-o", "sketches.parquet").exit_code == 0
        summed = run("predict", "model", "sketches.parquet", "--json")
        again = pd.DataFrame(json.loads(summed.output)).pivot(index="site", columns="class", values="estimate")[NAMES]
        np.testing.assert_allclose(again, found, atol=1e-9 if q.sketch_kind == "exact" else 0.1)


def test_one_column_of_scores_from_file_to_answer(files):
    fitted = run("fit", "two.csv", "--bag", "site", "--label", "species", "--proba", "eel=score", "--method", "pacc",
                 "-o", "model")  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    assert "Learns from 1 - score, score." in fitted.output
    predicted = run("predict", "model", "two.csv", "--bag", "site", "--wide", "--json")
    assert predicted.exit_code == 0, predicted.output
    found = pd.DataFrame(json.loads(predicted.output)).set_index("site")["eel"]
    truth = (pd.read_csv("two.csv")["species"] == "eel").groupby(pd.read_csv("two.csv")["site"]).mean()
    assert (found - truth).abs().mean() < 0.1


def test_the_best_of_methods_on_scores(files, monkeypatch):
    assert [candidate.name for candidate in from_scores()] == ["EMQ", "KDEy", "PACC", "EMNetQ", "HistNetQ"]
    few = [candidate for candidate in from_scores() if candidate.method not in ("emnetq", "histnetq")]
    monkeypatch.setattr("histnetq.workflows.fitting.from_scores", lambda: few)
    known = ["--bag", "site", "--label", "species", "--proba", "p_*", "--method", "search"]
    told = run("fit", "scored.csv", *known, "-o", "model")
    assert told.exit_code == 0, told.output
    assert "Comparing EMQ, KDEy, PACC on " in told.output
    assert hq.load("model").scores_
    arguments = ["compare", "scored.csv", "--bag", "site", "--label", "species", "--proba", "p_*"]
    compared = json.loads(run(*arguments, "--methods", "cc,pacc", "--json").output)
    assert set(compared["methods"]) == {"CC", "PACC", "training mean"}


def test_predicted_classes(files, frame):
    fitted = run("fit", "scored.csv", "--bag", "site", "--label", "y", "--prediction", "y_pred", "-o", "model")
    assert fitted.exit_code == 0, fitted.output
    assert "ACC learned 3 classes from 60 bags and 3 features" in fitted.output
    # Rows of the same prediction are no shared rows.
    assert "Calibrated by cross-validated estimates of 60 bags" in fitted.output
    q = hq.load("model")
    assert q.feature_names_ == ["y_pred=0", "y_pred=1", "y_pred=2"]
    confused = pd.crosstab(frame["y_pred"], frame["y"], normalize="columns").to_numpy()
    np.testing.assert_allclose(q.matrix_, confused)
    assert run("predict", "model", "new.csv", "--bag", "site", "-o", "estimates.csv").exit_code == 0
    by_hand = hq.ACC().fit_posteriors(np.eye(3)[frame["y_pred"]], frame["y"])
    new = pd.read_csv("new.csv")
    bags = hq.Bags.from_labels(np.eye(3)[new["y_pred"]], np.arange(len(new)) % 3, groups=new["site"])
    found = pd.read_csv("estimates.csv").pivot(index="site", columns="class", values="estimate")
    np.testing.assert_allclose(found, by_hand.predict(bags), atol=1e-8)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_whole_numbers_are_classes_however_they_are_written(frame, tmp_path, ending):
    path, written = tmp_path / f"rows.{ending}", frame.assign(y_pred=frame["y_pred"].astype(float))
    written.to_csv(path, index=False) if ending == "csv" else written.to_parquet(path)
    bags = hq.read_bags(path, bag="site", label="y", prediction="y_pred")
    np.testing.assert_array_equal(bags.rows, np.eye(3)[frame["y_pred"]])


def test_a_class_that_is_never_predicted_has_its_column(frame):
    rare = frame.assign(y_pred=frame["y_pred"].replace(2, 1))
    bags = hq.read_bags(rare, bag="site", label="y", prediction="y_pred")
    assert bags.rows.sum(0)[2] == 0
    assert hq.ACC().fit(bags).predict(bags).shape == (60, 3)


def test_rows_of_scores_stream(files):
    for method in ("acc", "pacc"):
        known = ["fit", "scored.csv", "--bag", "site", "--label", "species", "--proba", "p_*", "--method", method]
        assert run(*known, "-o", method).exit_code == 0
        q = hq.load(method)
        assert q.sketch_kind == "exact"
        rows = pd.read_csv("new.csv")
        ids, p = q.predict_stream((part["site"], part[["p_cod", "p_eel", "p_hake"]]) for _, part in
                                  rows.groupby(np.arange(len(rows)) // 100))  # fmt: skip
        np.testing.assert_allclose(p[np.argsort(ids)], q.predict(hq.read_bags("new.csv", bag="site", proba="p_*")),
                                   atol=1e-3)  # fmt: skip


@pytest.mark.parametrize("method", ["emq", "pacc", "kdey"])
def test_rows_are_corrected_for_the_mix_of_their_bag(files, method):
    known = ["fit", "scored.csv", "--bag", "site", "--label", "species", "--proba", "p_*", "--method", method]
    assert run(*known, "-o", "model").exit_code == 0
    told = run("predict", "model", "new.csv", "--bag", "site", "-o", "estimates.csv", "--rows", "rows.csv")
    assert told.exit_code == 0, told.output
    assert "The class probabilities of each row are written to rows.csv." in told.output
    rows, truth = pd.read_csv("rows.csv"), pd.read_csv("checked.csv")
    assert list(rows) == ["row", "site", *NAMES]
    assert rows["row"].tolist() == list(range(1, len(truth) + 1))
    assert (rows["site"] == truth["site"]).all()
    np.testing.assert_allclose(rows[NAMES].sum(axis=1), 1, atol=1e-6)
    corrected = (rows[NAMES].to_numpy().argmax(1) == truth["y"]).mean()
    assert corrected > (truth["y_pred"] == truth["y"]).mean() + 0.01
    assert run("predict", "model", "new.csv", "--bag", "site", "--rows", "rows.csv").exit_code == 2


def test_the_shift_of_posteriors_by_hand():
    P = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.4, 0.6]] * 50)
    y = np.array([0, 1, 0, 1] * 50)
    y[::8] = 1 - y[::8]
    q = hq.PACC().fit_posteriors(P, y)
    new, prior = q.predict_rows(P[:4], q.train_prevalences_), q.train_prevalences_
    shifted = q.predict_rows(P[:4], [0.9, 0.1])
    odds = (shifted[:, 0] / shifted[:, 1]) / (new[:, 0] / new[:, 1])
    np.testing.assert_allclose(odds, 9 / (prior[0] / prior[1]))
    assert (q.predict_rows(P[:4], [1.0, 0.0])[:, 0] == 1).all()
    np.testing.assert_allclose(q.predict_rows(P).mean(0), q.predict(P), atol=0.02)


def test_methods_without_probabilities_of_rows_say_so(frame):
    q = hq.MLPE().fit(in_bags(frame))
    with pytest.raises(TypeError, match=exactly(
        "predict_rows: MLPE gives no probabilities of rows; use EMNetQ, or a method such as EMQ."
    )):  # fmt: skip
        q.predict_rows(in_bags(frame))
    with pytest.raises(TypeError, match=r"^estimate_performance: EMNetQ has no confusion matrix of a classifier; use"):
        learn(QUANTIFIERS["EMNetQ"]()).estimate_performance(labelled()[0])


def test_weights_of_classes(frame):
    bags = in_bags(frame)
    q = hq.PACC().fit(bags)
    np.testing.assert_allclose(q.class_weights(bags), q.predict(bags) / q.train_prevalences_)
    np.testing.assert_allclose(q.class_weights(bags) @ q.train_prevalences_, 1)
    absent = hq.EMQ().fit_posteriors([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]] * 5, [0, 1] * 5, classes=[0, 1, 2])
    assert absent.class_weights([[0.5, 0.5, 0.0]])[2] == 0


@pytest.mark.parametrize("method", ["ACC", "PACC", "EMQ", "KDEy"])
def test_expected_performance_is_near_the_truth(frame, method):
    q = getattr(hq, method)().fit(in_bags(frame))
    truth = scored_rows(seed=3, size=200)
    bags = in_bags(truth)
    found = q.estimate_performance(bags)
    sites = truth.groupby("site")
    accuracy = sites.apply(lambda s: (s["y"] == s["y_pred"]).mean(), include_groups=False)
    f1 = sites.apply(lambda s: f1_score(s["y"], s["y_pred"], average="macro"), include_groups=False)
    assert found.index.tolist() == accuracy.index.tolist()
    assert (found["accuracy"] - accuracy).abs().mean() < 0.03
    assert (found["f1"] - f1).abs().mean() < 0.05
    assert np.corrcoef(found["f1"], f1)[0, 1] > 0.7


def test_weights_count_as_copies(frame):
    q = hq.PACC().fit(in_bags(frame))
    P = posteriors(frame)[:6]
    counts = np.array([1, 3, 2, 1, 1, 4])
    np.testing.assert_allclose(
        q.estimate_performance(hq.Bags(P, weights=counts)), q.estimate_performance(np.repeat(P, counts, axis=0))
    )


FIT = ["fit", "scored.csv", "--bag", "site", "--label", "species", "-o", "model", "--method", "pacc"]


def cells(**changed):
    """scored.csv with other numbers in its third row."""

    def change(frame):
        frame = frame.astype({name: object if isinstance(value, str) else float for name, value in changed.items()})
        for name, value in changed.items():
            frame.loc[2, name] = value
        return frame

    return change


BAD_FITS = {
    "a column that is not there": (
        None, ["--proba", "cod=p_cod,eel=p_eel,hake=p_hak"],
        "has no column 'p_hak', its columns are",
    ),
    "no equals sign and no star": (
        None, ["--proba", "p_cod"],
        "--proba: expected CLASS=COLUMN pairs separated by commas, or a pattern with one star",
    ),
    "two stars": (
        None, ["--proba", "*_*"],
        "--proba: expected CLASS=COLUMN pairs separated by commas, or a pattern with one star",
    ),
    "nothing": (
        None, ["--proba", ""],
        "--proba: expected CLASS=COLUMN pairs separated by commas, or a pattern with one star",
    ),
    "a pattern of no column": (None, ["--proba", "q_*"], "--proba: no column is like 'q_*', the columns are"),
    "a class without a column": (
        None, ["--proba", "cod=p_cod,eel=p_eel"],
        "--proba: expected a column for each class, got none for 'hake'",
    ),
    "two lines": (
        None, ["--proba", "cod=p_cod\neel=p_eel"],
        "has no column 'p_cod eel=p_eel', its columns are",
    ),
    "a class without a name": (None, ["--proba", "=p_cod,eel=p_eel"], "--proba: expected CLASS=COLUMN, got =p_cod"),
    "a column without a name": (None, ["--proba", "cod=,eel=p_eel"], "--proba: expected CLASS=COLUMN, got cod="),
    "a pair without a column": (None, ["--proba", "cod=p_cod,eel"], "--proba: expected CLASS=COLUMN, got eel="),
    "a class twice": (None, ["--proba", "cod=p_cod,cod=p_eel"], "--proba: the class 'cod' is named twice"),
    "a column twice": (None, ["--proba", "cod=p_cod,eel=p_cod"], "--proba: the column 'p_cod' is named twice"),
    "a class that no row has": (
        None, ["--proba", "cod=p_cod,eel=p_eel,ling=p_hake"],
        "--proba: expected one of the classes ['cod', 'eel', 'hake'] of column 'species', got 'ling'",
    ),
    "one column for three classes": (
        None, ["--proba", "cod=p_cod"],
        "--proba: expected a column for each class, got none for 'eel'",
    ),
    "the bag as a score": (
        None, ["--proba", "cod=p_cod,eel=p_eel,hake=site"],
        "--proba: 'site' is the bag, label or weight column",
    ),
    "texts as scores": (
        lambda f: f.assign(p_cod="high"), ["--proba", "p_*"],
        "column 'p_cod' holds string, expected probabilities",
    ),
    "logits": (
        cells(p_cod=4.2), ["--proba", "p_*"],
        "row 3 has 4.2 in column 'p_cod', expected a probability from 0 to 1; turn logits",
    ),
    "negative scores": (
        cells(p_cod=-0.5), ["--proba", "p_*"],
        "row 3 has -0.5 in column 'p_cod', expected a probability from 0 to 1",
    ),
    "sums far from 1": (cells(p_cod=0.9, p_eel=0.9), ["--proba", "p_*"], "the scores of row 3 sum to "),
    "percentages": (lambda f: f.assign(p_cod=f.p_cod * 100), ["--proba", "p_*"], "percentages by a division by 100"),
    "no score": (
        cells(p_eel=np.nan), ["--proba", "p_*"],
        "row 3 has nothing in column 'p_eel', expected the score of a model; fill it in, or pass --missing drop",
    ),
    "means for scores": (
        None, ["--proba", "p_*", "--missing", "mean"],
        "--missing: expected 'refuse' or 'drop' for scores, got 'mean'",
    ),
    "an infinite score": (cells(p_eel=np.inf), ["--proba", "p_*"], "row 3 has inf in column 'p_eel'"),
    "scores and features": (
        None, ["--proba", "p_*", "--features", "depth"],
        "--features: expected none beside scores or predictions",
    ),
    "scores and predictions": (
        None, ["--proba", "p_*", "--prediction", "y_pred"],
        "--proba, --prediction: expected one of them, got both",
    ),
    "scores and a classifier": (
        None, ["--proba", "p_*", "--classifier", "forest"],
        "--classifier: expected none for scores of your own classifier, got 'forest' and --proba; leave one",
    ),
    "one class alone": (
        lambda f: f.assign(species="cod"), ["--proba", "p_*"],
        "--label: expected at least 2 classes, got only ['cod']",
    ),
}  # fmt: skip
BAD_PREDICTIONS = {
    "a column that is not there": (None, ["--prediction", "y_prod"], "has no column 'y_prod', its columns are"),
    "the label itself": (None, ["--prediction", "y"], "--prediction: 'y' is the bag, label or weight column"),
    "the bag": (None, ["--prediction", "site"], "--prediction: 'site' is the bag, label or weight column"),
    "a class that no row has": (
        cells(y_pred=7), ["--prediction", "y_pred"],
        "row 3 has a class in column 'y_pred' that is none of ['0', '1', '2']",
    ),
    "classes of other names": (
        lambda f: f.assign(y_pred=f.species), ["--prediction", "y_pred"],
        "row 1 has a class in column 'y_pred' that is none of",
    ),
    "no prediction": (
        cells(y_pred=""), ["--prediction", "y_pred"],
        "row 3 has nothing in column 'y_pred', expected the score of a model",
    ),
    "a method on probabilities": (
        None, ["--prediction", "y_pred", "--method", "emq"],
        "--method: expected acc or cc for predicted classes, got emq, which reads probabilities",
    ),
    "a network": (
        None, ["--prediction", "y_pred", "--method", "histnetq"],
        "--method: expected acc or cc for predicted classes, got histnetq",
    ),
    "an unknown method": (None, ["--prediction", "y_pred", "--method", "best"], "--method: expected one of 'auto'"),
    "features": (
        None, ["--prediction", "y_pred", "--features", "depth"],
        "--features: expected none beside scores or predictions",
    ),
    "a classifier": (
        None, ["--prediction", "y_pred", "--classifier", "forest"],
        "--classifier: expected none for scores of your own classifier, got 'forest' and --prediction; leave one of",
    ),
    "means": (
        None, ["--prediction", "y_pred", "--missing", "mean"],
        "--missing: expected 'refuse' or 'drop' for scores, got 'mean'",
    ),
    "a loss": (None, ["--prediction", "y_pred", "--loss", "rae"], "--loss: ACC is not a network and has no loss"),
    "one class alone": (
        lambda f: f.assign(y=1), ["--prediction", "y_pred"],
        "--label: expected at least 2 classes, got only [1]",
    ),
    "no rows": (lambda f: f[:0], ["--prediction", "y_pred"], "has no rows"),
    "a label column that is not there": (
        lambda f: f.drop(columns="y"), ["--prediction", "y_pred"],
        "has no column 'y'",
    ),
    "proportions in place of labels": (
        None, ["--prediction", "y_pred", "--prevalences", "scored.csv"],
        "--prevalences: expected either --label or --prevalences, got both",
    ),
}  # fmt: skip
BAD_PREDICTS = {
    "no column of a score": (lambda f: f.drop(columns="p_eel"), [], "has no column 'p_eel', its columns are"),
    "logits": (
        cells(p_cod=4.2), [],
        "row 3 has 4.2 in column 'p_cod', expected a probability from 0 to 1; turn logits",
    ),
    "negative scores": (cells(p_cod=-3), [], "row 3 has -3 in column 'p_cod', expected a probability from 0 to 1"),
    "sums far from 1": (cells(p_cod=0.9, p_eel=0.9), [], "the scores of row 3 sum to "),
    "texts": (lambda f: f.assign(p_cod="high"), [], "column 'p_cod' holds string, expected numbers"),
    "no score": (cells(p_eel=np.nan), [], "row 3 has nothing in column 'p_eel', expected the score of a model"),
    "an infinite score": (cells(p_eel=-np.inf), [], "row 3 has -inf in column 'p_eel'"),
    "means": (None, ["--missing", "mean"], "--missing: expected 'refuse' or 'drop' for scores, got 'mean'"),
    "a bag column that is not there": (None, ["--bag", "place"], "has no column 'place'"),
    "no rows": (lambda f: f[:0], [], "has no rows"),
    "rows in the file of the estimates": (
        None, ["--rows", "estimates.csv"],
        "--rows: estimates.csv is also the file of output; name another file.",
    ),
    "rows in a file that exists": (
        None, ["--rows", "new.csv"],
        "Error: --rows: new.csv exists; choose another name or pass --force",
    ),
    "rows that are left out": (
        None, ["--rows", "rows.csv", "--missing", "drop"],
        "--rows: expected rows without missing values, got --missing drop; remove the rows with missing values first.",
    ),
    "rows on other machines": (
        None, ["--rows", "rows.csv", "--dask", "tcp://127.0.0.1:1"],
        "--rows: expected a table that is read here, got sketches or --dask; leave one of them out.",
    ),
    "rows of two columns of one name": (
        lambda f: f.rename(columns={"site": "cod"}), ["--rows", "rows.csv"],
        "--rows: two columns would be named 'cod'",
    ),
    "rows in a place that is none": (
        None, ["--rows", "new.csv/rows.csv"],
        "--rows: new.csv/rows.csv cannot be written (Not a directory); choose another place.",
    ),
    "rows in the file of the estimates by another name": (
        None, ["--rows", "no/../estimates.csv"],
        "--rows: no/../estimates.csv is also the file of output; name another file.",
    ),
    "estimates in a place that is none": (
        None, ["--rows", "rows.csv", "-o", "new.csv/estimates.csv"],
        "--output: new.csv/estimates.csv cannot be written (Not a directory); choose another place.",
    ),
    "the bag as a score": (
        None,
        ["--bag", "p_cod"],
        "features: expected columns other than the bag, label and weight columns, got 'p_cod'",
    ),
    "a weight that is a text": (
        lambda f: f.assign(w="much"), ["--weight", "w"],
        "column 'w' holds string, expected numbers",
    ),
}  # fmt: skip


def refused(told, words):
    assert told.exit_code == 2, told.output
    assert isinstance(told.exception, SystemExit)
    assert words in told.output
    sentence = told.output.strip().rpartition("Error: ")[2]
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize("kind", BAD_FITS)
def test_scores_that_are_none_are_refused_in_a_sentence(files, frame, kind):
    change, arguments, words = BAD_FITS[kind]
    (frame if change is None else change(frame)).to_csv("scored.csv", index=False)
    before = sorted(path.name for path in files.iterdir())
    refused(run(*FIT, *arguments), words)
    assert sorted(path.name for path in files.iterdir()) == before


@pytest.mark.parametrize("kind", BAD_PREDICTIONS)
def test_predictions_that_are_none_are_refused_in_a_sentence(files, frame, kind):
    change, arguments, words = BAD_PREDICTIONS[kind]
    (frame if change is None else change(frame)).to_csv("scored.csv", index=False)
    before = sorted(path.name for path in files.iterdir())
    refused(run("fit", "scored.csv", "--bag", "site", "--label", "y", "-o", "model", *arguments), words)
    assert sorted(path.name for path in files.iterdir()) == before


@pytest.fixture(scope="module")
def model(frame, tmp_path_factory):
    place = tmp_path_factory.mktemp("scored") / "model"
    hq.PACC().fit(in_bags(frame)).save(place)
    return place


@pytest.mark.parametrize("kind", BAD_PREDICTS)
def test_new_scores_that_are_none_are_refused_in_a_sentence(files, model, kind):
    change, arguments, words = BAD_PREDICTS[kind]
    new = pd.read_csv("new.csv")
    (new if change is None else change(new)).to_csv("new.csv", index=False)
    before = sorted(path.name for path in files.iterdir())
    bag = [] if "--bag" in arguments else ["--bag", "cod" if "one name" in kind else "site"]
    output = [] if "-o" in arguments else ["-o", "estimates.csv"]
    refused(run("predict", model, "new.csv", *bag, *output, *arguments), words)
    assert sorted(path.name for path in files.iterdir()) == before


def test_there_are_enough_bad_inputs():
    assert all(len(kinds) >= 15 for kinds in (BAD_FITS, BAD_PREDICTIONS, BAD_PREDICTS))


@pytest.mark.parametrize(("make", "told"), [
    (lambda f: hq.read_bags(f, label="species", proba=["p_cod"]),
     "proba: expected a text or a mapping from classes to columns, got list."),
    (lambda f: hq.PACC().fit(in_bags(f).with_classes(["hake", "eel", "cod"])),
     "bags: expected the classes of their scores, ['cod', 'eel', 'hake'], in this order, got ['hake', 'eel', 'cod']; "
     "read them with a column for each class."),
    (lambda f: hq.Bags.concat([in_bags(f), in_bags(f, proba=None, features=["p_cod", "p_eel", "p_hake"])]),
     "parts: number 1 has scores of other classes than number 0, or none; give all the same."),
    (lambda f: hq.PACC().fit_posteriors(in_bags(f), f["species"]),
     "y: expected None with Bags, which have their own labels, got labels; leave it out."),
    (lambda f: hq.fit_best(f, label="species", proba="p_*", method="emq", classifier="forest"),
     "classifier: expected none for scores of your own classifier, got 'forest' and proba=; leave one of them out."),
    (lambda f: hq.PACC().fit_posteriors([[0.5, 0.5]]),
     "y: expected a label for each row of posteriors, got None; pass the labels, or Bags with them."),
    (lambda f: hq.PACC().fit_posteriors([[0.5, 0.3, 0.2], [0.1, 0.9, 0.0]], ["a", "b"]),
     "posteriors: expected 2 columns, one for each class, got 3; if y lacks some classes, name all classes with "
     "classes=[...]."),
    (lambda f: hq.PACC().fit_posteriors(hq.Bags([[0.5, 0.5]])),
     "posteriors: expected bags with classes, got bags without; pass classes= when making them."),
    (lambda f: hq.read_bags(f, label="y", prediction=["y_pred"]),
     "prediction: expected the name of a column, got list; name one."),
    (lambda f: hq.PACC().fit_posteriors([["much", "little"]], ["a"]),
     "posteriors: expected an array of numbers, one row per example, got list that does not convert to one; give each "
     "row a probability of each class."),
    (lambda f: hq.PACC().fit_posteriors([[0.5, 0.5], [1.0]], ["a", "b"]),
     "posteriors: expected an array of numbers, one row per example, got list that does not convert to one; give each "
     "row a probability of each class."),
    (lambda f: (q := hq.PACC().fit(in_bags(f))).predict_rows(q.sketch(in_bags(f))),
     "X: expected rows, got a sketch without rows; pass the Bags themselves."),
    (lambda f: (q := hq.PACC().fit(in_bags(f))).estimate_performance(q.sketch(in_bags(f))),
     "X: expected rows, got a sketch without rows; pass the Bags themselves."),
    (lambda f: hq.read_bags(f, prediction="y_pred"),
     "prediction: expected beside the column of true classes, got no label; name it."),
])  # fmt: skip
def test_what_is_wrong_in_python(frame, make, told):
    with pytest.raises((ValueError, TypeError), match=exactly(told)):
        make(frame)


EXCHANGED = [
    lambda f: hq.read_bags(f, label="species", proba="cod=p_eel,eel=p_cod,hake=p_hake"),
    lambda f: hq.read_bags(f.assign(y_pred=(f["y_pred"] + 1) % 3), label="y", prediction="y_pred"),
    lambda f: hq.EMQ().fit_posteriors(posteriors(f)[:, ::-1], f["species"]),
]


@pytest.mark.parametrize("make", EXCHANGED)
def test_exchanged_columns_are_told(frame, make):
    told = r"rows of class '.+' have 0\.\d+ on average in column '.+', and rows of class '.+' 0\.\d+, expected more for"
    with pytest.warns(UserWarning, match=told):
        make(frame)


def test_scores_that_tell_nothing_are_not_called_exchanged(frame):
    flat = np.random.default_rng(0).dirichlet(np.ones(3), len(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hq.EMQ().fit_posteriors(flat, frame["species"])
        hq.EMQ().fit_posteriors(np.full((len(frame), 3), 1 / 3), frame["species"])


def test_tuning_on_scores(files):
    known = ["tune", "scored.csv", "--bag", "site", "--label", "species", "--trials", "2", "-o", "model"]
    told = run(*known, "--proba", "p_*", "--method", "kdey")
    assert told.exit_code == 0, told.output
    assert hq.load("model").scores_
    assert "bandwidth" in hq.load("model").provenance_["why"]
    for method in ("pacc", "acc"):
        refused(run(*known, "--force", "--proba", "p_*", "--method", method), "has nothing to tune on scores; fit it.")
    refused(run(*known, "--force", "--proba", "q_*", "--method", "emq"), "--proba: no column is like 'q_*'")
    refused(run(*known, "--force", "--proba", "p_*", "--method", "emq", "--classifier", "mlp"),
            "--classifier: expected none for scores of your own classifier, got 'mlp' and --proba; leave")  # fmt: skip


def test_rows_are_estimated_once(files, model, monkeypatch):
    calls = []
    monkeypatch.setattr(hq.PACC, "_quantify", lambda self, *a, old=hq.PACC._quantify: calls.append(1) or old(self, *a))
    assert run("predict", model, "new.csv", "--bag", "site", "-o", "estimates.csv", "--rows", "rows.csv").exit_code == 0
    assert len(calls) == 1


def test_models_of_scores_have_bayesian_intervals(files, model):
    told = run("predict", model, "new.csv", "--bag", "site", "--interval", "bayes", "-o", "estimates.csv")
    assert told.exit_code == 0, told.output
    found, truth = pd.read_csv("estimates.csv"), in_bags(scored_rows(seed=1)).prevalences.ravel()
    assert ((found["lower"] <= truth) & (truth <= found["upper"])).mean() > 0.8


TAMPERED = {
    "scores that are a text": entry(scores="yes"),
    "scores of other rows than of probabilities": entry(scores=True, input_shape=[4], feature_names=list("wxyz")),
    "scores that are a number": entry(scores=1),
    "rows of another shape": entry(input_shape=[4], feature_names=list("wxyz"), scores=False),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_altered_models_of_scores_are_refused(frame, tmp_path, kind):
    hq.PACC().fit(in_bags(frame)).save(tmp_path / "model")
    TAMPERED[kind](tmp_path / "model")
    with pytest.raises(ValueError, match=r"path: ") as caught:
        hq.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_models_of_posteriors_of_earlier_versions_load(frame, tmp_path):
    q = hq.PACC().fit_posteriors(posteriors(frame), frame["species"])
    q.save(tmp_path / "model")
    without("scores")(tmp_path / "model")
    loaded = hq.load(tmp_path / "model")
    assert loaded.scores_
    np.testing.assert_array_equal(loaded.predict(posteriors(frame)), q.predict(posteriors(frame)))


def test_candidates_on_predictions(files):
    arguments = ["compare", "scored.csv", "--bag", "site", "--label", "y", "--prediction", "y_pred", "--json"]
    assert set(json.loads(run(*arguments).output)["methods"]) == {"ACC", "CC", "training mean"}


def test_the_tables_of_the_documentation(tmp_path, monkeypatch):
    from experiments.__main__ import main as experiments

    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(experiments, ["scored-digits"]).exit_code == 0
    named = ["--proba", "cod=p_cod,eel=p_eel,hake=p_hake", "--method", "pacc", "-o", "model"]
    assert run("fit", "scored.csv", "--bag", "site", "--label", "species", *named).exit_code == 0
    assert run("predict", "model", "new.csv", "--bag", "site", "-o", "estimates.csv").exit_code == 0
    told = run("fit", "scored.csv", "--bag", "site", "--label", "y", "--prediction", "y_pred", "-o", "hard")
    assert told.exit_code == 0, told.output
    two = ["--label", "kind", "--proba", "spam=score", "--method", "emq", "-o", "two"]
    told = run("fit", "scored.csv", "--bag", "site", *two)
    assert told.exit_code == 0, told.output


def test_performance_is_measured(tmp_path):
    from experiments.__main__ import main as experiments
    from experiments.scored import foreseen

    found = foreseen(1, n_bags=20).set_index(["model", "guess"])["accuracy"].unstack("guess")
    assert (found["EMQ, bcts"] < found["that of the labelled rows"]).all()
    assert "performance" in experiments.commands
