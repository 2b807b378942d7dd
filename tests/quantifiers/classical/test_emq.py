"""EMQ: posteriors that contradict the labels, and Bayes estimates with priors."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.cli import main
from histnetq.quantifiers.classical.emq import find_contradiction
from histnetq.quantifiers.classical.rescaling import fit_scales
from tests.conftest import exactly


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
    found = find_contradiction(np.full((5_000, 2), [0.64, 0.36]), np.arange(5_000) % 10 // 7)
    assert found == (1, pytest.approx(0.36), 0.3), "0.06 matters, although it is less than a fifth of each share"


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


def rows_of_three(n: int, mix, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three overlapping classes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=mix)
    return rng.normal(size=(n, 2)) + 1.2 * np.array([[0, 0], [1, 1], [2, -1]])[y], np.array(list("abc"))[y]


@pytest.fixture(scope="module")
def of_three():
    """Cross-fitted posteriors of three classes, and small bags with uniformly drawn mixes."""
    X, y = rows_of_three(3000, [0.5, 0.3, 0.2], 0)
    test = hq.Bags.from_labels(*rows_of_three(3000, [1 / 3] * 3, 1))
    return hq.EMQ(random_state=0).cross_fit(X, y), hq.APP(30).draw(test, 150, random_state=0)


@pytest.mark.parametrize("estimate", ["mean", "median", "ae", "nmd", "kld"])
def test_bayes_estimates_of_small_bags_have_lower_errors(of_three, estimate):
    crossed, bags = of_three
    likeliest, decided = hq.EMQ().fit_crossed(crossed), hq.EMQ(estimate=estimate).fit_crossed(crossed)
    assert error_of(decided, bags) < 0.95 * error_of(likeliest, bags)


def test_other_names_of_losses(of_three):
    crossed, bags = of_three
    for name, loss in (("mean", "se"), ("median", "ae")):
        named = hq.EMQ(estimate=name).fit_crossed(crossed).predict(bags)
        np.testing.assert_array_equal(named, hq.EMQ(estimate=loss).fit_crossed(crossed).predict(bags))


def test_a_prior_near_training_helps_bags_near_training(of_three):
    crossed, _ = of_three
    near = hq.Bags.from_labels(*rows_of_three(3000, [0.5, 0.3, 0.2], 2), groups=np.arange(3000) // 20)
    uniform, training = (
        error_of(hq.EMQ(estimate="mean", prior=prior).fit_crossed(crossed), near) for prior in ("uniform", "training")
    )
    assert training < 0.8 * uniform


def test_a_prior_of_the_bags_is_learned_from_them(of_three):
    crossed, _ = of_three
    bags = hq.Bags.from_labels(*rows_of_three(3000, [0.05, 0.15, 0.8], 3), groups=np.arange(3000) // 20)
    fitted, uniform = (hq.EMQ(estimate="mean", prior=prior).fit_crossed(crossed) for prior in ("bags", "uniform"))
    assert error_of(fitted, bags) < 0.9 * error_of(uniform, bags)
    np.testing.assert_array_equal(fitted.predict(bags[:1]), uniform.predict(bags[:1]))
    assert not np.allclose(fitted.predict(bags)[0], uniform.predict(bags)[0], atol=0.01)


def test_concentrations_are_rows_that_are_added(of_three):
    crossed, bags = of_three
    strong = hq.EMQ(estimate="mean", prior=(1e6, 1e6, 2e5)).fit_crossed(crossed)
    X, _ = rows_of_three(1, [1, 0, 0], 0)
    given = crossed.classifier.predict_proba(X)[0] / crossed.classifier.predict_proba(X).sum()
    training = strong.train_prevalences_
    expected = given / training * np.array([1e6, 1e6, 2e5])
    np.testing.assert_allclose(strong.predict(X), expected / expected.sum(), atol=1e-3)
    flat = hq.EMQ(estimate="mean", prior=1.0).fit_crossed(crossed).predict(bags)
    np.testing.assert_array_equal(flat, hq.EMQ(estimate="mean").fit_crossed(crossed).predict(bags))


def test_survey_weights_count_by_their_effective_size(of_three):
    crossed, _ = of_three
    q = hq.EMQ(estimate="median").fit_crossed(crossed)
    X, _ = rows_of_three(40, [0.2, 0.2, 0.6], 5)
    equal = [hq.Bags(X, weights=np.full(40, unit), weight_kind="survey") for unit in (0.01, 100.0)]
    for bags in equal:
        np.testing.assert_allclose(q.predict(bags), [q.predict(X)], atol=1e-6)
        np.testing.assert_allclose(q.predict(q.sketch(bags)), q.predict(q.sketch(hq.Bags(X))), atol=1e-6)
        first, second = (q.bootstrap_interval(b, n_resamples=9, random_state=0) for b in (bags, hq.Bags(X)))
        np.testing.assert_allclose(first.upper, second.upper, atol=0.1)


@pytest.mark.parametrize("estimate", ["mean", "median"])
def test_sketches_are_near_rows(of_three, estimate):
    crossed, bags = of_three
    q = hq.EMQ(estimate=estimate).fit_crossed(crossed)
    assert q.sketch_kind == "binned"
    np.testing.assert_allclose(q.predict(q.sketch(bags)), q.predict(bags), atol=0.02)


def largest_gap(p_true, p_pred):
    return abs(p_true - p_pred).max(-1)


def test_custom_losses_are_handed_over(of_three, tmp_path):
    crossed, bags = of_three
    q = hq.EMQ(estimate=largest_gap, prior=(1.0, 2.0, 3.0)).fit_crossed(crossed)
    q.save(tmp_path / "own")
    message = r"estimate: this model was made with its own estimate \(function\), which is not stored; pass it as"
    with pytest.raises(ValueError, match=message):
        hq.load(tmp_path / "own")
    again = hq.load(tmp_path / "own", estimate=largest_gap)
    np.testing.assert_array_equal(again.predict(bags[:5]), q.predict(bags[:5]))
    costs = hq.EMQ(estimate=hq.CostSensitiveAE((1, 2, 3))).fit_crossed(crossed)
    costs.save(tmp_path / "costs")
    np.testing.assert_array_equal(hq.load(tmp_path / "costs").predict(bags), costs.predict(bags))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"estimate": "medain"},
            "estimate: expected one of 'ml', 'median', 'mean', 'ae', 'rae', 'nae', 'nrae', 'se', 'mse', 'kld', 'nkld', "
            "'nmd', 'macro_nmd', or a callable (p_true, p_pred), got 'medain'; perhaps you mean 'median'.",
        ),
        (
            {"estimate": "mean", "prior": 0},
            "prior: expected one of 'uniform', 'training', 'bags', or concentrations above 0 and at most 1,000,000, "
            "got 0; give one number, or one for each class.",
        ),
        (
            {"estimate": "mean", "prior": "flat"},
            "prior: expected one of 'uniform', 'training', 'bags', or concentrations above 0 and at most 1,000,000, "
            "got 'flat'; give one number, or one for each class.",
        ),
        (
            {"estimate": "mean", "prior": (1, 2)},
            "prior: expected one number, or one for each of the 3 classes, got 2 numbers; give them in the order of "
            "classes_.",
        ),
        (
            {"prior": "training"},
            "prior: expected 'uniform' with estimate='ml', which has no prior, got 'training'; set estimate='mean' or "
            "'median' to use a prior.",
        ),
        (
            {"estimate": "mean", "smoothness": 0.5},
            "smoothness: expected 0 with other estimates than 'ml', got 0.5; leave it out.",
        ),
    ],
)
def test_wrong_estimates_and_priors(of_three, params, message):
    with pytest.raises(ValueError, match=exactly(message)):
        hq.EMQ(**params).fit_crossed(of_three[0])


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(("sharpness", "expected"), [(1.5, 1.0), (2.5, 0.6)])
def test_ridge_leaves_calibrated_posteriors_alone(n_classes, sharpness, expected):
    rng = np.random.default_rng(0)
    labels = np.arange(20_000) % n_classes
    logits = sharpness * (1.5 * np.eye(n_classes)[labels] + rng.normal(size=(len(labels), n_classes)))
    scale, bias = fit_scales(softmax(logits, axis=1), labels, "ridge")
    np.testing.assert_allclose(scale, expected, atol=0.002 if expected == 1 else 0.02)
    np.testing.assert_allclose(bias, 0, atol=0.005 if expected == 1 else 0.05)
