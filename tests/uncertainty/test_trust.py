"""Trust: bags that are mixes of the known classes are left alone, whatever the mix; others are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import histnetq as hq
from experiments.trust import World
from histnetq.sketches.moments import Moments, total_weights
from histnetq.uncertainty import mixture_test as mixes
from histnetq.uncertainty.bootstrap import relearned
from histnetq.uncertainty.groups import Groups
from histnetq.uncertainty.trust import Trust
from tests.conftest import CLASSICAL, QUANTIFIERS, exactly, known_bags, labelled


def draw(n_bags, size, shares, seed, change=None, n_features=6):
    """Bags of two normal classes of different spread with dependent features, of given shares of the second class."""
    rng = np.random.default_rng(seed)
    sizes, shares = np.broadcast_to(size, n_bags), np.broadcast_to(shares, n_bags)
    y = (rng.random(sizes.sum()) < np.repeat(shares, sizes)).astype(int)
    common, scale = rng.normal(size=(len(y), 1)), np.array([0.7, 1.5])[y][:, None]
    X = (rng.normal(size=(len(y), n_features)) + common) * scale + y[:, None] * np.linspace(0, 2, n_features)
    X = X if change is None else change(X, y, rng)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return hq.Bags(X, offsets=offsets, labels=y, classes=[0, 1]).with_known_prevalences()


def without_labels(bags):
    return hq.Bags(bags.rows, bags.index, bags.offsets, prevalences=bags.prevalences, classes=[0, 1])


def calibration(n_bags=150, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    return draw(n_bags, rng.integers(100, 300, n_bags), rng.random(n_bags), seed, n_features=n_features)


def judge(trust, bags):
    return trust.judge(trust.moments.sums(bags), total_weights(bags), bags.sizes)


def unusual(trust, bags):
    return judge(trust, bags)["trust"].str.startswith("unusual").mean()


@pytest.fixture(scope="module", params=["labels", "proportions"])
def learned(request):
    bags = calibration()
    return Trust.of(bags if request.param == "labels" else without_labels(bags))


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5, 0.9, 0.99, 1])
def test_label_shift_alone_stays_quiet_at_every_mix(learned, share):
    assert unusual(learned, draw(100, 200, share, 1)) <= 0.04  # 3 standard deviations above 0.01
    assert unusual(learned, draw(20, 2000, share, 2)) <= 0.1


def test_few_calibration_bags_raise_no_false_alarms():
    found = [unusual(Trust.of(calibration(20, seed=seed)), draw(40, 200, 0.7, seed + 100)) for seed in range(6)]
    assert np.mean(found) <= 0.03


def nuisance(X, y, rng):
    """Move all rows along a direction in which the classes do not differ."""
    way = np.array([1.0, -1, 0, 0, 1, -1]) - 0.2 * np.linspace(0, 2, 6)
    return X + 0.5 * way


def broken(X, y, rng):
    """Draw each feature from the rows of the class independently of the others."""
    out = X.copy()
    for c in (0, 1):
        out[y == c] = rng.permuted(X[y == c], axis=0)
    return out


@pytest.mark.parametrize("change", [nuisance, broken, lambda X, y, rng: X + rng.normal(size=X.shape)])
def test_shifts_within_the_classes_are_told(learned, change):
    assert unusual(learned, draw(60, 300, 0.4, 3, change)) >= 0.9


def test_features_with_one_value_in_each_bag_are_told(learned):
    def fixed(bags, feature):
        bags.rows[:, feature] = np.repeat(bags.rows[bags.offsets[:-1], feature], bags.sizes)
        return judge(learned, bags).attrs["fixed"]

    assert fixed(draw(20, 30, 0.4, 3), 2) == ["feature 2"]
    assert fixed(draw(20, 1, 0.4, 3), 2) == []  # each row is a bag
    assert fixed(draw(1, 100, 0.4, 3), 2) == []  # one bag
    assert judge(learned, draw(20, 30, 0.4, 3)).attrs["fixed"] == []


@pytest.fixture(scope="module")
def trust_of_fifty():
    return Trust.of(calibration(n_features=50))


@pytest.mark.parametrize("change", [lambda x: x + 0.5, lambda x: 0 * x, lambda x: 1.5 * x])
def test_one_bad_feature_of_fifty_is_told(trust_of_fifty, change):
    def spoil(X, y, rng):
        X[:, 30] = change(X[:, 30])
        return X

    assert unusual(trust_of_fifty, draw(40, 300, 0.4, 4, spoil, n_features=50)) >= 0.9


def test_fifty_good_features_are_left_alone(trust_of_fifty):
    assert unusual(trust_of_fifty, draw(100, 300, 0.4, 5, n_features=50)) <= 0.04


def test_a_wild_row_changes_no_other_bag():
    q = hq.PACC(random_state=0).fit(*labelled()).calibrate(known_bags(60, seed=8))
    bags = known_bags(30, seed=9)
    rows = bags.gather()
    rows[bags.offsets[0], 1] = 1e12
    spoilt = hq.Bags(rows, offsets=bags.offsets)
    assert q.trust(spoilt)[1:].equals(q.trust(bags)[1:])
    assert q.trust(q.sketch(spoilt)).equals(q.trust(spoilt))
    assert (q.trust(spoilt)["trust"][1:] == "ok").mean() > 0.9


def test_a_wild_row_among_the_calibration_rows_makes_nothing_blind():
    bags = calibration()
    bags.rows[7, 2] = 1e12
    trust = Trust.of(bags)
    assert unusual(trust, draw(60, 300, 0.4, 3, broken)) >= 0.9
    assert unusual(trust, draw(60, 300, 0.4, 3)) <= 0.05


def test_features_outside_the_range_are_named():
    bags = calibration()
    names = ["length", "width", "depth", "mass", "age", "key"]
    named = hq.Bags(bags.rows, bags.index, bags.offsets, labels=bags.labels, classes=[0, 1], feature_names=names)
    q = hq.PACC(random_state=0).fit(named).calibrate(named.with_known_prevalences())
    far = bags.rows[:200].copy()
    far[:, 0] += 100
    assert q.trust(far)["trust"].tolist() == ["unusual: length outside the range of training"]
    far[:, 1:] -= 100
    words = "unusual: length, width, depth and 3 more outside the range of training; small"
    assert q.trust(far[:9])["trust"].tolist() == [words]


def test_a_feature_that_never_varied_is_told_where_most_rows_differ_and_not_for_one_row():
    bags = calibration()
    bags.rows[:, 3] = 5.0
    q = hq.PACC(random_state=0).fit(bags).calibrate(bags)
    rows = draw(1, 200, 0.5, 1).rows
    rows[:, 3] = 5.0
    rows[0, 3] = 6.0
    assert q.trust(rows)["trust"].tolist() == ["ok"]
    rows[:, 3] = 6.0
    assert q.trust(rows)["trust"].tolist() == ["unusual: feature 3 outside the range of training"]


def test_small_bags_are_told(learned):
    found = judge(learned, draw(1, 50, 0.5, 1))
    assert found["small"].tolist() == [True]
    assert found["trust"].iloc[0].endswith("small")


def test_trust_of_the_first_version_says_unchecked():
    old = {name: np.zeros(3) for name in ("center", "unit", "directions", "spread", "coefficients", "scores")}
    found = Trust.from_stored({**old, "smallest": np.array([5.0])}, 3, 2).judge(None, np.array([4, 9]), [4, 9])
    assert found["trust"].tolist() == ["unchecked; small", "unchecked"]
    assert found["p_value"].isna().all()


@given(st.integers(0, 1000))
def test_sums_are_those_of_the_plain_formula_and_the_same_in_any_parts(seed):
    rng = np.random.default_rng(seed)
    bags, weights = known_bags(5, seed=seed), None
    weights = rng.integers(1, 4, len(bags.index))
    weighted = hq.Bags(bags.rows, bags.index, bags.offsets, weights=weights)
    paired = [np.eye(4), rng.normal(size=(3, 4))][seed % 2]
    moments = Moments(np.arange(4), rng.normal(size=4), rng.uniform(0.1, 2, 4), paired)
    values, directed = moments.of_rows(bags.rows)
    i, j = np.triu_indices(len(paired))
    each = np.hstack([values, values**2, directed[:, i] * directed[:, j]])
    plain = [
        np.average(each[bags.index[low:high]], axis=0, weights=weights[low:high])
        for low, high in zip(bags.offsets, bags.offsets[1:], strict=False)
    ]
    sums = moments.sums(weighted)
    np.testing.assert_allclose(moments.means(sums, total_weights(weighted)), plain, atol=1e-12)
    parts = [hq.Bags(bags.rows, [k], weights=[w]) for k, w in zip(bags.index, weights, strict=True)]
    added = np.add.reduceat([moments.sums(part)[0] for part in parts[::-1]][::-1], bags.offsets[:-1], axis=0)
    np.testing.assert_array_equal(added, sums)
    thin = hq.Bags(sparse.csr_array(bags.rows), bags.index, bags.offsets, weights=weights)
    np.testing.assert_array_equal(moments.sums(thin), sums)


def test_sparse_rows_are_judged_without_pairs():
    rng = np.random.default_rng(0)
    X = sparse.random(6000, 40, 0.2, random_state=0, format="csr")
    y = rng.integers(2, size=6000)
    bags = hq.Bags.from_labels(X, y, groups=np.arange(6000) // 100).with_known_prevalences()
    trust = Trust.of(bags[:30])
    assert unusual(trust, bags[30:]) <= 0.1
    assert unusual(trust, hq.Bags(X * 2, bags.index[3000:], bags.offsets[30:] - 3000)) >= 0.9


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
    assert (found["trust"] == "unchecked").all()


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


def test_bootstrap_intervals_of_a_class_that_is_absent_hold_zero_and_of_one_that_is_all_hold_one():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 200)
    q = hq.EMQ(random_state=0).fit(rng.normal(size=(600, 1)) + 2 * y[:, None], y)
    found = q.bootstrap_interval(rng.normal(size=(40, 1)), n_resamples=50)
    assert found.contains([1.0, 0.0, 0.0]).all()


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
    with pytest.raises(ValueError, match="interval: CC has no standard errors; use EMNetQ"):
        hq.CC().fit(X, y).predict_interval(X, method="standard-errors")


def test_intervals_refuse_what_they_cannot_use():
    q = hq.PACC(random_state=0).fit(*labelled())
    message = "X: expected rows, got a sketch, as the bootstrap draws from the rows; pass the Bags themselves."
    with pytest.raises(TypeError, match=exactly(message)):
        q.predict_interval(q.sketch(known_bags()), method="bootstrap")
    with pytest.raises(ValueError, match="option of bootstrap intervals: expected one of 'n_resamples', "):
        q.predict_interval(known_bags(), method="bootstrap", n_resample=3)
    with pytest.raises(
        ValueError, match="method: expected one of 'conformal', 'bayes', 'bootstrap', 'posterior', 'standard-errors'"
    ):
        q.predict_interval(known_bags(), method="x")


def test_a_count_of_training_rows_is_copies_in_the_bootstrap():
    P, y = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]] * 5), np.array([0, 1, 0, 1] * 5)
    bags = [hq.Bags(P, labels=y, classes=[0, 1], weights=w) for w in (np.ones(20, int), np.full(20, 1000))]
    known = [hq.PACC().fit_posteriors(rows).capabilities().posteriors for rows in bags]

    def spread(held_out):
        fitted = (relearned(held_out, np.random.default_rng(i)) for i in range(50))
        return np.std([quantify.__self__.matrix_[0, 0] for quantify in fitted])

    spreads = [spread(held_out) for held_out in known]
    assert spreads[1] < 0.1 * spreads[0]


@given(st.integers(0, 1000))
def test_rows_are_as_far_as_if_the_directions_had_not_seen_them(seed):
    rng = np.random.default_rng(seed)
    n, d = 40, 5
    bags = hq.Bags(rng.standard_t(4, size=(n, d)), offsets=[0, n], labels=np.zeros(n, int), classes=[0, 1])
    groups = Groups.of(bags.with_known_prevalences())
    tests = mixes.Tests.fit(bags, groups)
    rows = tests.of_rows(bags.rows)
    centered, values = groups.centered(rows), tests.summed[0]
    z = centered[:, values]
    others = z.T @ z / n - np.einsum("ri,rj->rij", z, z) / n
    distances = np.einsum("ri,rij,rj->r", z, np.linalg.inv(others), z)
    found = ((z * tests.as_if_unseen(centered, n)[:, values]) ** 2).sum(1)
    seen = 1 - (z**2).sum(1) / n > 0.01
    np.testing.assert_allclose(found[seen], distances[seen], rtol=1e-2)


def test_what_is_unknown_of_the_classes_where_bags_share_rows():
    """Draw bags of a pool of labelled rows, and compare how far the means of the classes are off with `design`."""
    rng = np.random.default_rng(0)
    n_rows, spread = 200, np.array([0.5, 2.0])
    y = np.arange(n_rows) % 2
    shares = rng.random(60)
    parts = [np.concatenate([rng.permutation(np.flatnonzero(y == c))[:k] for c, k in enumerate(counts)])
             for counts in rng.multinomial(60, np.stack([1 - shares, shares], 1))]  # fmt: skip
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    known = np.stack([np.bincount(y[part], minlength=2) / len(part) for part in parts])
    bags = hq.Bags(np.zeros((n_rows, 1)), np.concatenate(parts), offsets, prevalences=known, classes=[0, 1])
    groups = Groups.of(bags)
    noise = rng.normal(size=(n_rows, 4000)) * spread[y][:, None]
    means = np.stack([noise[part].mean(0) for part in parts])
    expected = np.einsum("kcc,k->c", groups.design(), spread**2)
    np.testing.assert_allclose((groups.solver() @ means).var(1), expected, rtol=0.25)


@pytest.mark.parametrize("labels", [True, False])
def test_pure_bags_of_digits_with_few_calibration_rows_are_left_alone(labels):
    found = []
    for seed in range(4 if labels else 3):
        world, rng = World("digits", seed), np.random.default_rng(seed)
        trust = Trust.of(world.calibrated(100, labels, seed))
        found.append(unusual(trust, world.bags(np.repeat(np.eye(10), 10, axis=0), np.full(100, 50), rng)))
    assert np.mean(found) <= 0.015


def one_feature(kind, n, seed):
    """Rows of one feature, and labels of two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    if kind == "normal":
        return rng.normal(size=(n, 1)) + 2 * y[:, None], y
    if kind == "flag":
        return (rng.random((n, 1)) < np.where(y, 0.9, 0.1)[:, None]).astype(float), y
    return y[:, None].astype(float), y  # the class itself


@pytest.mark.parametrize("known", ["labels", "proportions"])
@pytest.mark.parametrize(("kind", "told"), [("normal", True), ("flag", True), ("class", False)])
def test_a_stuck_sensor_is_told_and_equal_rows_of_constant_classes_are_not(kind, told, known):
    X, y = one_feature(kind, 2000, 0)
    held = hq.APP(100).draw(hq.Bags.from_labels(X[1000:], y[1000:]), 60, random_state=0)
    q = hq.PACC(random_state=0).fit(X[:1000], y[:1000]).calibrate(held if known == "labels" else without_labels(held))
    stuck = hq.Bags.from_arrays([np.repeat(X[i : i + 1], 2000, axis=0) for i in range(20)])
    words = q.trust(stuck)["trust"]
    assert words.str.contains("repeated rows").all() if told else (words == "ok").all()
    assert words.tolist() == q.trust(q.sketch(stuck))["trust"].tolist()
    assert q.trust(stuck).columns.tolist() == ["p_value", "small", "trust"]
    pure = hq.Bags.from_arrays([X[:1000][y[:1000] == c] for c in (0, 1)])
    few = hq.Bags.from_arrays([np.repeat(X[:1], 3, axis=0)])  # by chance, as far as can be known
    far = hq.Bags.from_arrays([X + 1e6])  # different rows, all of which are clipped
    for bags in (held, pure, few, far):
        assert not q.trust(bags)["trust"].str.contains("repeated").any()
