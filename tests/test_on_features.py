"""Methods on features, without a classifier, and energy distance: against QuaPy, or against what defines them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from quapy.method.non_aggregative import DMx, HDx, ReadMe
from scipy import sparse
from scipy.optimize import minimize

import histnetq as hq
from histnetq.cli import main
from histnetq.quantifiers.classical.energy import distance_tables, mean_distances
from histnetq.quantifiers.classical.hdx import match_features
from histnetq.quantifiers.classical.on_features import Columns
from tests.conftest import exactly, labelled
from tests.test_classical import posteriors, ragged
from tests.test_tampered import forge, stored

ON_FEATURES = [hq.EDx(), hq.HDx(), hq.ReadMe(n_subsets=20, subset_size=3, random_state=0)]


def on_simplex(loss, n_classes: int) -> np.ndarray:
    """The minimum of a function of prevalences by a general optimiser."""
    return minimize(
        loss, np.full(n_classes, 1 / n_classes), method="SLSQP", bounds=[(0, 1)] * n_classes, tol=1e-14,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, options={"maxiter": 1000},
    ).x  # fmt: skip


def energy(train: list[np.ndarray], bag: np.ndarray):
    """The energy distance of a mixture of classes from a bag, by QuaPy's own matrices, as a function of it."""
    from quapy.method._energy import _EnergyDistanceCore, manhattan_distances

    core, sizes = _EnergyDistanceCore(), np.array([[len(rows)] for rows in train], float)
    K, G, _, _ = core._compute_ed_param_train(manhattan_distances, train, sizes)
    a = core._compute_ed_param_test(manhattan_distances, train, bag, K, sizes)
    return lambda p: 0.5 * p[:-1] @ G @ p[:-1] - a @ p[:-1]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_energy_distance_of_posteriors_is_the_least_of_quapys_programme(n_classes):
    V, y = posteriors(400, n_classes, seed=1)
    bags = ragged(posteriors(1000, n_classes)[0], [1, 5, 60, 500])
    ours = hq.ED().fit_posteriors(V, y).predict_posteriors(bags)
    for p, bag in zip(ours, bags, strict=True):
        loss = energy([V[y == c] for c in range(n_classes)], bag.gather())
        np.testing.assert_allclose(p, on_simplex(loss, n_classes), atol=1e-4)


def test_energy_distance_of_features_is_the_least_of_quapys_programme():
    X, y = labelled(300)
    scaled, codes = X / X.std(0), np.unique(y, return_inverse=True)[1]
    bags = hq.APP(40).draw(hq.Bags.from_labels(*labelled(300, seed=1)), 5, random_state=0)
    for p, bag in zip(hq.EDx().fit(X, y).predict(bags), bags, strict=True):
        loss = energy([scaled[codes == c] for c in range(3)], bag.gather() / X.std(0))
        np.testing.assert_allclose(p, on_simplex(loss, 3), atol=1e-4)


def test_mean_distances_are_exact_at_few_values_and_near_at_many():
    rng = np.random.default_rng(0)
    for n, atol in ((300, 1e-12), (5000, 1e-4)):
        values, shares = rng.normal(size=(n, 3)), rng.random((n, 2))
        shares /= shares.sum(0)
        rows = rng.normal(size=(50, 3)).clip(values.min(0), values.max(0))
        expected = np.abs(rows[:, None] - values[None]).sum(2) @ shares
        found = mean_distances(rows, *distance_tables(Columns(values), shares))
        np.testing.assert_allclose(found, expected, atol=atol)


def test_values_beyond_training_pull_to_no_class():
    X, y = labelled(300)
    q, bag = hq.EDx().fit(X, y), X[:40].copy()
    bag[0, 2] = X[:, 2].max()
    before = q.predict(bag)
    bag[0, 2] = 1e30
    np.testing.assert_allclose(q.predict(bag), before, atol=1e-9)


@pytest.mark.parametrize("n_bins", [4, 10])
def test_hdx_is_the_minimum_that_quapy_finds(n_bins):
    X, y = labelled(600)
    codes = np.unique(y, return_inverse=True)[1]
    bags = hq.APP(100).draw(hq.Bags.from_labels(X, y), 6, random_state=0)
    theirs = DMx(nbins=n_bins, divergence="HD").fit(X, codes)
    ours = hq.HDx(n_bins=n_bins).fit(X, y).predict(bags)
    np.testing.assert_allclose(ours, [theirs.predict(bag.gather()) for bag in bags], atol=2e-3)


def test_hdx_of_two_classes_is_within_the_grid_step_of_quapy():
    X, y = labelled(400, n_classes=2)
    bags = hq.APP(60).draw(hq.Bags.from_labels(X, y), 4, random_state=0)
    theirs = HDx(n_jobs=1).fit(X, np.unique(y, return_inverse=True)[1])
    ours = hq.HDx(n_bins=range(10, 111, 10)).fit(X, y).predict(bags)
    np.testing.assert_allclose(ours, [theirs.predict(bag.gather()) for bag in bags], atol=1 / 99 + 1e-3)


def test_matching_features_never_ends_above_a_general_optimiser():
    rng = np.random.default_rng(0)
    histograms = np.swapaxes(rng.dirichlet(np.ones(6), size=(5, 4)), 1, 2)
    counts = rng.multinomial(50, np.full(6, 1 / 6), size=(8, 5))
    for p, found in zip(match_features(counts, histograms), counts / 50, strict=True):

        def loss(p, found=found):
            return np.sqrt(((np.sqrt(found) - np.sqrt(histograms @ p)) ** 2).sum(1)).mean()

        assert loss(p) <= loss(on_simplex(loss, 4)) + 1e-7


def test_hdx_puts_values_beyond_training_into_the_outer_bins():
    X, y = np.array([[0.0], [0.1], [0.9], [1.0]] * 5), [0, 0, 1, 1] * 5
    q = hq.HDx(n_bins=2).fit(X, y)
    np.testing.assert_allclose(q.predict([[-7.0], [9.0], [99.0], [1e30]]), [0.25, 0.75], atol=1e-6)
    with pytest.raises(ValueError, match=r"^n_bins: expected whole numbers of at least 2, got \(3, 1\); give such as"):
        hq.HDx(n_bins=(3, 1)).fit(X, y)


def words(n: int, p: np.ndarray, seed: int, n_words: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Flags of words that classes use more or less, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(p), n, p=p)
    rates = np.random.default_rng(99).uniform(0.05, 0.45, size=(len(p), n_words))
    return (rng.random((n, n_words)) < rates[y]).astype(int), y


def test_readme_fits_profiles_by_least_squares():
    X, y = words(2000, np.full(3, 1 / 3), 0)
    bag, _ = words(500, np.array([0.6, 0.3, 0.1]), 1)
    q = hq.ReadMe(n_subsets=1, subset_size=6, random_state=0).fit(X, y)
    theirs = ReadMe()
    tables = np.stack([theirs._empirical_distribution(X[y == c]) for c in range(3)], axis=1)
    target = theirs._empirical_distribution(bag)
    expected = on_simplex(lambda p: 1e3 * ((tables @ p - target) ** 2).sum(), 3)
    np.testing.assert_allclose(q.predict(bag), expected, atol=1e-4)
    # QuaPy bounds each share and rescales them at last, which fits less well than the best of those that sum to 1.
    theirs.classes_ = np.arange(3)
    rescaled = theirs._quantify_iteration(X, y, bag)
    assert np.linalg.norm(tables @ q.predict(bag) - target) <= np.linalg.norm(tables @ rescaled - target)
    np.testing.assert_allclose(q.predict(bag), rescaled, atol=0.05)


def test_readme_averages_over_subsets_and_takes_sparse_rows():
    X, y = words(3000, np.full(3, 1 / 3), 0, n_words=20)
    truth = np.array([0.6, 0.3, 0.1])
    bag, _ = words(2000, truth, 1, n_words=20)
    q = hq.ReadMe(n_subsets=50, subset_size=6, random_state=0)
    p = q.fit(X, y).predict(bag)
    assert np.abs(p - truth).max() < 0.05
    np.testing.assert_allclose(q.fit(sparse.csr_matrix(X), y).predict(sparse.csr_matrix(bag)), p, atol=1e-12)
    message = "subset_size: expected at most 16, got 17; take fewer."
    with pytest.raises(ValueError, match=exactly(message)):
        hq.ReadMe(subset_size=17).fit(X, y)


def test_a_flag_that_is_mostly_set_still_counts():
    X = np.array([[1], [1], [1], [1], [1], [0], [0], [1]])
    q = hq.ReadMe(n_subsets=1, random_state=0).fit(X, [0, 0, 0, 0, 1, 1, 1, 1])
    assert q.limits_.tolist() == [0]
    np.testing.assert_allclose(q.predict([[1], [1], [1], [0]]), [0.5, 0.5], atol=1e-6)


@pytest.mark.parametrize("q", ON_FEATURES, ids=lambda q: type(q).__name__)
def test_learning_from_sparse_weighted_and_absent(q):
    X, y = labelled(300)
    X = np.where(np.abs(X) > 1, X, 0.0)
    counts = np.random.default_rng(0).integers(1, 4, size=300)
    bags = hq.APP(30).draw(hq.Bags.from_labels(*labelled(seed=1)), 4, random_state=0)
    plain = q.fit(X, y).predict(bags)
    np.testing.assert_allclose(q.fit(sparse.csr_matrix(X), y).predict(bags), plain, atol=1e-9)
    copied = q.fit(np.repeat(X, counts, 0), np.repeat(y, counts)).predict(bags)
    weighted = hq.Bags.from_labels(X, y, weights=counts)
    np.testing.assert_allclose(q.fit(weighted).predict(bags), copied, atol=1e-6)
    absent = q.fit(hq.Bags.from_labels(X, y, classes=[*"abcd"])).predict(bags)
    np.testing.assert_allclose(absent, np.pad(plain, ((0, 0), (0, 1))), atol=1e-4)
    with pytest.raises(TypeError, match=r"^rows: \w+ expects numbers, got texts; vectorise them first, as by CountVec"):
        q.fit(["good", "bad"] * 4, ["p", "n"] * 4)


@pytest.mark.parametrize("q", ON_FEATURES, ids=lambda q: type(q).__name__)
def test_reordering_classes_reorders_the_output(q):
    X, y = labelled()
    bags = hq.APP(30).draw(hq.Bags.from_labels(*labelled(seed=1)), 4, random_state=0)
    renamed = np.array([{"a": "z", "b": "y", "c": "x"}[name] for name in y])
    np.testing.assert_allclose(q.fit(X, renamed).predict(bags)[:, ::-1], q.fit(X, y).predict(bags), atol=1e-4)


@pytest.mark.parametrize("q", ON_FEATURES, ids=lambda q: type(q).__name__)
def test_images_are_rows(q):
    X, y = labelled(240)
    flat = q.fit(X, y).predict(X[:30])
    np.testing.assert_allclose(q.fit(X.reshape(-1, 2, 2), y).predict(X[:30].reshape(-1, 2, 2)), flat, atol=1e-12)


@pytest.mark.parametrize(
    ("q", "name", "change"),
    [
        (hq.ED(cv=2), "knots", lambda a: np.concatenate([a, a])),
        (hq.EDx(), "knots", lambda a: a[:, ::-1]),
        (hq.EDx(), "distances", lambda a: a[:, :-1]),
        (hq.HDx(), "histograms", lambda a: a[:, :-1]),
        (hq.HDx(), "histograms", lambda a: -a),
        (hq.HDx(), "low", lambda a: a[:-1]),
        (hq.ReadMe(n_subsets=3, random_state=0), "subsets", lambda a: a + 1000),
        (hq.ReadMe(n_subsets=3, random_state=0), "profiles", lambda a: a[:, :-1]),
        (hq.MS(cv=2), "starts", lambda a: a[::-1]),
        (hq.MS(cv=2), "starts", lambda a: a + 1),
        (hq.MS(cv=2), "true_rates", lambda a: a[:-1]),
        (hq.MS(cv=2), "true_rates", lambda a: 0 * a),
    ],
)
def test_stored_arrays_of_other_sizes_are_refused(tmp_path, q, name, change):
    q.fit(*labelled()).save(tmp_path / "model")
    config, arrays = stored(tmp_path / "model")
    if name == "knots" and len(change(arrays["knots"])) > len(arrays["knots"]):
        arrays["distances"] = change(arrays["distances"])
    forge(tmp_path / "model", config, {**arrays, name: change(arrays[name])})
    with pytest.raises(ValueError, match=r"^path: .*again\.$"):
        hq.load(tmp_path / "model")


METHODS = ["ms", "friedman", "bbse", "rlls", "ed", "edx", "hdx", "readme", "corrected", "ensemble"]


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line_fits_and_predicts(tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    X, y = labelled(300)
    frame = pd.DataFrame(X, columns=[*"pqrs"]).assign(kind=y, bag=np.arange(300) // 15)
    frame.to_csv("rows.csv", index=False)
    known = ["rows.csv", "--bag", "bag"]
    told = CliRunner().invoke(main, ["fit", *known, "--label", "kind", "--method", method, "-o", "model"])
    assert told.exit_code == 0, told.output
    told = CliRunner().invoke(main, ["predict", "model", *known, "-o", "estimates.csv"])
    assert told.exit_code == 0, told.output
    assert len(pd.read_csv("estimates.csv")) == 60, "20 bags of 3 classes"


def test_they_beat_the_mix_of_training_under_prior_shift():
    X, y = labelled(3000, seed=1)
    test = hq.APP(200).draw(hq.Bags.from_labels(*labelled(3000, seed=2)), 60, random_state=0)
    floor = np.abs(test.prevalences - 1 / 3).mean()
    for q, share in zip(ON_FEATURES, (0.3, 0.3, 0.5), strict=True):
        assert np.abs(q.fit(X, y).predict(test) - test.prevalences).mean() < share * floor
