"""Trust: bags like the calibration bags get p-values like any other; bags unlike them are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import histnetq as hq
from histnetq.sketches.moments import bag_moments
from histnetq.uncertainty.trust import Trust
from tests.conftest import CLASSICAL, QUANTIFIERS, exactly, known_bags, labelled


def moments(n_bags, seed, n_moments=6, shift=0.0):
    """Moments that vary less in large bags, in two strong directions; and sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 400, n_bags)
    strong = rng.normal(size=(n_bags, 2)) @ np.random.default_rng(0).normal(size=(2, n_moments)) * 5
    return strong + rng.normal(size=(n_bags, n_moments)) * (5 / np.sqrt(sizes))[:, None] + shift, sizes


def test_p_values_of_exchangeable_bags_are_uniform():
    shares = []
    for seed in range(20):
        m, sizes = moments(500, seed)
        p = Trust.of(m[:200], sizes[:200], seed).p_values(m[200:], sizes[200:])
        shares.append([(p <= level).mean() for level in (0.05, 0.2, 0.5)])
    # 133 scores each: the mean of 20 splits has a standard deviation below 0.01.
    np.testing.assert_allclose(np.mean(shares, 0), [0.05, 0.2, 0.5], atol=0.03)


def test_bags_elsewhere_are_told_though_they_vary_less_than_bags_do_along_the_main_directions():
    m, sizes = moments(300, 0)
    trust = Trust.of(m, sizes)
    across = np.linalg.svd(m - m.mean(0))[2][-1]
    far = m + 3 * across
    assert np.abs(3 * across).max() < m.std(0).max()
    assert (trust.judge(far, sizes)["trust"] == "unusual").mean() > 0.9
    assert (trust.judge(m, sizes)["trust"] == "ok").mean() > 0.9


def test_small_bags_are_told():
    m, sizes = moments(60, 0)
    found = Trust.of(m, sizes).judge(m[:2], [5, sizes.max()])
    assert found["small"].tolist() == [True, False]
    assert found["trust"].iloc[0].endswith("small")


@given(st.integers(0, 1000))
def test_moments_are_those_of_the_plain_formula(seed):
    bags = known_bags(5, seed=seed)
    weights = np.random.default_rng(seed).integers(1, 4, len(bags.index))
    weighted = hq.Bags(bags.rows, bags.index, bags.offsets, weights=weights)
    plain = []
    for i in range(len(bags)):
        part = slice(bags.offsets[i], bags.offsets[i + 1])
        rows = np.repeat(bags.rows[bags.index[part]], weights[part], axis=0)
        plain.append(np.concatenate([rows.mean(0), rows.std(0)]))
    np.testing.assert_allclose(bag_moments(weighted), plain, atol=1e-9)
    thin = hq.Bags(sparse.csr_array(bags.rows), bags.index, bags.offsets, weights=weights)
    np.testing.assert_allclose(bag_moments(thin), plain, atol=1e-7)


def test_features_far_from_zero_lose_no_digits():
    rows = 1e8 + np.array([[0.0], [2.0]])
    np.testing.assert_allclose(bag_moments(hq.Bags(rows)), [[1e8 + 1, 1]], atol=1e-6)


def test_texts_have_no_moments_and_no_p_value():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = np.array(["good film", "bad film", "good plot", "bad plot"] * 15)
    labels = [text.split()[0] for text in texts]
    bags = hq.Bags.from_labels(texts, labels, groups=np.arange(60) // 4)
    q = hq.CC(make_pipeline(CountVectorizer(), LogisticRegression())).fit(texts, labels).calibrate(bags)
    found = q.trust(bags)
    assert found["p_value"].isna().all()
    assert (found["trust"] == "ok").all()


@pytest.mark.parametrize("name", [name for name in CLASSICAL if "-" not in name])
def test_bootstrap_intervals_hold_the_estimate_and_survive_saving(name, tmp_path):
    X, y = labelled()
    q = QUANTIFIERS[name]().fit(X, y)
    bags = known_bags(6, seed=1)
    found = q.bootstrap_interval(bags, 0.8, n_resamples=20)
    np.testing.assert_array_equal(found.estimates, q.predict(bags))
    assert (found.lower >= 0).all()
    assert (found.upper <= 1).all()
    assert found.contains(found.estimates).all()
    assert found.region.contains(found.estimates).all()
    assert (found.upper > found.lower).any()
    wider = q.bootstrap_interval(bags, 0.95, n_resamples=20)
    assert (wider.upper >= found.upper - 1e-12).all()
    one = q.bootstrap_interval(bags[:1].gather(), 0.8, n_resamples=3)
    assert one.lower.shape == (3,)
    q.save(tmp_path / "model")
    again = hq.load(tmp_path / "model").bootstrap_interval(bags, 0.8, n_resamples=20)
    np.testing.assert_array_equal(again.lower, found.lower)


def test_bootstrap_covers_the_population_that_bags_are_drawn_from():
    rng = np.random.default_rng(0)

    def draw(n, share):
        y = (rng.random(n) < share).astype(int)
        return rng.normal(size=(n, 1)) + 2 * y[:, None], y

    q, held = hq.PACC(random_state=0).fit(*draw(2000, 0.5)), []
    for share in np.linspace(0.1, 0.9, 40):
        bags = hq.Bags.from_arrays([draw(100, share)[0] for _ in range(5)])
        held.append(q.bootstrap_interval(bags, 0.8, n_resamples=100).contains(np.tile([1 - share, share], (5, 1))))
    assert abs(np.mean(held) - 0.8) < 0.06


def test_what_cannot_be_resampled():
    q = hq.QuaNet(hidden=4, n_steps=4, training=hq.Training(epochs=1), random_state=0).fit(*labelled())
    with pytest.raises(TypeError, match="bootstrap_interval: QuaNet takes too long to learn from every resample"):
        q.bootstrap_interval(known_bags())
    with pytest.raises(ValueError, match=exactly("n_resamples: expected a whole number of at least 1, got 0.")):
        hq.CC().fit(*labelled()).bootstrap_interval(known_bags(), n_resamples=0)


def test_intervals_from_standard_errors():
    X, y = labelled(300)
    q = hq.EMNetQ(prior=0.0, training=hq.Training(epochs=2), random_state=0).fit(X, y)
    found = q.predict_interval(hq.Bags(X, offsets=[0, 100, 300]), 0.9, method="standard-errors")
    reach = 1.6448536 * q.standard_errors(hq.Bags(X, offsets=[0, 100, 300]))
    np.testing.assert_allclose(found.upper, np.minimum(found.estimates + reach, 1), atol=1e-6)
    assert found.region.contains(found.estimates).all()
    alone = q.predict_interval(np.tile(X[:1], (50, 1)), method="standard-errors")
    assert alone.region.contains(alone.estimates).all()
    with pytest.raises(ValueError, match="interval: CC has no standard errors, which EMNetQ has"):
        hq.CC().fit(X, y).predict_interval(X, method="standard-errors")


def test_intervals_refuse_what_they_cannot_use():
    q = hq.PACC(random_state=0).fit(*labelled())
    message = "X: expected rows, got a sketch, as the bootstrap draws from the rows; pass the Bags themselves."
    with pytest.raises(TypeError, match=exactly(message)):
        q.predict_interval(q.sketch(known_bags()), method="bootstrap")
    with pytest.raises(ValueError, match="option of bootstrap intervals: expected one of 'n_resamples', "):
        q.predict_interval(known_bags(), method="bootstrap", n_resample=3)
    with pytest.raises(ValueError, match="method: expected one of 'conformal', 'bootstrap', 'standard-errors'"):
        q.predict_interval(known_bags(), method="x")


def test_a_count_of_training_rows_is_copies_in_the_bootstrap():
    P, y = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]] * 5), np.array([0, 1, 0, 1] * 5)
    few, many = hq.PACC(), hq.PACC()
    few._learn_all(P, y, np.ones(20, np.int64), np.arange(2))
    many._learn_all(P, y, np.full(20, 1000), np.arange(2))
    spreads = [np.std([q._relearned(np.random.default_rng(i)).matrix_[0, 0] for i in range(50)]) for q in (few, many)]
    assert spreads[1] < 0.1 * spreads[0]
