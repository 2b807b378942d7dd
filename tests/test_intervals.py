"""Conformal intervals: valid for exchangeable bags whatever the quantifier, and fitted to the sizes of bags."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import histnetq as hq
from histnetq.uncertainty.conformal import Calibration
from tests.conftest import exactly


def pretended(n_bags, seed, n_classes=3, smallest=20, largest=500):
    """Prevalences, estimates that err by 1 / √n and more for common classes, and sizes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(smallest, largest + 1, size=n_bags)
    p_true = rng.dirichlet(np.ones(n_classes), n_bags)
    p_pred = np.stack([rng.dirichlet(n * p + 0.5) for n, p in zip(sizes, p_true, strict=True)])
    return p_true, p_pred, sizes


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_coverage_of_exchangeable_bags(coverage):
    held, joint = [], []
    for seed in range(20):
        p_true, p_pred, sizes = pretended(1000, seed)
        calibration = Calibration.of(p_true[:300], p_pred[:300], sizes[:300])
        found = calibration.intervals(p_pred[300:], sizes[300:], coverage)
        held.append(found.contains(p_true[300:]).mean())
        joint.append(found.region.contains(p_true[300:]).mean())
    # 200 scores each: a split's coverage has a standard deviation of at most √(¼ / 200) = 0.035, the mean of 20 0.008.
    assert abs(np.mean(held) - coverage) < 0.025
    assert abs(np.mean(joint) - coverage) < 0.025


def test_small_bags_get_wider_intervals_and_both_are_covered():
    p_true, p_pred, sizes = pretended(6000, seed=1)
    calibration = Calibration.of(p_true[:3000], p_pred[:3000], sizes[:3000])
    found = calibration.intervals(p_pred[3000:], sizes[3000:], 0.9)
    inside, width = found.contains(p_true[3000:]), found.upper - found.lower
    small, large = sizes[3000:] < 100, sizes[3000:] > 300
    assert width[small].mean() > 1.5 * width[large].mean()
    assert found.region.radius[small].mean() > 1.5 * found.region.radius[large].mean()
    assert abs(inside[small].mean() - 0.9) < 0.04
    assert abs(inside[large].mean() - 0.9) < 0.04


def test_without_scale_the_interval_is_a_quantile_of_the_errors():
    # One size, estimates of ½: every scale is nearly the same and cancels.
    p_true = 0.5 + np.stack([np.linspace(-0.3, 0.3, 601), -np.linspace(-0.3, 0.3, 601)], axis=1)
    p_pred, sizes = np.full((601, 2), 0.5), np.full(601, 50)
    found = Calibration.of(p_true, p_pred, sizes, random_state=3).intervals(p_pred[:1], [50], 0.9)
    np.testing.assert_allclose(found.upper[0], 0.5 + 0.27, atol=0.003)
    np.testing.assert_allclose(found.lower[0], 0.5 - 0.27, atol=0.003)


def rare(n_bags, seed, n_classes):
    """Prevalences of which most are 0, estimates of bags of 100 rows that are exactly 0 where little is there."""
    rng = np.random.default_rng(seed)
    p_true = rng.dirichlet(np.full(n_classes, 0.2), n_bags)
    counts = rng.multinomial(100, p_true)
    p_pred = np.maximum(counts / 100 + rng.normal(size=p_true.shape) * 0.02 * np.sqrt(p_true + 0.02) - 0.005, 0)
    return counts / 100, p_pred / p_pred.sum(1, keepdims=True), np.full(n_bags, 100)


@pytest.mark.parametrize("n_classes", [3, 10, 26])
@pytest.mark.parametrize("n_bags", [20, 40, 80])
def test_few_bags_give_intervals_that_are_neither_empty_nor_everything(n_bags, n_classes):
    held, at_zero = [], []
    for seed in range(20):
        p_true, p_pred, sizes = rare(n_bags + 200, seed, n_classes)
        calibration = Calibration.of(p_true[:n_bags], p_pred[:n_bags], sizes[:n_bags])
        found = calibration.intervals(p_pred[n_bags:], sizes[n_bags:], 0.9)
        width, inside = found.upper - found.lower, found.contains(p_true[n_bags:])
        assert width.max() < 0.3
        assert (width > 0).all()
        held.append(inside.mean())
        at_zero.append(inside[p_pred[n_bags:] == 0].mean())
    assert abs(np.mean(held) - 0.9) < 0.025
    assert np.mean(at_zero) > 0.88


def test_all_calibration_bags_are_yardsticks_whatever_their_number():
    p_true, p_pred, sizes = pretended(38, 0)
    assert Calibration.of(p_true, p_pred, sizes).scores.shape == (38, 3)


@given(st.permutations(range(3)), st.integers(0, 5))
def test_relabelling_classes_relabels_the_intervals(order, seed):
    p_true, p_pred, sizes = pretended(60, seed)
    here = Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, 0.8)
    there = Calibration.of(p_true[:, order], p_pred[:, order], sizes).intervals(p_pred[:, order], sizes, 0.8)
    np.testing.assert_allclose(there.upper, here.upper[:, order], atol=1e-9)
    np.testing.assert_allclose(there.region.radius, here.region.radius, atol=1e-9)


def test_perfect_estimates_have_intervals_of_no_width():
    p, _, sizes = pretended(40, 0)
    found = Calibration.of(p, p, sizes).intervals(p, sizes, 0.9)
    np.testing.assert_allclose(found.upper - found.lower, 0, atol=1e-9)
    assert found.region.contains(p).all()


def test_too_few_bags():
    p_true, p_pred, sizes = pretended(19, 0)
    calibration = Calibration.of(p_true, p_pred, sizes)
    assert calibration.intervals(p_pred, sizes, 0.95).coverage == 0.95
    message = (
        "coverage: 0.96 needs at least 24 calibration bags, got 19; "
        "calibrate with more bags, or ask for at most 0.95."
    )  # fmt: skip
    with pytest.raises(ValueError, match=exactly(message)):
        calibration.intervals(p_pred, sizes, 0.96)
    with pytest.raises(ValueError, match="bags: expected at least 6 calibration bags, got 5; draw more of them"):
        Calibration.of(p_true[:5], p_pred[:5], sizes[:5])


def test_a_coverage_next_to_one_is_refused_at_once():
    p_true, p_pred, sizes = pretended(40, 0)
    with pytest.raises(ValueError, match="calibration bags, got 40; calibrate with more bags"):
        Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, 0.99999999999)


@pytest.mark.parametrize("coverage", [0, 1, 90, "0.9", True, float("nan")])
def test_wrong_coverage(coverage):
    p_true, p_pred, sizes = pretended(40, 0)
    with pytest.raises(ValueError, match=r"coverage: expected a number between 0 and 1, such as 0\.9, got"):
        Calibration.of(p_true, p_pred, sizes).intervals(p_pred, sizes, coverage)


def test_a_table_of_intervals():
    p_true, p_pred, sizes = pretended(40, 0)
    found = Calibration.of(p_true, p_pred, sizes).intervals(p_pred[:2], sizes[:2], 0.8)
    frame = found.to_frame(["a", "b", "c"], ids=["north", "south"])
    assert list(frame) == ["bag", "class", "estimate", "lower", "upper", "n"]
    assert frame["bag"].tolist() == ["north"] * 3 + ["south"] * 3
    assert frame["class"].tolist() == ["a", "b", "c"] * 2
    np.testing.assert_array_equal(frame["n"], np.repeat(sizes[:2], 3))
    np.testing.assert_array_equal(frame["upper"], found.upper.ravel())


def test_calibration_needs_bags_with_known_proportions():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    q = hq.PACC().fit(X, y)
    with pytest.raises(TypeError, match=r"bags: expected Bags, got ndarray"):
        q.calibrate(X)
    with pytest.raises(ValueError, match="bags: expected the proportions of each bag, got none"):
        q.calibrate(hq.Bags(X, offsets=np.arange(0, 61, 6)))
