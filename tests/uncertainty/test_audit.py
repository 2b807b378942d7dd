"""Rows drawn to be labelled, and estimates from their labels: laws of the design, and intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import histnetq as hq
from histnetq.uncertainty.audit import extend_labels
from histnetq.uncertainty.row_samples import draw_rows


class Fixed:
    """A model whose posteriors are the rows."""

    classes_ = np.array(["a", "b", "c"])

    def predict_rows(self, bags):
        return bags.gather()


def made_bags(sizes, seed=0, weighted=False, doubt=1.0):
    """Bags whose rows are posteriors of 3 classes, and the class of each row."""
    rng = np.random.default_rng(seed)
    n = int(np.sum(sizes))
    y = rng.integers(3, size=n)
    scores = rng.normal(size=(n, 3)) * doubt + 3 * np.eye(3)[y]
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    weights = rng.gamma(2.0, 0.5, n) if weighted else None
    kind = "survey" if weighted else "count"
    return hq.Bags(p, offsets=np.concatenate([[0], np.cumsum(sizes)]), weights=weights, weight_kind=kind), y


def true_mix(bags, y):
    sums = np.add.reduceat(bags.entry_weights()[:, None] * np.eye(3)[y], bags.offsets[:-1])
    return sums / sums.sum(1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=4), n=st.integers(10, 120), seed=st.integers(0, 9),
    weighted=st.booleans(), doubt=st.sampled_from([0.0, 0.3, 3.0]),
)  # fmt: skip
def test_the_design_of_a_draw(sizes, n, seed, weighted, doubt):
    bags, _ = made_bags(sizes, seed, weighted, doubt)
    drawn = hq.sample_rows(Fixed(), bags, n, random_state=seed)
    assert np.bincount(drawn.bags).tolist() == [min(n, size) for size in sizes]
    assert len(set(drawn.entries.tolist())) == len(drawn)
    assert (bags.bag_of_entry[drawn.entries] == drawn.bags).all()
    first, group = drawn.groups
    counts, rows = np.bincount(group), drawn.stratum_rows[first]
    assert (counts <= rows).all()
    assert (counts >= np.minimum(rows, 3)).all()
    assert np.allclose(np.bincount(drawn.bags[first], drawn.shares[first]), 1)
    assert np.bincount(drawn.bags[first], rows).tolist() == sizes
    assert np.allclose(np.bincount(drawn.bags, 1 / drawn.probabilities), sizes)
    # At least half of the labels go by size, up to rounding.
    assert (counts >= np.minimum(drawn.shares[first] * np.minimum(n, sizes)[drawn.bags[first]] / 2.5, rows) - 1).all()


def test_the_same_seed_draws_the_same_rows():
    bags, _ = made_bags([300, 200])
    first, same, other = (hq.sample_rows(Fixed(), bags, 50, random_state=seed) for seed in (0, 0, 1))
    assert (first.rows == same.rows).all()
    assert (first.rows != other.rows).any()


def test_rows_in_doubt_are_drawn_more_often():
    rng = np.random.default_rng(0)
    p = np.where(rng.random((2000, 1)) < 0.1, [[0.5, 0.4, 0.1]], [[0.98, 0.01, 0.01]])
    drawn = hq.sample_rows(Fixed(), hq.Bags(p), 200)
    in_doubt = p[drawn.rows, 0] < 0.9
    assert 0.14 < in_doubt.mean() < 0.5
    assert drawn.probabilities[in_doubt].min() > drawn.probabilities[~in_doubt].max()


@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_are_right_on_average_whatever_the_model(weighted):
    bags, y = made_bags([600] * 1, weighted=weighted)
    wrong = hq.Bags(np.roll(bags.rows, 1, axis=1), weights=bags.weights, weight_kind=bags.weight_kind)
    p = true_mix(bags, y)
    for these in (bags, wrong):
        found = []
        for seed in range(80):
            drawn = hq.sample_rows(Fixed(), these, 60, random_state=seed)
            found.append(hq.audit(Fixed(), these, drawn, Fixed.classes_[y[drawn.rows]]).estimates[0])
        error = np.std(found, axis=0) / np.sqrt(len(found))
        assert (np.abs(np.mean(found, axis=0) - p[0]) < 3.5 * error + 0.002).all()


def test_labels_of_all_rows_leave_nothing_open():
    bags, y = made_bags([40, 15], weighted=True)
    drawn = hq.sample_rows(Fixed(), bags, 40)
    found = hq.audit(Fixed(), bags, drawn, Fixed.classes_[y[drawn.rows]])
    p = true_mix(bags, y)
    for values in (found.estimates, found.lower, found.upper):
        assert np.allclose(values, p)


def test_many_bags_are_as_one_by_one():
    bags, y = made_bags([300, 80, 500], weighted=True)
    drawn = hq.sample_rows(Fixed(), bags, 60)
    joint = hq.audit(Fixed(), bags, drawn, Fixed.classes_[y[drawn.rows]])
    for i in range(3):
        mine = drawn.bags == i
        parts = (getattr(drawn, name)[mine] for name in ("entries", "rows", "bags", "strata", "stratum_rows", "shares"))
        entries, rows, numbers, *others = parts
        alone = hq.RowSample(entries - bags.offsets[i], rows, numbers - i, *others)
        found = hq.audit(Fixed(), bags[i], alone, Fixed.classes_[y[rows]])
        for name in ("estimates", "lower", "upper"):
            assert np.allclose(getattr(found, name)[0], getattr(joint, name)[i])


def test_without_a_model_a_rare_class_has_about_wilsons_upper_end():
    """Of a simple random sample from a large bag: no row of the class among n, and some."""
    z2, n = 1.6448536**2, 1000
    bags = hq.Bags(np.tile([1.0, 0.0, 0.0], (10**6, 1)))
    drawn = hq.RowSample.simple(bags, np.arange(n))
    for count in (0, 20):
        labels = np.where(np.arange(n) < count, 1, 0)
        upper = extend_labels(bags.rows, bags, drawn, labels, 3, 0.9).upper[0, 1]
        p = count / n
        wilson = (p + z2 / (2 * n) + np.sqrt(z2 * p * (1 - p) / n + z2**2 / (4 * n**2))) / (1 + z2 / n)
        assert 0.97 < upper / wilson < 1.15  # by Student's quantile


def coverage(bags, y, n, seed=0):
    drawn = draw_rows(bags.gather(), bags, n, np.random.default_rng(seed))
    found = extend_labels(bags.gather(), bags, drawn, y[drawn.entries], 3, 0.9)
    return found.contains(true_mix(bags, y))


@pytest.mark.parametrize("spoilt", [lambda p: p, lambda p: np.roll(p, 1, axis=1), lambda p: p[::-1].copy()])
@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_hold_the_truth_whatever_the_model(spoilt, weighted):
    bags, y = made_bags([600] * 400, weighted=weighted, doubt=1.5)
    bags.rows = spoilt(bags.rows)
    # 1,200 intervals, of which those of a bag err together: a standard error of about 0.01.
    assert 0.88 < coverage(bags, y, 150).mean() < 0.94


@pytest.mark.parametrize("doubt", [0.8, 1.0])
def test_few_errors_among_the_labels_leave_intervals_that_hold_the_truth(doubt):
    """Five labels of 150, or one, differ from the prediction: a variance from them is hardly known."""
    bags, y = made_bags([600] * 400, doubt=doubt)
    assert 0.84 < coverage(bags, y, 150).mean() < 0.94


def test_a_good_model_makes_intervals_narrow():
    bags, y = made_bags([2000] * 50)
    drawn = hq.sample_rows(Fixed(), bags, 200)
    found = hq.audit(Fixed(), bags, drawn, Fixed.classes_[y[drawn.rows]])
    noise = hq.Bags(bags.rows[::-1].copy(), offsets=bags.offsets)
    other = hq.audit(Fixed(), noise, hq.sample_rows(Fixed(), noise, 200), Fixed.classes_[y[drawn.rows]])
    assert (found.upper - found.lower).mean() < 0.6 * (other.upper - other.lower).mean()


def test_a_class_that_the_model_lacks_is_estimated_from_labels():
    bags, y = made_bags([500])
    labels = np.where(np.arange(500) % 5 == 0, "new", Fixed.classes_[y])
    drawn = hq.sample_rows(Fixed(), bags, 200)
    found = hq.audit(Fixed(), bags, drawn, labels[drawn.rows], classes=["a", "b", "c", "new"])
    assert found.estimates.shape == (1, 4)
    assert found.contains([[(labels == name).mean() for name in ("a", "b", "c", "new")]])[0, 3]


def test_labels_follow_the_order_of_a_simple_sample():
    bags, y = made_bags([300, 300])
    rows = np.random.default_rng(0).permutation(600)[:150]
    drawn = hq.RowSample.simple(bags, rows)
    assert (drawn.rows == rows).all()
    found = hq.audit(Fixed(), bags, drawn, Fixed.classes_[y[rows]])
    assert found.contains(true_mix(bags, y)).mean() > 0.6


def test_methods_with_posteriors_and_one_without():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    X = rng.normal(size=(600, 2)) + 2 * y[:, None]
    bags = hq.Bags(X[300:])
    for q in (hq.EMQ(random_state=0), hq.CC(random_state=0), hq.KDEy(random_state=0)):
        drawn = hq.sample_rows(q.fit(X[:300], y[:300]), bags, 80)
        found = hq.audit(q, bags, drawn, y[300:][drawn.rows])
        assert np.abs(found.estimates[0, 1] - y[300:].mean()) < 0.1
    with pytest.raises(
        TypeError, match="predict_rows: MLPE gives no probabilities of rows; use EMNetQ, or a method such"
    ):
        hq.sample_rows(hq.MLPE().fit(X, y), bags, 80)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda q, b, d, y: hq.sample_rows(q, b, 9), "n: expected at least 10 rows of each bag, got 9; draw more."),
        (lambda q, b, d, y: hq.sample_rows(q, b, 20.5), "n: expected a whole number of at least 1, got 20.5."),
        (lambda q, b, d, y: hq.audit(q, b, d, y[:-1]),
         "labels: expected one name per drawn row, shape (20,), got (19,)."),
        (lambda q, b, d, y: hq.audit(q, b, d, np.array(["z"] * 20)),
         "labels: 'z' is not among the classes ['a', 'b', 'c']; correct it, or name it in classes=."),
        (lambda q, b, d, y: hq.audit(q, b, d, y, coverage=1.0), "coverage: expected a number between 0 and 1, such as"),
        (lambda q, b, d, y: hq.audit(q, b, d, y, classes=["b", "a", "c"]),
         "classes: expected the model's classes ['a', 'b', 'c'] first, got ['b', 'a', 'c']; reorder them."),
        (lambda q, b, d, y: hq.audit(q, hq.Bags.concat([b, b]), d, y),
         "sample: expected rows of each of the 2 bags, got rows of 1; select the bags with drawn rows."),
        (lambda q, b, d, y: hq.audit(q, b, hq.RowSample.simple(b, [3]), y[:1]),
         "sample: expected at least 2 drawn rows of each stratum, got only 1; draw more rows."),
        (lambda q, b, d, y: hq.audit(q, made_bags([100, 50])[0][1:], d, y),
         "sample: expected rows drawn from these bags, got different rows; pass the bags that were sampled."),
        (lambda q, b, d, y: hq.audit(q, b, None, y),
         "sample: expected a RowSample, got NoneType; draw rows with sample_rows first."),
        (lambda q, b, d, y: hq.audit(q, b.rows, d, y), "bags: expected Bags, got ndarray; make them with Bags."),
        (lambda q, b, d, y: hq.audit(None, b, d, y), "model: expected a fitted quantifier such as EMQ, got NoneType;"),
        (lambda q, b, d, y: hq.audit(q, b, d, y, classes=["a", "b", "c", "c"]),
         "classes: expected different names, got ['a', 'b', 'c', 'c']."),
        (lambda q, b, d, y: hq.sample_rows(q, b.rows, 20),
         "bags: expected Bags, got ndarray; make them with Bags.from_arrays or read_bags."),
        (lambda q, b, d, y: hq.sample_rows(q, b, 20, random_state=-1),
         "random_state: expected a whole number of at least 0, or None, got -1; 0 gives the same draws each time."),
        (lambda q, b, d, y: hq.metrics.csmf_accuracy([[0.5, 0.5]], [[0.2, 0.3, 0.5]]),
         "p_pred: expected rows of shares that sum to 1, of at least 2 classes and as many bags in both, got shape "),
        (lambda q, b, d, y: hq.metrics.csmf_accuracy([[0.5, 0.6]], [[0.5, 0.5]]),
         "p_true: expected rows of shares that sum to 1, of at least 2 classes and as many bags in both, got others"),
        (lambda q, b, d, y: hq.metrics.csmf_accuracy([[np.nan, 0.5]], [[0.5, 0.5]]), "p_true: expected rows of shares"),
        (lambda q, b, d, y: hq.metrics.csmf_accuracy([[1.0]], [[1.0]]), "p_true: expected rows of shares"),
        (lambda q, b, d, y: hq.RowSample.simple(b, [3, 3]),
         "rows: expected different rows, each in exactly one bag, got others; name each row of the bags once."),
    ],
)  # fmt: skip
def test_wrong_arguments(act, message):
    bags, y = made_bags([100])
    drawn = hq.sample_rows(Fixed(), bags, 20)
    with pytest.raises((ValueError, TypeError)) as caught:
        act(Fixed(), bags, drawn, Fixed.classes_[y[drawn.rows]])
    assert message in str(caught.value)


def test_csmf_accuracy():
    p_true, p_pred = np.array([[0.2, 0.3, 0.5]]), np.array([[0.3, 0.3, 0.4]])
    assert hq.metrics.csmf_accuracy(p_true, p_pred) == pytest.approx(1 - 0.2 / (2 * 0.8))


def test_rogan_gladen_by_hand():
    found = hq.rogan_gladen(30, 100, 0.9, 0.8)
    assert found.estimate == pytest.approx((0.3 + 0.8 - 1) / 0.7)
    assert found.lower < found.estimate < found.upper
    assert hq.rogan_gladen(5, 100, 0.9, 0.8).estimate == 0
    assert hq.rogan_gladen(30, 100, 0.9, 0.8, n_sensitivity=50, n_specificity=50).upper > found.upper
    assert hq.rogan_gladen(3, 10, 0.9, 0.2, n_sensitivity=1)[1:] == (0.0, 1.0)


@pytest.mark.parametrize("p", [0.02, 0.1, 0.4])
def test_rogan_gladen_holds_the_truth(p):
    rng, n, m, se, sp = np.random.default_rng(0), 300, 100, 0.85, 0.95
    held = []
    for _ in range(600):
        positives = rng.binomial(n, p * se + (1 - p) * (1 - sp))
        rates = rng.binomial(m, [se, sp]) / m
        found = hq.rogan_gladen(int(positives), n, *rates, n_sensitivity=m, n_specificity=m)
        held.append(found.lower <= p <= found.upper)
    assert 0.86 < np.mean(held) < 0.97


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((11, 10, 0.9, 0.9), "positives: expected a whole number from 0 to n = 10, got 11; count the positive tests."),
        ((1, 0, 0.9, 0.9), "n: expected a whole number of at least 1, got 0."),
        ((1, 10, 90, 0.9), "sensitivity: expected a number from 0 to 1, got 90; divide counts by their sum."),
        (
            (1, 10, 0.4, 0.6),
            "sensitivity, specificity: expected a sum of more than 1, got 1; use a test that is better than chance, or "
            "swap positive and negative.",
        ),
    ],
)
def test_wrong_tests(arguments, message):
    with pytest.raises(ValueError) as caught:
        hq.rogan_gladen(*arguments)
    assert message in str(caught.value)
