"""Bayesian intervals: the posterior of a bag's own counts, checked by enumeration, by laws and by simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln
from sklearn.linear_model import LogisticRegression

import histnetq as hq
from histnetq.uncertainty import bayes
from histnetq.uncertainty.bayes import draw_counts
from histnetq.uncertainty.likelihoods import CellLikelihoods, RowLikelihoods
from tests.conftest import CLASSICAL, QUANTIFIERS, exactly, known_bags, labelled

FEW = {"method": "bayes", "n_draws": 60}


@pytest.fixture(scope="module", params=CLASSICAL)
def fitted(request):
    return QUANTIFIERS[request.param]().fit(*labelled())


class Known:
    """Likelihoods that are known: the rows' posteriors themselves, again and again."""

    def __init__(self, n):
        self.n = n

    def of(self, posteriors):
        return (posteriors for _ in range(self.n))


def enumerated(likelihoods, prior):
    """Mean and variance of the counts, by all labels that the rows may have."""
    n, n_classes = likelihoods.shape
    labels = np.array(list(product(range(n_classes), repeat=n)))
    counts = (labels[:, :, None] == np.arange(n_classes)).sum(1)
    logs = np.log(likelihoods)[np.arange(n), labels].sum(1) + gammaln(counts + prior).sum(1)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    means = p @ counts
    return means, p @ (counts - means) ** 2


@pytest.mark.parametrize("prior", [[1.0, 1.0, 1.0], [0.5, 3.0, 1.5]])
def test_draws_are_those_of_the_posterior(prior):
    rng = np.random.default_rng(0)
    likelihoods, prior = rng.dirichlet(np.full(3, 0.7), 7) + 0.01, np.array(prior)
    entries = np.arange(7), np.array([0, 7]), np.ones(7)
    drawn = draw_counts(Known(4000), likelihoods, *entries, prior, seed=1)[0]
    means, variances = enumerated(likelihoods, prior)
    # 20,000 draws in runs that hardly depend on each other: a standard error of the mean of about 0.01 rows.
    np.testing.assert_allclose(drawn.mean(0), means, atol=0.05)
    np.testing.assert_allclose(drawn.var(0), variances, atol=0.1)
    np.testing.assert_array_equal(drawn.sum(1), 7)


def test_intervals_hold_the_estimate(fitted):
    bags = known_bags(12, seed=3)
    narrow, wide = (fitted.predict_interval(bags, coverage, **FEW) for coverage in (0.5, 0.95))
    np.testing.assert_array_equal(wide.estimates, fitted.predict(bags))
    for found in (narrow, wide):
        assert ((found.lower >= 0) & (found.lower <= found.estimates)).all()
        assert ((found.upper <= 1) & (found.upper >= found.estimates)).all()
    assert ((wide.lower <= narrow.lower) & (narrow.upper <= wide.upper)).all()
    assert (wide.region.radius >= narrow.region.radius).all()


def test_order_of_rows_and_other_bags_do_not_matter(fitted):
    bags, rng = known_bags(5, seed=3), np.random.default_rng(0)
    rows = [bag.gather() for bag in bags]
    here = fitted.predict_interval(rows, **FEW)
    turned = fitted.predict_interval([rng.permutation(X) for X in rows], **FEW)
    np.testing.assert_allclose(turned.upper, here.upper, atol=1e-6)
    np.testing.assert_allclose(turned.lower, here.lower, atol=1e-6)
    alone = fitted.predict_interval(rows[3], **FEW)
    np.testing.assert_allclose(alone.upper, here.upper[3], atol=1e-6)
    np.testing.assert_allclose(alone.region.radius, here.region.radius[[3]], atol=1e-6)


def test_bags_are_the_same_in_several_runs(fitted, monkeypatch):
    bags = known_bags(6, seed=3)
    here = fitted.predict_interval(bags, **FEW)
    monkeypatch.setattr(bayes, "_AT_ONCE", 300)
    np.testing.assert_allclose(fitted.predict_interval(bags, **FEW).upper, here.upper, atol=1e-6)


def test_a_stored_model_gives_the_same(fitted, tmp_path):
    bags = known_bags(4, seed=3)
    fitted.save(tmp_path / "model")
    here, there = (q.predict_interval(bags, **FEW) for q in (fitted, hq.load(tmp_path / "model")))
    np.testing.assert_allclose(there.upper, here.upper, atol=1e-6)


@pytest.mark.parametrize("kind", ["EMQ", "ACC"])
def test_counts_are_copies_and_survey_weights_have_no_unit(kind):
    q, rows = QUANTIFIERS[kind]().fit(*labelled()), labelled(40, seed=5)[0]
    times = np.random.default_rng(0).integers(0, 4, 40) + 1
    copies = q.predict_interval(np.repeat(rows, times, axis=0), **FEW)
    counted = q.predict_interval(hq.Bags(rows, weights=times), **FEW)
    np.testing.assert_allclose(counted.upper[0], copies.upper, atol=1e-6)
    plain = q.predict_interval(rows, **FEW)
    same = q.predict_interval(hq.Bags(rows, weights=np.full(40, 7.0), weight_kind="survey"), **FEW)
    np.testing.assert_allclose(same.upper[0], plain.upper, atol=1e-6)
    unequal = q.predict_interval(
        hq.Bags(rows, weights=np.r_[np.full(4, 20.0), np.ones(36)], weight_kind="survey"), **FEW
    )
    assert (unequal.upper - unequal.lower).sum() > 1.2 * (plain.upper - plain.lower).sum(), "they tell less"


def normals(n, rng, p, apart=1.2):
    """Rows of two classes that overlap, and their labels."""
    y = (rng.random(n) < p).astype(int)
    return rng.normal(size=(n, 2)) + apart * y[:, None], y


@pytest.mark.parametrize("kind", [hq.PACC, hq.ACC])
def test_populations_and_few_labelled_rows_are_less_certain(kind):
    rng = np.random.default_rng(0)
    # Halves of both classes: elsewhere the ends 0 and 1 cut intervals.
    bags = hq.NPP(60).draw(hq.Bags.from_labels(*normals(2000, rng, 0.5, 2)), 30, random_state=0)
    classifier, (X, y) = LogisticRegression().fit(*normals(500, rng, 0.5, 2)), normals(60, rng, 0.5, 2)

    def width(times, **options):
        q = kind(classifier, cv=None).fit(np.tile(X, (times, 1)), np.tile(y, times))
        found = q.predict_interval(bags, **FEW, **options)
        return (found.upper - found.lower).mean()

    assert width(20, target="population") > 1.1 * width(20)
    assert width(1) > 1.2 * width(20), "the rows are the same, and fewer"


def test_a_prior_that_is_sure_moves_the_interval():
    q, rows = QUANTIFIERS["ACC"]().fit(*labelled()), labelled(30, seed=5)[0]
    flat, sure = (q.bayes_interval(rows, target="population", prior=a, n_draws=60) for a in (1, [1, 1, 500]))
    assert sure.lower[2] <= sure.estimates[2] <= flat.upper[2]
    assert sure.upper[2] > 0.9


def test_other_seeds_give_other_draws_and_none_too():
    q, rows = QUANTIFIERS["EMQ"]().fit(*labelled()), labelled(30, seed=5)[0]

    def radius(seed):
        found = q.predict_interval(rows, **FEW, target="population", random_state=seed)
        return float(found.region.radius[0])

    assert radius(1) == radius(1) != radius(2)
    assert radius(None) != radius(None)


@pytest.mark.parametrize("kind", ["EMQ", "PACC", "ACC"])
def test_coverage_without_calibration_bags(kind):
    held = {level: [] for level in (0.8, 0.95)}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        known = hq.Bags.from_labels(*normals(4000, rng, 0.5))
        bags = hq.APP((20, 80)).draw(known, 60, random_state=seed)
        q = getattr(hq, kind)(LogisticRegression(), random_state=0).fit(*normals(200, rng, 0.4))
        for level, found in held.items():
            found.append(q.predict_interval(bags, level, method="bayes", n_draws=150).contains(bags.prevalences).mean())
    # The bags of one model err together: over 40 models, the standard error of ten of them was 0.04.
    assert abs(np.mean(held[0.8]) - 0.8) < 0.06
    assert abs(np.mean(held[0.95]) - 0.95) < 0.04


@pytest.mark.parametrize("kind", ["EMQ", "ACC"])
def test_large_bags_are_covered_although_the_classifier_is_another_one(kind):
    held = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        bags = hq.APP(1500).draw(hq.Bags.from_labels(*normals(15_000, rng, 0.5)), 15, random_state=seed)
        q = getattr(hq, kind)(LogisticRegression(), random_state=0).fit(*normals(200, rng, 0.4))
        held.append(q.predict_interval(bags, 0.9, method="bayes", n_draws=150).contains(bags.prevalences).mean())
    assert 0.85 < np.mean(held) <= 1


def test_a_fitted_classifier_and_scores_vary_less_than_a_classifier_that_is_fitted_again():
    X, y = labelled()
    q = hq.EMQ(LogisticRegression(), random_state=0).fit(X, y)
    scored = hq.EMQ().fit_posteriors(q.training_posteriors_, q.training_labels_)
    fitted = hq.EMQ(LogisticRegression().fit(X, y), cv=None).fit(X, y)
    assert [m.capabilities().posteriors.variation for m in (q, scored, fitted)] == [2.0, 1.0, 1.0]
    learned = q.training_posteriors_.astype(float), q.training_labels_, None, 4000
    drawn = [
        kind.drawn(*learned, np.random.default_rng(0), variation)
        for kind in (RowLikelihoods, CellLikelihoods) for variation in (1.0, 4.0)
    ]  # fmt: skip
    once, wider, cells, wider_cells = drawn
    np.testing.assert_allclose(wider.parameters.std(0), 2 * once.parameters.std(0))
    assert 1.5 < wider_cells.shares.std(0).mean() / cells.shares.std(0).mean() < 2.1


def test_populations_are_those_of_bayesian_counting():
    """The posterior that a plain sampler finds, which draws prevalences, errors and labels in turn (Ziegler & Czyż)."""
    labelled_as, found = np.array([[300.0, 50.0], [60.0, 190.0]]), np.array([70, 30])
    rng = np.random.default_rng(0)
    p, shares, draws = np.full(2, 0.5), labelled_as / labelled_as.sum(0), []
    for _ in range(8000):
        joint = shares * p
        of_second = rng.binomial(found, joint[:, 1] / joint.sum(1))
        split = np.column_stack([found - of_second, of_second])
        p = rng.dirichlet(1 + split.sum(0))
        shares = np.column_stack([rng.dirichlet(column) for column in (1 + labelled_as + split).T])
        draws.append(p[1])
    rng = np.random.default_rng(1)
    ours = CellLikelihoods.around(1 + labelled_as, 400, rng)
    entries = np.repeat([0, 1], found), np.array([0, 100]), np.ones(100)
    counts = draw_counts(ours, np.eye(2), *entries, np.ones(2), seed=1)
    shares_of_population = bayes._population(counts + 1, rng.random((2000, 2)))[0, :, 1]
    assert abs(shares_of_population.mean() - np.mean(draws)) < 0.01
    assert abs(shares_of_population.std() / np.std(draws) - 1) < 0.1


def test_likelihoods_learn_how_sure_posteriors_may_be():
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(2), 20000)
    labels = (rng.random(20000) < true[:, 1]).astype(int)
    sharp = true**3 / (true**3).sum(1, keepdims=True)
    draws = list(RowLikelihoods.drawn(sharp, labels, None, 20, rng).of(sharp[:500]))
    found = np.mean(draws, axis=0) * np.bincount(labels) / 20000
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), true[:500], atol=0.03)


def test_a_class_without_labelled_rows_and_perfect_posteriors():
    P = np.eye(3)[[0, 1] * 30]
    q = hq.EMQ().fit_posteriors(P, ["a", "b"] * 30, classes=["a", "b", "c"])
    q._bag_posteriors = lambda bags: (bags.rows, bags.index)
    found = q.predict_interval(P[:10], **FEW)
    assert np.isfinite(found.lower).all()
    assert found.contains([0.5, 0.5, 0.0]).all()


WRONG = {
    "coverage: expected a number between 0 and 1, such as 0.9, got 1.": {"coverage": 1},
    "target: expected one of 'bag', 'population', got 'world'.": {"target": "world"},
    "prior: expected one number above 0, or one for each of the 3 classes, got 0; 1 is a flat prior.": {"prior": 0},
    "prior: expected one number above 0, or one for each of the 3 classes, got [1, 1]; 1 is a flat prior.":
        {"prior": [1, 1]},
    "prior: expected one number above 0, or one for each of the 3 classes, got [1, -1, 1]; 1 is a flat prior.":
        {"prior": [1, -1, 1]},
    "prior: expected one number above 0, or one for each of the 3 classes, got nan; 1 is a flat prior.":
        {"prior": float("nan")},
    "prior: expected one number above 0, or one for each of the 3 classes, got 'flat'; 1 is a flat prior.":
        {"prior": "flat"},
    "prior: expected one number above 0, or one for each of the 3 classes, got True; 1 is a flat prior.":
        {"prior": True},
    "n_draws: expected a whole number of at least 1, got 0.": {"n_draws": 0},
    "n_draws: expected a whole number of at least 1, got 1.5.": {"n_draws": 1.5},
    "random_state: expected a whole number of at least 0, or None, got -1; 0 gives the same draws each time.":
        {"random_state": -1},
    "random_state: expected a whole number of at least 0, or None, got 'a'; 0 gives the same draws each time.":
        {"random_state": "a"},
    "option of bayes intervals: expected one of 'target', 'prior', 'n_draws', 'random_state', got 'n_resamples'.":
        {"n_resamples": 5},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_wrong_options(message):
    q = QUANTIFIERS["CC"]().fit(*labelled())
    with pytest.raises(ValueError, match=exactly(message)):
        q.predict_interval(known_bags(3), method="bayes", **WRONG[message])


def test_models_and_bags_that_it_is_not_for():
    message = (
        "interval: {} has no posterior of counts; use a method on posteriors such as EMQ, or fit with more bags, so "
        "that some calibrate conformal intervals."
    )
    for kind in ("MLPE", "QuaNet"):
        q = QUANTIFIERS[kind]().fit(*labelled())
        with pytest.raises(ValueError, match=exactly(message.format(kind))):
            q.predict_interval(known_bags(3), method="bayes")
    q = QUANTIFIERS["PACC"]().fit(*labelled())
    message = (
        "X: expected rows, got a sketch, as the posterior of a bag's counts comes from its rows; "
        "pass the Bags themselves."
    )
    with pytest.raises(TypeError, match=exactly(message)):
        q.predict_interval(q.sketch(known_bags(3)), method="bayes")
    message = (
        "interval: the posterior of counts is for bags of at most 134,217,728 rows, got 1,000,000,001; calibrate the "
        "model and use conformal intervals."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        q.predict_interval(hq.Bags(labelled(2)[0], weights=[10**9, 1]), method="bayes")
