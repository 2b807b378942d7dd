"""Posteriors that contradict the labels: EMQ finds it, rescales them and says so."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.cli import main
from histnetq.quantifiers.classical.emq import find_contradiction


def skewed(n: int, share: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two overlapping classes, the second of which is rare."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return rng.normal(size=(n, 2)) + 1.5 * y[:, None], np.array(["cod", "eel"])[y]


@pytest.fixture(scope="module")
def bags():
    X, y = skewed(4000, 0.5, seed=1)
    return hq.APP(200).draw(hq.Bags.from_labels(X, y), 60, random_state=0)


def error_of(q, bags) -> float:
    return float(hq.evaluate(q, bags)["ae"].mean())


WARNING = (
    r"EMQ: posteriors contradict the labels \(class 'eel' has the mean posterior 0\.\d\d and 0\.1\d of the labels\), "
    r"so they are rescaled by 'bcts'; name a rescaling to choose it yourself\."
)


def test_a_balanced_classifier_is_corrected(bags):
    balanced = LogisticRegression(class_weight="balanced")
    with pytest.warns(UserWarning, match=WARNING):
        q = hq.EMQ(balanced, random_state=0).fit(*skewed(2000))
    assert q.rescaled_by_ == "bcts"
    by_hand = hq.EMQ(balanced, random_state=0, rescaling="bcts").fit(*skewed(2000))
    np.testing.assert_array_equal(q.predict(bags), by_hand.predict(bags))
    never = hq.EMQ(balanced, random_state=0, rescaling=None).fit(*skewed(2000))
    assert error_of(q, bags) < 0.04 < 3 * 0.04 < error_of(never, bags)


def test_a_fitted_classifier_of_another_mix_is_corrected(bags):
    fitted = LogisticRegression().fit(*skewed(4000, 0.6, seed=2))
    with pytest.warns(UserWarning, match=WARNING):
        q = hq.EMQ(fitted, cv=None).fit(*skewed(2000))
    assert error_of(q, bags) < 0.04


def test_scores_of_another_mix_are_corrected_after_loading_too(bags, tmp_path):
    fitted = LogisticRegression().fit(*skewed(4000, 0.6, seed=2))
    X, y = skewed(2000)
    with pytest.warns(UserWarning, match=WARNING):
        q = hq.EMQ().fit_posteriors(fitted.predict_proba(X), y, classes=["cod", "eel"])
    q.save(tmp_path / "model")
    scored = hq.Bags(fitted.predict_proba(bags.rows), bags.index, bags.offsets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = hq.load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict(scored), q.predict(scored))
        again.bootstrap_interval(scored[:2], n_resamples=3)
    assert again.rescaled_by_ == "bcts"


@pytest.mark.parametrize("classifier", ["logistic", "forest", "boosting"])
def test_usual_classifiers_are_left_as_they_are(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = hq.EMQ(classifier, random_state=0).fit(*skewed(2000))
    assert q.rescaled_by_ is None
    plain = hq.EMQ(classifier, random_state=0, rescaling=None).fit(*skewed(2000))
    X, _ = skewed(100, seed=3)
    np.testing.assert_array_equal(q.predict(X), plain.predict(X))


def test_few_rows_contradict_nothing():
    P = np.array([[0.5, 0.5]] * 8)
    assert find_contradiction(P, np.array([0, 0, 0, 1, 0, 0, 1, 0])) is None
    assert find_contradiction(np.repeat(P, 50, axis=0), np.repeat([0, 0, 0, 1, 0, 0, 1, 0], 50)) == (1, 0.5, 0.25)
    labels = np.array([0, 0, 0, 1, 0, 0, 1, 0])
    assert find_contradiction(P, labels, np.full(8, 50)) == (1, 0.5, 0.25), "a count of 50 is 50 rows"
    assert find_contradiction(P, labels, np.full(8, 50.0)) is None, "a survey weight of 50 is one row"


def test_the_command_line_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted = LogisticRegression().fit(*skewed(4000, 0.6, seed=2))
    X, y = skewed(2000)
    frame = pd.DataFrame(fitted.predict_proba(X), columns=["p_cod", "p_eel"])
    frame.assign(species=y).to_csv("scores.csv", index=False)
    typed = ["fit", "scores.csv", "--label", "species", "--proba", "p_*", "--method", "emq", "-o"]
    done = CliRunner().invoke(main, [*typed, "model"])
    assert done.exit_code == 0, done.output
    assert "posteriors contradict the labels (class 'eel' has the mean posterior" in done.stderr
    none = CliRunner().invoke(main, [*typed, "other", "--rescaling", "none"])
    assert none.exit_code == 0, none.output
    assert "contradict" not in none.stderr
    assert hq.load("other").rescaling is None
