"""The posterior of the mix of a bag: checked by enumeration, by Gibbs sampling and by laws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from histnetq.quantifiers.classical import mix_posterior
from histnetq.quantifiers.classical.emq import maximise_likelihood
from histnetq.quantifiers.classical.mix_posterior import draw_mixes, fit_prior
from histnetq.uncertainty.bayes import draw_counts


def bag_of(n: int, n_classes: int, seed: int = 0, sharpness: float = 0.6) -> np.ndarray:
    """Posteriors of the rows of one bag, for uniform training prevalences."""
    return np.random.default_rng(seed).dirichlet(np.full(n_classes, sharpness), n)


def drawn(p: np.ndarray, prior: np.ndarray, offsets=None, weights=None, index=None):
    """All draws of bags of the rows p, joined: mixes, prevalences and weights."""
    n_classes = p.shape[1]
    index = np.arange(len(p)) if index is None else index
    offsets = np.array([0, len(index)]) if offsets is None else offsets
    modes = maximise_likelihood(
        p, np.full(n_classes, 1 / n_classes), index, offsets, weights, 1e-9, 10_000, added=prior
    )
    found = list(draw_mixes(p * n_classes, modes, prior, index, offsets, weights))
    return tuple(np.concatenate([getattr(d, name) for d in found]) for name in ("mixes", "prevalences", "weights"))


def mean_of(mixes, _, weights):
    return np.einsum("bm,bmj->bj", weights, mixes)


class Known:
    """Likelihoods that are known, several times."""

    def of(self, posteriors):
        return (posteriors for _ in range(2000))


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.4, 3.0), (20.0, 5.0)])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_means_of_two_classes_are_exact(prior, n):
    p, a = bag_of(n, 2, seed=n), np.array(prior)
    labels = np.array(list(product((0, 1), repeat=n)))
    counts = np.stack([(labels == 0).sum(1), (labels == 1).sum(1)], 1)
    logs = gammaln(counts + a).sum(1) + np.log(p[np.arange(n), labels]).sum(1)
    w = np.exp(logs - logs.max())
    np.testing.assert_allclose(mean_of(*drawn(p, a))[0], w @ counts / w.sum() / n, atol=2e-3)


@pytest.mark.parametrize(("n", "n_classes", "error"), [(30, 3, 0.02), (300, 3, 0.005), (300, 6, 0.01)])
def test_means_of_more_classes_are_near_those_of_gibbs_sampling(n, n_classes, error):
    p, prior = bag_of(n, n_classes, seed=n), np.ones(n_classes)
    counts = draw_counts(Known(), p, np.arange(n), np.array([0, n]), np.ones(n), prior, 0)
    np.testing.assert_allclose(mean_of(*drawn(p, prior))[0], counts.mean(1)[0] / n, atol=error)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_large_bags_continue_small_ones(n_classes, monkeypatch):
    p, prior = bag_of(3000, n_classes), np.ones(n_classes)
    followed = drawn(p, prior)
    monkeypatch.setattr(mix_posterior, "_LARGEST", 10)
    straight = drawn(p, prior)
    np.testing.assert_allclose(mean_of(*straight), mean_of(*followed), atol=1e-3)
    deviation = [np.sqrt(np.einsum("bm,bmj->bj", w, (m - mean_of(m, q, w)[:, None]) ** 2)) for m, q, w in
                 (straight, followed)]  # fmt: skip
    np.testing.assert_allclose(deviation[0], deviation[1], rtol=0.1)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_laws(n_classes, monkeypatch):
    p, prior = bag_of(60, n_classes, seed=3), np.linspace(0.5, 2, n_classes)
    offsets = np.array([0, 1, 20, 60])
    mixes, prevalences, weights = drawn(p, prior, offsets)
    for points in (mixes, prevalences):
        assert (points >= 0).all()
        np.testing.assert_allclose(points.sum(2), 1)
    np.testing.assert_allclose(weights.sum(1), 1)
    means = mean_of(mixes, prevalences, weights)
    order = np.random.default_rng(0).permutation(n_classes)
    np.testing.assert_allclose(mean_of(*drawn(p[:, order], prior[order], offsets)), means[:, order], atol=1e-7)
    monkeypatch.setattr(mix_posterior, "_AT_ONCE", 1)
    np.testing.assert_allclose(mean_of(*drawn(p, prior, offsets)), means, atol=1e-9)
    counts = np.random.default_rng(1).integers(1, 4, 60)
    copies = drawn(p, prior, np.r_[0, counts.cumsum()][offsets], index=np.repeat(np.arange(60), counts))
    np.testing.assert_allclose(mean_of(*drawn(p, prior, offsets, counts)), mean_of(*copies), atol=1e-7)


def test_rows_without_information_leave_the_prior():
    for n_classes in (2, 3):
        prior = np.arange(1.0, n_classes + 1)
        _, p, w = drawn(np.full((50, n_classes), 1 / n_classes), prior)
        np.testing.assert_allclose(np.einsum("bm,bmj->bj", w, p)[0], prior / prior.sum(), atol=0.04)


def test_certain_rows_are_counted():
    certain = np.eye(3)[[0, 0, 1, 0]]
    np.testing.assert_allclose(mean_of(*drawn(certain, np.ones(3)))[0], [0.75, 0.25, 0], atol=1e-9)


def test_the_fitted_prior():
    true = np.array([3.0, 1.0, 6.0])
    logs = np.log(np.random.default_rng(0).dirichlet(true, 20_000)).mean(0)
    np.testing.assert_allclose(fit_prior(logs, 20_000), true, rtol=0.05)
    flat = digamma(1.0) - digamma(3.0)
    np.testing.assert_allclose(fit_prior(np.full(3, flat), 5), np.ones(3), atol=1e-6)
    same = np.log([0.2, 0.3, 0.5])
    assert 1 < fit_prior(same, 1).sum() < fit_prior(same, 10).sum() < fit_prior(same, 1000).sum()
