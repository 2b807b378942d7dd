from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from histnetq.uncertainty.judging.score_intervals import pool_small_strata, score_interval, strata_shares

Z = float(ndtri(0.95))


@pytest.mark.parametrize(("yes", "no"), [(0, 40), (3, 57), (30, 30), (12, 0)])
def test_one_stratum_gives_wilsons_interval(yes, no):
    n = yes + no
    center, half = (yes + Z**2 / 2) / (n + Z**2), Z * np.sqrt(yes * no / n + Z**2 / 4) / (n + Z**2)
    estimate, lower, upper = score_interval([[yes, no]], [1.0], Z)
    assert estimate == pytest.approx(yes / n)
    assert [lower, upper] == pytest.approx([center - half, center + half], abs=1e-6)


def test_constrained_shares_have_the_greatest_likelihood():
    counts, weights = np.array([[3.0, 20.0], [15.0, 5.0]]), np.array([0.7, 0.3])
    shares = strata_shares(counts, weights, np.array(25.0))
    theta = weights @ shares
    first = np.linspace(0.001, theta / 0.7 - 0.001, 20_001)
    second = (theta - 0.7 * first) / 0.3
    inside = (second > 0) & (second < 1)
    first, second = first[inside], second[inside]
    likelihood = 3 * np.log(first) + 20 * np.log1p(-first) + 15 * np.log(second) + 5 * np.log1p(-second)
    assert shares == pytest.approx([first[likelihood.argmax()], second[likelihood.argmax()]], abs=1e-3)


def test_other_class_gets_the_mirrored_interval_and_batches_are_separate():
    rng = np.random.default_rng(0)
    counts, weights = rng.integers(0, 20, (50, 3, 2)), rng.dirichlet(np.ones(3), 50)
    estimate, lower, upper = score_interval(counts, weights, Z, 100)
    mirrored = score_interval(counts[..., ::-1], weights, Z, 100)
    assert lower == pytest.approx(1 - mirrored[2], abs=1e-6)
    assert (lower <= estimate).all()
    assert (estimate <= upper).all()
    assert upper[7] == pytest.approx(score_interval(counts[7], weights[7], Z, 100)[2])


def test_a_stratum_without_labels_may_be_anything():
    known = score_interval([[5, 45]], [1.0], Z)
    lower, upper = score_interval([[5, 45], [0, 0]], [0.8, 0.2], Z)[1:]
    assert lower == pytest.approx(0.8 * known[1], abs=1e-6)
    assert upper == pytest.approx(0.8 * known[2] + 0.2, abs=1e-6)
    assert np.isnan(score_interval([[0, 0]], [1.0], Z)[0])


def test_small_strata_are_pooled_until_they_have_enough_labels():
    assert pool_small_strata([9, 9, 9], 3).tolist() == [True, False, False]
    assert pool_small_strata([9, 2, 9], 3).tolist() == [True, True, False]
    assert pool_small_strata([[1, 1, 1], [0, 50, 60]], 3).tolist() == [[True, True, True], [True, True, False]]


@pytest.mark.parametrize("share", [0.5, 0.2, 0.05])
def test_intervals_hold_the_true_share_as_often_as_they_say(share):
    rng, n, n_rows = np.random.default_rng(0), 150, 2000
    cells = np.array([share * 0.85, share * 0.15, (1 - share) * 0.15, (1 - share) * 0.85])  # class × verdict
    full = rng.multinomial(n_rows, cells, 4000)
    labelled = rng.multinomial(n, cells, 4000)
    sizes, counts = (full + labelled).reshape(-1, 2, 2).sum(1), labelled.reshape(-1, 2, 2).swapaxes(1, 2)
    _, lower, upper = score_interval(counts, sizes / (n_rows + n), Z, n_rows + n)
    assert 0.88 <= ((lower <= share) & (share <= upper)).mean() <= 0.93


def test_a_stratum_that_is_fully_labelled_adds_no_error():
    alone = score_interval([[5, 45]], [1.0], Z)
    estimate, lower, upper = score_interval([[5, 45], [3e12, 1e12]], [0.8, 0.2], Z)
    assert estimate == pytest.approx(0.8 * 0.1 + 0.2 * 0.75)
    assert [lower, upper] == pytest.approx([0.8 * alone[1] + 0.15, 0.8 * alone[2] + 0.15], abs=1e-4)
