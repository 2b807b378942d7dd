"""Methods on thresholds and weights of posteriors against QuaPy, or against what defines them."""

from __future__ import annotations

import numpy as np
import pytest
from quapy.method import _threshold_optim as quapy_thresholds
from quapy.method import aggregative as quapy_methods
from scipy.optimize import minimize

import histnetq as hq
from histnetq.quantifiers.classical.label_shift import penalised_weights
from histnetq.quantifiers.classical.quadratic import solve_quadratic
from tests.conftest import exactly, labelled
from tests.quantifiers.classical.test_posteriors import SIZES, Judge, posteriors, ragged

POLICIES = {"median": "MS", "median2": "MS2", "max": "MAX", "t50": "T50", "x": "X"}


def theirs_of(policy: str, scores: np.ndarray, positive: np.ndarray):
    kind = getattr(quapy_thresholds, POLICIES[policy])
    q = type("Threshold", (Judge, kind), {"classes_": np.array([0, 1])})()
    q.aggregation_fit(scores, positive.astype(int))
    return q


@pytest.mark.parametrize("policy", ["median", "median2"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_median_sweep_equals_quapy(policy, n_classes):
    P, _ = posteriors(6000, n_classes, sharpness=1.0)
    V, y = posteriors(800, n_classes, seed=1, sharpness=1.0)
    bags = ragged(P, SIZES)
    judged = [1] if n_classes == 2 else range(n_classes)
    theirs = [theirs_of(policy, V[:, c], y == c) for c in judged]
    found = np.array(
        [[q.aggregate(bag.gather()[:, c])[1] for q, c in zip(theirs, judged, strict=True)] for bag in bags]
    )
    expected = np.concatenate([1 - found, found], 1) if n_classes == 2 else found / found.sum(1, keepdims=True)
    ours = hq.MS(policy=policy).fit_posteriors(V, y).predict_posteriors(bags)
    np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("policy", ["max", "t50", "x"])
def test_one_threshold_is_as_good_as_quapys_and_adjusts_alike(policy):
    P, _ = posteriors(6000, 2, sharpness=1.0)
    V, y = posteriors(800, 2, seed=1, sharpness=1.0)
    bags, theirs = ragged(P, SIZES), theirs_of(policy, V[:, 1], y == 1)
    ours = hq.MS(policy=policy).fit_posteriors(V, y)
    rates = ours.true_rates_[0], ours.false_rates_[0]
    # Many thresholds are equally good, and QuaPy takes any of them.
    assert theirs.condition(*rates) == pytest.approx(theirs.condition(theirs.tpr, theirs.fpr), abs=1e-12)
    expected = [theirs.aggregate_with_threshold(b.gather()[:, 1], *rates, ours.thresholds_[0]) for b in bags]
    np.testing.assert_allclose(ours.predict_posteriors(bags), expected, atol=1e-12)


def test_thresholds_that_tell_nothing_leave_the_mix_of_training():
    for policy in POLICIES:
        q = hq.MS(policy=policy).fit_posteriors(np.full((8, 2), 0.5), [0, 0, 0, 0, 0, 0, 1, 1])
        np.testing.assert_allclose(q.predict_posteriors(np.array([[0.9, 0.1], [0.4, 0.6]])), [0.75, 0.25])
    with pytest.raises(ValueError, match=r"^policy: .*median2.*got 'mean'"):
        hq.MS(policy="mean").fit(*labelled())


def test_a_weight_of_k_is_k_copies_in_learning():
    V, y = posteriors(200, 3, seed=1)
    counts = np.random.default_rng(0).integers(1, 4, size=200)
    P, _ = posteriors(300, 3)
    bags = hq.Bags(P, offsets=[0, 10, 300])
    for method in (hq.MS(), hq.MS(policy="x"), hq.Friedman(), hq.BBSE(), hq.RLLS(), hq.ED()):
        weighted = hq.Bags(V, labels=y, classes=[0, 1, 2], weights=counts)
        copied = method.fit_posteriors(np.repeat(V, counts, 0), np.repeat(y, counts)).predict_posteriors(bags)
        np.testing.assert_allclose(method.fit_posteriors(weighted).predict_posteriors(bags), copied, atol=1e-9)


def test_friedman_by_hand():
    # Prevalences ½: of class 0 three in four rows are likelier 0, of class 1 one in four.
    V = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.3, 0.7], [0.6, 0.4], [0.2, 0.8], [0.1, 0.9], [0.4, 0.6]])
    q = hq.Friedman().fit_posteriors(V, [0, 0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(q.matrix_, [[0.75, 0.25], [0.25, 0.75]])
    np.testing.assert_allclose(q.predict_posteriors([[0.9, 0.1], [0.1, 0.9]]), [0.5, 0.5])
    bag = np.array([[0.9, 0.1]] * 5 + [[0.1, 0.9]] * 3)
    np.testing.assert_allclose(q.predict_posteriors(bag), [0.75, 0.25])


def test_friedman_counts_by_the_prevalences_of_training():
    V, y = np.array([[0.8, 0.2]] * 6 + [[0.6, 0.4]] * 2), [0] * 6 + [1] * 2
    np.testing.assert_allclose(hq.Friedman().fit_posteriors(V, y).predict_posteriors(V[5:7]), [0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_bbse_equals_quapy_to_its_tolerance(mode, n_classes):
    V, y = posteriors(3000, n_classes)
    P, _ = posteriors(3000, n_classes, seed=1)
    bags, q = ragged(P, [50, 500, 2000]), hq.BBSE(mode=mode).fit_posteriors(V, y)
    prior, counted = np.bincount(y) / len(y), {"soft": hq.PCC, "hard": hq.CC}[mode]().fit_posteriors(V, y)
    for p, target in zip(q.predict_posteriors(bags), counted.predict_posteriors(bags), strict=True):
        weights = quapy_methods.BBSEhard.solve_importance_weights(q.matrix_ * prior, target, solver="minimize")
        expected = np.clip(weights, 0, None) * prior
        np.testing.assert_allclose(p, expected / expected.sum(), atol=5e-3)


def test_bbse_is_adjusted_counting_inside_the_simplex():
    V, y = posteriors(3000, 4)
    bags = ragged(posteriors(3000, 4, seed=1)[0], [500, 2000])
    for mode, same in (("soft", hq.PACC), ("hard", hq.ACC)):
        q = hq.BBSE(mode=mode).fit_posteriors(V, y)
        np.testing.assert_allclose(
            q.predict_posteriors(bags), same().fit_posteriors(V, y).predict_posteriors(bags), atol=1e-6
        )
        np.testing.assert_allclose(q.class_weights(bags), q.predict_posteriors(bags) / q.train_prevalences_)


def test_bbse_and_adjusted_counting_share_their_rates_and_counts():
    for method in (hq.PACC, hq.BBSE, hq.RLLS):
        assert (method._quantify, method.stored[:3]) == (hq.ACC._quantify, hq.ACC.stored)
    V, y = posteriors(300, 3)
    for mode, same in (("soft", hq.PACC), ("hard", hq.ACC)):
        q = same().fit_posteriors(V, y)
        np.testing.assert_array_equal(hq.BBSE(mode=mode).fit_posteriors(V, y).matrix_, q.matrix_)
        np.testing.assert_array_equal(hq.RLLS(mode=mode).fit_posteriors(V, y).matrix_, q.matrix_)


@pytest.mark.parametrize("penalty", [0.0, 0.01, 0.1, 0.3, 2.0])
def test_penalised_weights_minimise_what_they_should(penalty):
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(4), size=4).T / 4 + 0.1 * np.eye(4)
    targets = rng.dirichlet(np.full(4, 0.5), size=20)

    def loss(w, target):
        return np.linalg.norm(joint @ w - target) + penalty * np.linalg.norm(w - 1)

    ours = penalised_weights(joint, targets, penalty)
    assert (ours >= 0).all()
    for w, target in zip(ours, targets, strict=True):
        starts = (w, np.ones(4) + 1e-3, np.full(4, 0.5))
        general = [minimize(loss, s, (target,), method="SLSQP", bounds=[(0, None)] * 4, tol=1e-12) for s in starts]
        assert loss(w, target) <= min(g.fun for g in general) + 1e-6


def test_more_rows_are_penalised_less():
    bounds = [hq.RLLS().fit_posteriors(*posteriors(n, 3)).bound_[0] for n in (100, 10_000)]
    assert bounds[0] > 5 * bounds[1]
    V, y = posteriors(200, 3)
    far = hq.RLLS(alpha=100.0).fit_posteriors(V, y).predict_posteriors(V[y == 0])
    np.testing.assert_allclose(far, np.bincount(y) / 200, atol=1e-6)
    with pytest.raises(ValueError, match=exactly("alpha: expected a number of at least 0, got -1; 0 has no penalty.")):
        hq.RLLS(alpha=-1).fit(*labelled())


@pytest.mark.parametrize("simplex", [True, False])
def test_the_quadratic_solver_is_optimal(simplex):
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(100, 6, 5))
    gram, linear = np.swapaxes(roots, 1, 2) @ roots, 3 * rng.normal(size=(100, 5))
    p = solve_quadratic(gram, linear, simplex=simplex)
    gradient = (gram @ p[:, :, None])[:, :, 0] - linear
    price = (p * gradient).sum(1, keepdims=True) if simplex else 0.0
    assert (gradient - price > -1e-6).all()
    assert (np.abs((gradient - price) * p).max(1) < 1e-8 * (1 + p.max(1) ** 2)).all()


def smooth_truth(n_classes: int) -> np.ndarray:
    p = np.exp(-(((np.arange(n_classes) - 2.0) / 1.5) ** 2))
    return p / p.sum()


@pytest.mark.parametrize(
    ("rough", "smooth"),
    [
        (hq.ACC(), hq.ACC(smoothness=0.3)),
        (hq.PACC(), hq.PACC(smoothness=0.03)),
        (hq.EMQ(), hq.EMQ(smoothness=0.3)),
    ],
)
def test_smoothness_helps_where_neighbours_are_as_common(rough, smooth):
    rng, truth = np.random.default_rng(0), smooth_truth(6)
    near = np.abs(np.arange(6)[:, None] - np.arange(6))

    def draw(n, p):
        y = rng.choice(6, n, p=p)
        scores = -1.2 * near[y] + rng.normal(size=(n, 6))
        return np.exp(scores) / np.exp(scores).sum(1, keepdims=True), y

    V, y = draw(4000, np.full(6, 1 / 6))
    P, _ = draw(50 * 100, truth)
    bags = hq.Bags(P, offsets=np.arange(51) * 100)
    errors = [np.abs(q.fit_posteriors(V, y).predict_posteriors(bags) - truth).mean() for q in (rough, smooth)]
    assert errors[1] < 0.8 * errors[0]


def test_smoothness_is_a_number_and_zero_changes_nothing():
    V, y = posteriors(300, 4)
    for method in (hq.ACC, hq.PACC, hq.EMQ):
        plain, none = (method(**k).fit_posteriors(V, y).predict_posteriors(V[:50]) for k in ({}, {"smoothness": 0}))
        np.testing.assert_array_equal(plain, none)
    with pytest.raises(
        ValueError, match=r"^smoothness: expected a number from 0 to 1, got 2; 0 treats classes as unord"
    ):
        hq.EMQ(smoothness=2).fit_posteriors(V, y)
    with pytest.raises(ValueError, match=r"^smoothness: expected a number of at least 0, got -1"):
        hq.ACC(smoothness=-1).fit_posteriors(V, y)
    with pytest.raises(ValueError, match=r"^smoothness: expected 0 with solver='inverse', which has no penalty"):
        hq.ACC(smoothness=1, solver="inverse").fit_posteriors(V, y)


def test_the_order_of_classes_is_that_of_the_bags():
    X, y = labelled(240)
    ordered = hq.Bags.from_labels(X, y, classes=["b", "a", "c"])
    q = hq.ACC(smoothness=1e6, random_state=0).fit(ordered)
    assert q.classes_.tolist() == ["b", "a", "c"]
    p = q.predict(X)
    assert abs(p[0] - 2 * p[1] + p[2]) < 1e-3
