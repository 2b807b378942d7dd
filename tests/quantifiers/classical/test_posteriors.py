"""Classical quantifiers against QuaPy on the same posteriors, and where theory is degenerate."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quapy.method import aggregative as quapy_methods
from quapy.method._kdey import KDEyML
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax, xlogy
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import histnetq as hq
from histnetq.quantifiers.classical.counting import solve_mixture
from histnetq.quantifiers.classical.emq import maximise_likelihood
from histnetq.quantifiers.classical.kdey import kernel_densities
from histnetq.quantifiers.classical.matching import histograms, match_histograms
from histnetq.quantifiers.classical.rescaling import fit_scales, rescale
from histnetq.quantifiers.row_posteriors import misclassification
from tests.conftest import QUICK, known_bags, labelled, types_to_trust

METHODS = [
    hq.CC, hq.PCC, hq.ACC, hq.PACC, hq.EMQ, hq.HDy, hq.DyS, hq.KDEy, hq.BBSE, hq.RLLS, hq.Friedman, hq.MS, hq.ED,
]  # fmt: skip


def posteriors(n: int, n_classes: int, seed: int = 0, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    scores = rng.normal(size=(n, n_classes)) + sharpness * np.eye(n_classes)[y]
    return softmax(scores, axis=1), y


def ragged(P: np.ndarray, sizes: list[int], seed: int = 0) -> hq.Bags:
    rng = np.random.default_rng(seed)
    return hq.Bags(P, rng.integers(len(P), size=sum(sizes)), np.cumsum([0, *sizes]))


@pytest.mark.parametrize("n_classes", [2, 10, 28])
def test_emq_equals_quapy_at_its_stopping_rule(n_classes):
    P, y = posteriors(2000, n_classes)
    prior = np.bincount(y) / len(y)
    bags = ragged(P, [1, 2, 37, 500, 500, 1500])
    ours = maximise_likelihood(P, prior, bags.index, bags.offsets, tol=1e-4)
    theirs = [quapy_methods.EMQ.EM(prior, bag.gather(), epsilon=1e-4)[0] for bag in bags]
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 5, 28])
def test_counting_equals_the_definition(n_classes):
    P, _ = posteriors(500, n_classes)
    bags = ragged(P, [1, 3, 400])
    q = {m: m().fit_posteriors(*posteriors(600, n_classes, seed=1)) for m in (hq.CC, hq.PCC)}
    for i, bag in enumerate(bags):
        counts = np.bincount(bag.gather().argmax(1), minlength=n_classes) / len(bag.index)
        np.testing.assert_allclose(q[hq.CC].predict_posteriors(bags)[i], counts, atol=1e-15)
        np.testing.assert_allclose(q[hq.PCC].predict_posteriors(bags)[i], bag.gather().mean(0), atol=1e-15)


@pytest.mark.parametrize("n_classes", [2, 4, 28])
def test_the_mixture_solver_is_optimal(n_classes):
    rng = np.random.default_rng(n_classes)
    matrix = rng.dirichlet(np.ones(n_classes), size=n_classes).T + 0.3 * np.eye(n_classes)
    matrix /= matrix.sum(0)
    targets = rng.dirichlet(np.full(n_classes, 0.3), size=200)
    p = solve_mixture(matrix, targets)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1)
    # Optimality on the simplex: no class that holds mass has a larger gradient than any other class.
    gradient = (p @ matrix.T - targets) @ matrix
    held = np.where(p > 1e-9, gradient, -np.inf).max(1)
    assert (held - gradient.min(1) < 1e-8).all()


def test_the_mixture_solver_against_a_general_one():
    rng = np.random.default_rng(0)
    matrix = rng.dirichlet(np.ones(3), size=3).T
    for target in rng.dirichlet(np.ones(3), size=5):
        general = minimize(
            lambda p, q=target: ((matrix @ p - q) ** 2).sum(), np.ones(3) / 3, bounds=[(0, 1)] * 3, tol=1e-14,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        )  # fmt: skip
        ours = solve_mixture(matrix, target[None])[0]
        assert ((matrix @ ours - target) ** 2).sum() <= general.fun + 1e-9


@pytest.mark.parametrize("n_classes", [2, 10, 28])
@pytest.mark.parametrize("method", [hq.ACC, hq.PACC])
def test_adjusted_counts_equal_quapy_to_its_tolerance(method, n_classes):
    P, _ = posteriors(3000, n_classes, seed=1)
    q = method().fit_posteriors(*posteriors(3000, n_classes))
    bags = ragged(P, [50, 500, 500, 2000])
    counted = {hq.ACC: hq.CC, hq.PACC: hq.PCC}[method]().fit_posteriors(*posteriors(3000, n_classes))
    theirs = [
        quapy_methods.ACC.solve_adjustment(q.matrix_, target, method="inversion", solver="minimize")
        for target in counted.predict_posteriors(bags)
    ]
    np.testing.assert_allclose(q.predict_posteriors(bags), theirs, atol=1e-3)


def test_misclassification_by_hand():
    values = np.array([[1.0, 0], [0, 1], [0, 1], [1, 0]])
    labels = np.array([0, 0, 1, 1])
    np.testing.assert_allclose(misclassification(values, labels, None), [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(misclassification(values, labels, np.array([3, 1, 1, 0])), [[0.75, 0], [0.25, 1]])


@pytest.mark.parametrize("kind", ["ts", "bcts", "vs", "nbvs"])
def test_calibration_is_the_most_likely_of_its_kind(kind):
    P, y = posteriors(3000, 4)
    distorted = rescale(P, np.full(4, 2.5), np.array([1.0, 0, -1, 0]))
    scale, bias = fit_scales(distorted, y, kind)

    def likelihood(scale, bias):
        return np.log(rescale(distorted, scale, bias)[np.arange(len(y)), y]).mean()

    best = likelihood(scale, bias)
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = rng.normal(size=4) * 0.02
        by_scale = np.full(4, step[0]) if kind in ("ts", "bcts") else step
        by_bias = rng.normal(size=4) * 0.02 if kind in ("bcts", "vs") else np.zeros(4)
        assert likelihood(scale + by_scale, bias + by_bias) <= best + 1e-9
    if kind == "bcts":
        # A distortion by one temperature and a bias is undone by one: the optimum does not notice it.
        undistorted = rescale(P, *fit_scales(P, y, kind))
        assert best == pytest.approx(np.log(undistorted[np.arange(len(y)), y]).mean(), abs=1e-7)


@pytest.mark.parametrize(("spread", "ratio"), [(0.0, 0.3), (0.1, 0.7), (1.0, 1.02)])
@pytest.mark.parametrize("n_classes", [5, 20])
def test_biases_are_shrunk_as_far_as_chance_explains_them(n_classes, spread, ratio):
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        P = rng.dirichlet(np.ones(n_classes), 100 * n_classes)
        bias = spread * rng.normal(size=n_classes)
        truth = rescale(P, np.full(n_classes, 0.7), bias)
        y = (truth.cumsum(1) > rng.random((len(P), 1))).argmax(1)
        found = [fit_scales(P, y, kind)[1] for kind in ("shrunk", "bcts")]
        errors.append([np.sum((b - bias + bias.mean()) ** 2) for b in found])
    shrunk, free = np.mean(errors, axis=0)
    assert shrunk < ratio * free


def test_ridge_maximises_the_penalised_likelihood_and_keeps_few_separable_rows_finite():
    P, y = posteriors(300, 4)
    bias = fit_scales(P, y, "ridge")[1]
    free = fit_scales(np.repeat(P, 1000, 0), np.repeat(y, 1000), "ridge")
    np.testing.assert_allclose(free[0], fit_scales(P, y, "bcts")[0], rtol=1e-2)
    weights = np.random.default_rng(0).uniform(0.1, 1, len(y))
    for found, same in zip(fit_scales(P, y, "ridge", weights), fit_scales(P, y, "ridge", 50 * weights), strict=True):
        np.testing.assert_allclose(found, same, atol=1e-6)
    assert abs(bias).sum() < abs(free[1]).sum() + 0.1
    separable = np.array([[0.9, 0.1], [0.1, 0.9]] * 5)
    assert 1 < fit_scales(separable, np.arange(10) % 2, "ridge")[0][0] < 5
    assert fit_scales(separable, np.arange(10) % 2, "bcts")[0][0] > 5


def test_shrunk_biases_have_no_unit_of_weights_and_know_nothing_of_a_class_without_rows():
    P, y = posteriors(300, 4)
    weights = np.random.default_rng(0).uniform(0.1, 1, len(y))
    for found, same in zip(fit_scales(P, y, "shrunk", weights), fit_scales(P, y, "shrunk", 50 * weights), strict=True):
        np.testing.assert_allclose(found, same, rtol=1e-6, atol=1e-9)
    for found in fit_scales(P[y != 2], y[y != 2], "shrunk"):
        assert np.isfinite(found).all()


@pytest.mark.parametrize("calibration", ["bcts", "vs", "nbvs", "ts"])
def test_calibration_likelihood_against_the_reference(calibration):
    from abstention import calibration as reference

    makers = {
        "ts": reference.TempScaling(verbose=False),
        "bcts": reference.TempScaling(verbose=False, bias_positions="all"),
        "nbvs": reference.NoBiasVectorScaling(verbose=False),
        "vs": reference.VectorScaling(verbose=False),
    }
    P, y = posteriors(2000, 5)
    distorted = rescale(P, np.full(5, 1.7), np.linspace(-0.5, 0.5, 5))
    theirs = makers[calibration](valid_preacts=distorted, valid_labels=np.eye(5)[y], posterior_supplied=True)(distorted)
    ours = rescale(distorted, *fit_scales(distorted, y, calibration))
    gap = np.log(ours[np.arange(len(y)), y]).mean() - np.log(theirs[np.arange(len(y)), y]).mean()
    assert gap > -1e-4


@pytest.mark.parametrize("method", [*METHODS, partial(hq.QuaNet, hidden=4, training=QUICK)])
@pytest.mark.parametrize("case", ["constant", "separated", "one row", "absent class", "singular"])
def test_degenerate_cases_give_valid_prevalences(method, case):
    P, y = posteriors(60, 3)
    classes = [0, 1, 2]
    if case == "constant":
        P = np.full((60, 3), 1 / 3)
    elif case == "separated":
        P = np.eye(3)[y]
    elif case == "absent class":
        y = np.where(y == 2, 1, y)
    elif case == "singular":
        P[:, 1] = P[:, 2] = (P[:, 1] + P[:, 2]) / 2
    q = method().fit_posteriors(P, y, classes=classes)
    bags = hq.Bags(P, offsets=np.arange(61) if case == "one row" else [0, 10, 60])
    p = q.predict_posteriors(bags)
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1)


@pytest.mark.parametrize("method", METHODS)
def test_posteriors_of_ones_own_model_equal_a_fitted_one(method):
    X, y = labelled(300)
    model = LogisticRegression().fit(X, np.unique(y, return_inverse=True)[1])
    bags = known_bags()
    whole = method(model, cv=None).fit(X, y)
    by_hand = method().fit_posteriors(model.predict_proba(X), y)
    with_posteriors = hq.Bags(model.predict_proba(bags.rows), bags.index, bags.offsets)
    np.testing.assert_allclose(by_hand.predict_posteriors(with_posteriors), whole.predict(bags), atol=1e-12)


def test_adjusting_beats_counting_under_prior_shift():
    X, y = labelled(3000, seed=1)
    test = hq.APP(200).draw(hq.Bags.from_labels(*labelled(3000, seed=2)), 100, random_state=0)
    errors = {m: hq.metrics.ae(test.prevalences, m().fit(X, y).predict(test)).mean() for m in METHODS}
    counted = min(errors[hq.CC], errors[hq.PCC])
    adjusted = hq.ACC, hq.PACC, hq.EMQ, hq.KDEy, hq.BBSE, hq.RLLS, hq.Friedman, hq.ED
    assert max(errors[m] for m in adjusted) < 0.5 * counted
    # One class against the rest takes the rest to be mixed as in training, which it is not.
    assert max(errors[m] for m in (hq.HDy, hq.DyS)) < 0.7 * counted


@pytest.mark.parametrize("policy", ["median", "median2", "max", "t50", "x"])
def test_sweeping_beats_counting_of_two_classes(policy):
    # Of more classes it need not: thresholds lean most on a rest that is mixed as in training.
    X, y = labelled(3000, 2, seed=1)
    test = hq.APP(200).draw(hq.Bags.from_labels(*labelled(3000, 2, seed=2)), 100, random_state=0)
    errors = [
        hq.metrics.ae(test.prevalences, m.fit(X, y).predict(test)).mean() for m in (hq.MS(policy=policy), hq.CC())
    ]
    assert errors[0] < 0.7 * errors[1]


class Judge:
    """The little of a binary QuaPy quantifier that its aggregation needs."""

    pos_label, neg_label = 1, 0

    def __init__(self, **params) -> None:
        self.__dict__ |= params


SIZES = [1, 1, 2, 3, 10, 37, 250, 500, 5000]


def test_hdy_is_within_the_grid_step_of_quapy():
    P, _ = posteriors(6000, 2, sharpness=1.0)
    V, y = posteriors(3000, 2, seed=1, sharpness=1.0)
    bags = ragged(P, SIZES)
    theirs = type("HDy", (Judge, quapy_methods.HDy), {})()
    theirs.aggregation_fit(V, y)
    expected = [theirs.aggregate(bag.gather()) for bag in bags]
    ours = hq.HDy().fit_posteriors(V, y).predict_posteriors(bags)
    np.testing.assert_allclose(ours, expected, atol=1 / 99 + 1e-9)


@pytest.mark.parametrize("divergence", ["topsoe", "hellinger"])
def test_dys_equals_quapy(divergence):
    P, _ = posteriors(6000, 2, sharpness=1.0)
    V, y = posteriors(3000, 2, seed=1, sharpness=1.0)
    bags = ragged(P, SIZES)
    name = {"topsoe": "topsoe", "hellinger": "HD"}[divergence]
    theirs = type("DyS", (Judge, quapy_methods.DyS), {})(n_bins=10, divergence=name, tol=1e-6)
    theirs.aggregation_fit(V, y)
    expected = [theirs.aggregate(bag.gather()) for bag in bags]
    ours = hq.DyS(n_bins=10, divergence=divergence).fit_posteriors(V, y).predict_posteriors(bags)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_dys_is_the_median_over_the_bins_of_its_paper():
    P, _ = posteriors(600, 2, sharpness=1.0)
    V, y = posteriors(900, 2, seed=1, sharpness=1.0)
    bags = ragged(P, [20, 100])
    each = [
        hq.DyS(n_bins=n).fit_posteriors(V, y).predict_posteriors(bags) for n in (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 30)
    ]
    ours = hq.DyS().fit_posteriors(V, y).predict_posteriors(bags)
    np.testing.assert_allclose(ours, np.median(each, axis=0), atol=1e-12)


@pytest.mark.parametrize("divergence", ["topsoe", "hellinger"])
def test_one_against_the_rest_equals_the_binary_method_for_each_class(divergence):
    P, _ = posteriors(400, 4)
    V, y = posteriors(600, 4, seed=1)
    bags = ragged(P, [1, 50, 300])
    ours = hq.DyS(divergence=divergence).fit_posteriors(V, y).predict_posteriors(bags)
    each = []
    for c in range(4):
        against = [np.stack([1 - p[:, c], p[:, c]], 1) for p in (V, P)]
        binary = hq.DyS(divergence=divergence).fit_posteriors(against[0], (y == c).astype(int))
        each.append(binary.predict_posteriors(hq.Bags(against[1], bags.index, bags.offsets))[:, 1])
    each = np.stack(each, 1)
    np.testing.assert_allclose(ours, each / each.sum(1, keepdims=True), atol=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(["topsoe", "hellinger"]))
def test_no_proportion_matches_better(seed, divergence):
    rng = np.random.default_rng(seed)
    bins = np.array([rng.integers(2, 12)])
    values = rng.beta(1, 2, size=rng.integers(1, 60))
    positive, negative = rng.dirichlet(np.full(bins[0], 0.3), size=2)
    found = match_histograms(
        values, positive, negative, 0.5, bins, divergence, np.arange(len(values)), np.array([0, len(values)])
    )[0]
    q = histograms(values, np.ones(len(values)), bins, 0.0)

    def distance(a):
        m = a * positive + (1 - a) * negative
        if divergence == "hellinger":
            return -np.sqrt(m * q).sum()
        return (xlogy(m, m) + xlogy(q, q) - xlogy(m + q, (m + q) / 2)).sum()

    assert 0 <= found <= 1
    assert distance(found) <= min(distance(a) for a in np.linspace(0, 1, 101)) + 1e-9


def test_without_evidence_the_training_prevalence_is_given():
    V = np.tile([[0.3, 0.7]], (40, 1))
    q = hq.HDy().fit_posteriors(V, [0] * 10 + [1] * 30)
    np.testing.assert_allclose(q.predict_posteriors(V[:5]), [0.25, 0.75])


@pytest.mark.parametrize(("n_classes", "bandwidth"), [(2, 0.1), (5, 0.05), (10, 0.1), (28, 0.2)])
def test_kdey_equals_quapy(n_classes, bandwidth):
    P, _ = posteriors(2000, n_classes)
    V, y = posteriors(1000, n_classes, seed=1)
    bags = ragged(P, [2, 37, 250, 1000])
    theirs = type("KDEy", (Judge, KDEyML), {"classes_": np.arange(n_classes)})(
        bandwidth=bandwidth, kernel="gaussian", random_state=None
    )
    theirs.aggregation_fit(V, y)
    expected = [theirs.aggregate(bag.gather()) for bag in bags]
    ours = hq.KDEy(bandwidth=bandwidth).fit_posteriors(V, y).predict_posteriors(bags)
    np.testing.assert_allclose(ours, expected, atol=2e-3)


@pytest.mark.parametrize("bandwidth", [1e-3, 0.02, 0.1, 1.0])
def test_kernel_densities_equal_the_formula_up_to_a_factor_per_row(bandwidth):
    P, _ = posteriors(50, 3)
    V, y = posteriors(40, 3, seed=1)
    shares = np.eye(3)[y] / np.bincount(y)
    exponents = -((P[:, None] - V) ** 2).sum(2) / (2 * bandwidth**2)
    expected = logsumexp(exponents[:, :, None], axis=1, b=shares)
    with np.errstate(divide="ignore"):
        ours = np.log(kernel_densities(P, V, shares, bandwidth))
    ours, expected = (d - d.max(1, keepdims=True) for d in (ours, expected))
    np.testing.assert_allclose(np.exp(ours), np.exp(expected), atol=2e-3)


def test_weights_of_training_rows_are_copies():
    P, y = posteriors(60, 3)
    counts = np.random.default_rng(0).integers(1, 4, size=60)
    test = ragged(P, [10, 30])
    for method in (hq.ACC, hq.PACC, hq.EMQ, hq.HDy, hq.DyS, hq.KDEy):
        weighted, copied = method(), method()
        weighted._learn_all(P, y, counts, np.arange(3))
        copied._learn_all(np.repeat(P, counts, 0), np.repeat(y, counts), None, np.arange(3))
        estimates = (q._quantify(P, test.index, test.offsets, None) for q in (weighted, copied))
        np.testing.assert_allclose(*estimates, atol=1e-6)


def test_the_floor_is_the_mean_of_training():
    bags = known_bags()
    np.testing.assert_allclose(hq.MLPE().fit(bags).predict(bags), np.tile(bags.prevalences.mean(0), (len(bags), 1)))
    assert hq.MLPE().fit([[0.0]] * 4, list("abbb")).predict([[1.0]]).tolist() == [0.25, 0.75]


FITTED = LogisticRegression().fit([[0.0] * 4, [1.0] * 4], ["q", "r"])
TEXTS = ["good film", "great good plot", "bad film", "awful bad plot"] * 10


@pytest.mark.parametrize("kind", ["list", "array", "column"])
def test_texts_through_a_pipeline(kind, tmp_path):
    y = ["pos", "pos", "neg", "neg"] * 10
    texts = {"list": TEXTS, "array": np.array(TEXTS), "column": pd.Series(TEXTS)}[kind]
    q = hq.ACC(make_pipeline(TfidfVectorizer(), LogisticRegression())).fit(texts, y)
    np.testing.assert_allclose(q.predict(["good", "good plot", "bad film", "great"]), [0.25, 0.75], atol=1e-6)
    bags = hq.Bags.from_labels(texts, y, groups=np.arange(40) // 4)
    np.testing.assert_allclose(q.predict(bags), bags.prevalences, atol=1e-6)
    q.save(tmp_path / "model")
    back = hq.load(tmp_path / "model", trust=types_to_trust(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict(bags), q.predict(bags))
    assert (
        bags.fingerprint() != hq.Bags.from_labels(["another", *TEXTS[1:]], y, groups=np.arange(40) // 4).fingerprint()
    )


def test_weights_reach_the_last_step_of_a_pipeline():
    X, y = labelled(90)
    counts = np.random.default_rng(0).integers(1, 4, size=90)
    weighted = hq.Bags.from_labels(X, y, weights=counts)
    q = hq.PCC(make_pipeline(StandardScaler(with_mean=False), LogisticRegression()), cv=3)
    assert not np.allclose(q.fit(weighted).predict(X), q.fit(X, y).predict(X))
    with pytest.raises(TypeError, match="classifier: expected one whose fit takes sample_weight, as the rows have"):
        hq.PCC(KNeighborsClassifier()).fit(weighted)


@pytest.mark.parametrize("names", [[-1, 1, 5], [1, 2, 3], ["x", "y", "z"], [0, 1, 2]])
def test_a_fitted_classifier_keeps_its_own_class_names(names, tmp_path):
    X, y = labelled(300)
    y = np.array(names)[np.unique(y, return_inverse=True)[1]]
    q = hq.PCC(LogisticRegression().fit(X, y), cv=None).fit(X, y)
    np.testing.assert_allclose(q.predict(X[y == names[1]]), q.classifier_.predict_proba(X[y == names[1]]).mean(0))
    q.save(tmp_path / "model")
    np.testing.assert_array_equal(hq.load(tmp_path / "model").predict(X), q.predict(X))


@pytest.mark.parametrize(
    "classifier",
    [
        RandomForestClassifier(5), GradientBoostingClassifier(n_estimators=3), DecisionTreeClassifier(),
        HistGradientBoostingClassifier(max_iter=3), KNeighborsClassifier(), MLPClassifier((4,), max_iter=5),
        GaussianNB(),
        CalibratedClassifierCV(LinearSVC()), GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}),
        make_pipeline(StandardScaler(), SVC(probability=True)),
        VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"),
    ],
    ids=lambda c: type(c).__name__,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_any_classifier_is_stored_and_read_back(classifier, tmp_path):
    X, y = labelled(90)
    q = hq.PACC(classifier, cv=2).fit(X, y)
    q.save(tmp_path / "model")
    back = hq.load(tmp_path / "model", trust=types_to_trust(tmp_path / "model"))
    np.testing.assert_array_equal(back.predict(X[:20]), q.predict(X[:20]))


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    q = hq.CC(make_pipeline(FunctionTransformer(np.tanh), LogisticRegression())).fit(*labelled())
    with pytest.raises(TypeError, match=r"save: the classifier cannot be stored \(it would call or make .*tanh"):
        q.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_row_in_several_bags_is_not_judged_by_who_learned_from_it():
    rng = np.random.default_rng(0)
    source = hq.Bags.from_labels(rng.normal(size=(60, 2)), rng.integers(2, size=60))
    drawn = hq.APP(50).draw(source, 20, random_state=0)
    assert hq.ACC(DecisionTreeClassifier(random_state=0)).fit(drawn).matrix_.diagonal().max() < 0.9


def test_posteriors_a_little_above_one():
    V = np.array([[0, 1 + 1e-9]] * 50 + [[1.0, 0]] * 50)
    q = hq.HDy().fit_posteriors(V, [1] * 50 + [0] * 50)
    np.testing.assert_allclose(q.predict_posteriors(np.array([[0, 1.0]] * 30 + [[1.0, 0]] * 70)), [0.7, 0.3])
    P = np.array([[0.5004, 0.5], [0.25, 0.75]])
    np.testing.assert_allclose(hq.PCC().fit_posteriors(V, [1] * 50 + [0] * 50).predict_posteriors(P).sum(), 1)


def test_named_columns_of_posteriors_are_matched_by_name():
    P, y = posteriors(60, 2)
    names = np.array(["neg", "pos"])
    frame = pd.DataFrame({"pos": P[:, 1], "neg": P[:, 0]})
    plain = hq.PACC().fit_posteriors(P, names[y])
    named = hq.PACC().fit_posteriors(frame, names[y])
    np.testing.assert_allclose(named.predict_posteriors(frame[:20]), plain.predict_posteriors(P[:20]))
    with pytest.raises(
        ValueError, match=r"posteriors: expected the columns \['neg', 'pos'\], got \['a', 'b'\]; rename"
    ):
        named.predict_posteriors(frame.set_axis(["a", "b"], axis=1))


def test_an_absent_class_without_tolerance():
    P, y = posteriors(60, 2)
    q = hq.EMQ(tol=0).fit_posteriors(np.c_[P, np.zeros(60)], y, classes=[0, 1, 2])
    assert q.predict_posteriors(np.c_[P, np.zeros(60)])[2] == 0


def test_parameters_of_the_default_classifier():
    q = hq.EMQ().set_params(classifier__C=0.5)
    assert q.classifier[-1].C == 0.5
    assert hq.EMQ(GaussianNB()).set_params(classifier=None, classifier__C=2.0).classifier[-1].C == 2.0


@pytest.mark.parametrize("bins", [range(4, 7), np.array([4, 8])])
def test_bins_of_any_kind_are_stored(bins, tmp_path):
    q = hq.DyS(n_bins=bins).fit(*labelled())
    q.save(tmp_path / "model")
    np.testing.assert_array_equal(hq.load(tmp_path / "model").predict(known_bags()), q.predict(known_bags()))


def test_held_out_split_instead_of_folds():
    X, y = labelled(200)
    assert hq.PACC(cv=0.4).fit(X, y).predict(X).shape == (3,)


def test_labelled_bags_and_weights_are_learned_from():
    X, y = labelled(90)
    counts = np.random.default_rng(0).integers(1, 4, size=90)
    bags = hq.Bags.from_labels(X, y, groups=np.arange(90) // 9, weights=counts)
    q = hq.EMQ(cv=3).fit(bags)
    codes = np.unique(y, return_inverse=True)[1]
    np.testing.assert_allclose(q.train_prevalences_, np.bincount(codes, counts) / counts.sum())


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: hq.CC(LinearSVC()).fit(*labelled()), TypeError, "classifier: expected one with predict_proba"),
        (lambda: hq.CC().fit(known_bags()), ValueError, "bags: this quantifier learns from labelled rows, got bags of"),
        (lambda: hq.CC().fit(np.zeros((4, 2))), TypeError, "y: expected a label for each row of X, got None"),
        (lambda: hq.CC(cv=1).fit(*labelled()), ValueError, "cv: expected at least 2 folds, a fraction between 0 and 1"),
        (lambda: hq.CC(cv=1.5).fit(*labelled()), ValueError, "cv: expected a number of folds, a fraction between"),
        (lambda: hq.ACC(solver="magic").fit(*labelled()), ValueError, "solver: expected one of 'least-sq"),
        (lambda: hq.EMQ(rescaling="magic").fit(*labelled()), ValueError, "rescaling: expected one of 'auto', 'ts'"),
        (lambda: hq.CC(cv="5").fit(*labelled()), TypeError, "cv: expected a number of folds, a fraction between"),
        (lambda: hq.CC(cv=None).fit(*labelled()), TypeError, "classifier: expected a fitted one with cv=None, got"),
        (lambda: hq.CC().fit(TEXTS, [0, 1] * 20), TypeError, "classifier: expected a pipeline that reads texts, got"),
        (lambda: hq.CC(FITTED, cv=None).fit(*labelled()), ValueError, "classifier: it was fitted on a class 'q' that"),
        (lambda: hq.QuaNet(hidden=0).fit(*labelled()), ValueError, "hidden: expected a whole number of at least 1"),
        (lambda: hq.QuaNet(head=5).fit(*labelled()), ValueError, "head: expected the sizes of its hidden layers, such"),
        (lambda: hq.DyS(divergence="magic").fit(*labelled()), ValueError, "divergence: expected one of 'hellinger'"),
        (lambda: hq.DyS(n_bins=1).fit(*labelled()), ValueError, "n_bins: expected whole numbers of at least 2, got 1"),
        (lambda: hq.KDEy(bandwidth=0).fit(*labelled()), ValueError, "bandwidth: expected a number above 0, got 0"),
        (lambda: hq.QuaNet().fit(known_bags()), ValueError, "bags: this quantifier learns from labelled rows, got"),
        (lambda: hq.HistNetQ().fit(TEXTS, [0, 1] * 20), TypeError, "rows: networks expect numbers, got texts; embed"),
        (lambda: hq.CC().fit(*labelled()).predict(TEXTS), ValueError, "rows: expected 4 features as in training, got"),
        (lambda: hq.CC().fit([[0.0], [1.0], [2.0]], list("aab")), ValueError, "y: expected at least 2 rows of each"),
        (lambda: hq.CC().fit_posteriors([[2.0, 1.0]], [0]), ValueError, "posteriors: expected rows of prob"),
        (
            lambda: hq.CC().fit_posteriors([[0.5, 0.5]] * 3, [0, 1, 2]),
            ValueError,
            "posteriors: expected 3 columns, one for each class, got 2; if y lacks some classes, name all classes",
        ),
        (
            lambda: hq.CC().fit_posteriors(*posteriors(20, 2)).predict(np.zeros((3, 2))),
            ValueError,
            "posteriors: expected rows of probabilities that sum to 1, got numbers that sum to 0 for 3 of 3 rows; "
            "apply a softmax to scores first",
        ),
    ],
)  # fmt: skip
def test_wrong_input(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_columns_stay_where_they_are_after_other_parameters():
    # The classes are numbers, which may be taken for codes.
    X, y = labelled()
    names = np.array([{"a": 2, "b": 0, "c": 1}[name] for name in y])
    bags = hq.Bags.from_labels(X, names, classes=[2, 1, 0])
    fitted = hq.PCC(random_state=0).fit(bags)
    expected = fitted.predict(X)
    np.testing.assert_array_equal(fitted.set_params(cv=None).predict(X), expected)
    given = hq.PCC(LogisticRegression().fit(X, names), cv=None).fit(bags)
    expected = given.predict(X)
    np.testing.assert_array_equal(given.set_params(cv=5).predict(X), expected)


def test_no_seed_is_another_one_each_time():
    X, y = labelled(60)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    found = {hq.PACC(cv=3).fit(X, y).matrix_.tobytes() for _ in range(5)}
    assert len(found) > 1
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("kind", ["count", "survey"])
def test_the_bootstrap_draws_from_a_bag_s_own_rows(kind):
    X, y = np.repeat([[0.0], [1.0]], 50, axis=0), np.repeat(["a", "b"], 50)
    bags = hq.Bags(X, [0, 1, 60, 61, 62], [0, 2, 5], weights=[3, 4, 2, 5, 1], weight_kind=kind)
    found = hq.PACC(random_state=0).fit(X, y).bootstrap_interval(bags, 0.9, n_resamples=50)
    np.testing.assert_allclose(found.lower, [[1, 0], [0, 1]], atol=1e-6)
    np.testing.assert_allclose(found.upper, [[1, 0], [0, 1]], atol=1e-6)


def test_the_bootstrap_of_counts_is_that_of_copies():
    X, y = labelled(300)
    q = hq.PACC(random_state=0).fit(X, y)
    counts = np.arange(60) % 4 + 1
    weighted = hq.Bags(X[:60], weights=counts)
    copies = hq.Bags(np.repeat(X[:60], counts, axis=0))
    a, b = (q.bootstrap_interval(bags, 0.8, n_resamples=600) for bags in (weighted, copies))
    np.testing.assert_allclose(a.upper - a.lower, b.upper - b.lower, rtol=0.2)


def test_names_of_features_as_scikit_learn_has_them():
    X, y = labelled()
    q = hq.CC().fit(pd.DataFrame(X, columns=list("wxyz")), y)
    assert q.feature_names_in_.tolist() == ["w", "x", "y", "z"]
    assert q.n_features_in_ == 4
    bare = hq.CC()
    assert not hasattr(bare, "n_features_in_")
    assert not hasattr(bare.fit(X, y), "feature_names_in_")
