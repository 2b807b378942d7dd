"""The most probable mixture of a bag's counts, and its uncertainty, against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from histnetq.kernels.cell_mixtures import explain


def explained(table: np.ndarray, counts: np.ndarray, alpha: float, noise: float = 0.0):
    """Shares, expected parts, spreads and covariances of one bag at one level."""
    k = table.shape[1]
    shares, expected, spreads, covariances = (np.empty(s) for s in [(1, 1, k), (1, 1, k), (1, 2, k), (1, k, k)])
    cells = np.flatnonzero(counts)
    given = np.full((1, k), alpha), np.full(k, noise), cells, np.array([0, len(cells)]), counts[cells].astype(float)
    explain(table[None], 0, *given, 0, 1, shares, expected, spreads, covariances)
    return shares[0, 0], expected[0, 0], spreads[0], covariances[0]


def likelihood(table: np.ndarray, counts: np.ndarray, alpha: float, p: np.ndarray) -> float:
    return counts @ np.log(table @ p) + alpha * np.log(p).sum()


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_shares_maximise_the_likelihood_times_the_prior(k, alpha):
    rng = np.random.default_rng(k)
    table, counts = rng.dirichlet(np.full(k, 0.4), 30), rng.integers(0, 9, 30)
    p, expected, _, _ = explained(table, counts, alpha)
    found = minimize(lambda z: -likelihood(table, counts, alpha, softmax(z)), np.zeros(k), tol=1e-12)
    np.testing.assert_allclose(p, softmax(found.x), atol=1e-4)
    np.testing.assert_allclose(expected, (counts @ (table * p / (table @ p)[:, None])) / counts.sum())


def test_classes_that_hardly_differ_need_newtons_method_and_get_the_maximum():
    rng = np.random.default_rng(0)
    table = 1 + 0.02 * rng.normal(size=(40, 3))
    table /= table.sum(0)
    counts = rng.multinomial(1_000_000, table @ [0.6, 0.3, 0.1])
    p = explained(table, counts, 1.0)[0]
    best = likelihood(table, counts, 1.0, p)
    for move in np.vstack([np.eye(3), -np.eye(3)]) * 1e-4:
        assert likelihood(table, counts, 1.0, softmax(np.log(p) + move)) <= best + 1e-5


def test_classes_without_overlap_have_counted_parts_and_no_spread():
    counts = np.array([30, 0, 70])
    p, expected, spreads, _ = explained(np.maximum(np.eye(3), 1e-12), counts, 1.0)
    np.testing.assert_allclose(p, [31 / 103, 1 / 103, 71 / 103])
    np.testing.assert_allclose(expected, [0.3, 0, 0.7], atol=1e-9)
    assert spreads[0].max() < 1e-6


def test_classes_without_difference_are_spread_like_the_prior():
    p, _, spreads, covariances = explained(np.ones((4, 2)), np.full(4, 25), 1.0)
    np.testing.assert_allclose(p, 0.5)
    assert np.sqrt(spreads[0, 0]) == pytest.approx(0.35, abs=0.1)  # the uniform distribution has 0.29
    assert covariances[0, 1] == pytest.approx(-covariances[0, 0])


def test_the_spread_is_that_of_simulated_bags_and_labels():
    rng = np.random.default_rng(0)
    table = np.array([[0.6, 0.1], [0.3, 0.3], [0.1, 0.6]])
    truth, n_rows, n_labels = np.array([0.4, 0.6]), 300, 200
    off = []
    for _ in range(2000):
        labels = rng.binomial(n_rows, truth[0])
        bag = rng.multinomial(labels, table[:, 0]) + rng.multinomial(n_rows - labels, table[:, 1])
        learned = np.stack([rng.multinomial(n_labels, column) for column in table.T], axis=1) / n_labels
        _, expected, spreads, _ = explained(learned, bag, 0.01, 1 / n_labels)
        off.append((expected[0] - labels / n_rows, spreads[:, 0].sum()))
    errors, variances = np.array(off).T
    assert errors.std() == pytest.approx(np.sqrt(variances.mean()), rel=0.06)
