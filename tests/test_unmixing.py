"""The layers of a head that unmixes, and histograms of many bags of the same rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from histnetq.nn import BINS, LogOdds, Unmixing

CAP = -np.log(np.expm1(1e-7))  # log-odds above are taken for this


def plain_odds(scores: torch.Tensor) -> torch.Tensor:
    """The score of a class minus the logarithm of the sum of all others' exponentials."""
    others = [scores[:, [j for j in range(scores.shape[1]) if j != c]] for c in range(scores.shape[1])]
    return scores - torch.stack([o.logsumexp(1) for o in others], 1)


def random_scores(n_rows: int, n_classes: int, spread: float, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(scale=spread, size=(n_rows, n_classes)))


@pytest.mark.parametrize("n_classes", [2, 3, 5, 28])
@pytest.mark.parametrize("spread", [0.1, 3.0, 50.0])
def test_log_odds_are_the_plain_formula(n_classes, spread):
    layer, scores = LogOdds(n_classes).double(), random_scores(50, n_classes, spread)
    expected = plain_odds(scores)
    expected = expected[:, 1:] if n_classes == 2 else expected.clamp(max=CAP)
    torch.testing.assert_close(layer(scores), expected, rtol=1e-7, atol=1e-9)
    layer.get_buffer("center").fill_(0.5)
    layer.get_buffer("scale").fill_(2.0)
    torch.testing.assert_close(layer(scores), (expected - 0.5) / 2, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n_classes", [1, 2, 3, 28])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_of_extreme_scores_and_their_gradients_are_finite(n_classes, dtype):
    scores = (50.0 * random_scores(40, n_classes, 1.0).sign()).to(dtype)
    scores[:n_classes] = 100.0 * torch.eye(n_classes) - 50.0
    scores[-1] = 0.0
    scores.requires_grad_()
    odds = LogOdds(n_classes).to(dtype)(scores)
    assert odds.shape == (40, 1 if n_classes <= 2 else n_classes)
    odds.square().sum().backward()
    assert odds.isfinite().all()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_gradients_of_log_odds(n_classes):
    layer = LogOdds(n_classes).double()
    assert torch.autograd.gradcheck(layer, random_scores(6, n_classes, 2.0).requires_grad_())


def test_log_odds_of_a_row_do_not_depend_on_others():
    layer, scores = LogOdds(5), random_scores(37, 5, 3.0).float()
    whole = layer(scores)
    for step in (1, 2, 9):
        assert torch.equal(torch.cat([layer(part) for part in scores.split(step)]), whole)


def random_templates(n_features: int, n_bins: int, n_classes: int, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    drawn = rng.dirichlet(np.ones(n_bins), size=(n_features, n_classes))
    return torch.from_numpy(0.9 * drawn.transpose(0, 2, 1) + 0.1 / n_bins)


def mixtures(templates: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return torch.einsum("fbc,nc->nfb", templates, p).flatten(1)


def plain_head(templates: torch.Tensor, size: float = 1e6, hidden: tuple[int, ...] = ()) -> Unmixing:
    """A head that neither pseudo-counts nor the threshold pull much at."""
    head = Unmixing(*templates.shape, size=size, hidden=hidden).double()
    head.set_templates(templates)
    return head


def test_a_mixture_by_hand():
    # 0.7 · (0.9, 0.1) + 0.3 · (0.2, 0.8) = (0.69, 0.31)
    head = plain_head(torch.tensor([[[0.9, 0.2], [0.1, 0.8]]], dtype=torch.float64))
    p = head(torch.tensor([[0.69, 0.31], [0.9, 0.1]], dtype=torch.float64)).exp()
    torch.testing.assert_close(p[0].tolist(), [0.7, 0.3], atol=1e-4, rtol=0)
    assert p[1, 0] > 0.999


@given(
    n_features=st.integers(1, 4), n_classes=st.integers(2, 5), seed=st.integers(0, 10**6),
    hidden=st.sampled_from([(), (4,)]),
)  # fmt: skip
def test_a_mixture_of_known_templates_is_found(n_features, n_classes, seed, hidden):
    templates = random_templates(n_features, 12, n_classes, seed)
    p = torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(n_classes, 5.0), size=3))
    head = plain_head(templates, hidden=hidden)
    found = head(mixtures(templates, p))
    torch.testing.assert_close(found.exp().sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.exp(), p, atol=2e-3, rtol=0)


def test_classes_in_another_order_give_estimates_in_that_order():
    templates, order = random_templates(3, 8, 4), [2, 0, 3, 1]
    histograms = mixtures(templates, torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(4), size=5)))
    first, second = (plain_head(t, 50.0)(histograms) for t in (templates, templates[:, :, order]))
    torch.testing.assert_close(second, first[:, order])


def test_features_in_another_order_change_nothing():
    templates, order = random_templates(3, 8, 4), [2, 0, 1]
    p = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(4), size=5))
    first, second = (plain_head(t, 50.0)(mixtures(t, p) ** 1.1) for t in (templates, templates[order]))
    torch.testing.assert_close(second, first)


def test_the_factor_is_1_at_first():
    templates = random_templates(2, 6, 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        heads = [plain_head(templates, 100.0, hidden) for hidden in ((), (16,))]
    histograms = mixtures(templates, torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), size=5)))
    heads[1].set_usual(histograms, 100.0)
    torch.testing.assert_close(heads[1](histograms), heads[0](histograms), rtol=0, atol=0)


def test_usual_bags_change_the_size_and_what_the_factor_reads():
    templates = random_templates(2, 6, 3)
    histograms = mixtures(templates, torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), size=50)))
    head = plain_head(templates, 100.0, (16,))
    head.set_usual(histograms, 7.0)
    assert head.get_buffer("size") == 7.0
    sums = (head.cumulative(histograms) - head.get_buffer("mean")) / head.get_buffer("spread")
    assert sums.mean(0).abs().max() < 1e-9
    assert sums.abs().max() < 2
    assert sums[:, 5::6].abs().max() < 1e-6, "the last sum of a feature is always the same, and not blown up"


def test_gradients_reach_all_parameters_and_the_histograms():
    templates = random_templates(2, 5, 3)
    histograms = mixtures(templates, torch.from_numpy(np.random.default_rng(1).dirichlet(np.full(3, 5.0), size=4)))
    histograms = (histograms + 0.02 * random_scores(4, 10, 1.0).abs()).requires_grad_()
    head = plain_head(templates, 40.0, (6,))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in head.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    head(histograms).softmax(1).square().sum().backward()
    for name, value in [*head.named_parameters(), ("histograms", histograms)]:
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name
        assert value.grad.abs().max() > 0, name


def test_gradients_are_right():
    templates = random_templates(2, 4, 3)
    p = torch.from_numpy(np.random.default_rng(1).dirichlet(np.full(3, 5.0), size=2))
    histograms = (mixtures(templates, p) * 1.01).requires_grad_()
    head = plain_head(templates, 40.0)
    names = [name for name, _ in head.named_parameters()]

    def call(histograms, *values):
        return torch.func.functional_call(head, dict(zip(names, values, strict=True)), (histograms,))

    assert torch.autograd.gradcheck(call, (histograms, *head.parameters()), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bins_without_rows_do_not_break(dtype):
    head = Unmixing(2, 4, 3).to(dtype)
    histograms = torch.zeros(3, 8, dtype=dtype)
    histograms[1, 0] = 1.0
    histograms[2, [0, 7]] = 1.0
    histograms.requires_grad_()
    found = head(histograms)
    assert found.dtype == dtype
    torch.testing.assert_close(found[0].exp(), torch.full((3,), 1 / 3, dtype=dtype))
    found.square().sum().backward()
    assert found.isfinite().all()
    assert histograms.grad.isfinite().all()


def test_state_round_trip():
    templates = random_templates(2, 6, 3)
    histograms = mixtures(templates, torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(3), size=50)))
    head = plain_head(templates, 100.0, (16,))
    head.set_usual(histograms, 33.0)
    other = Unmixing(2, 6, 3, hidden=(16,)).double()
    other.load_state_dict(head.state_dict())
    assert torch.equal(other(histograms), head(histograms))


@pytest.mark.parametrize("n_features", [1, 3, 5])
def test_before_anything_is_learned_high_features_speak_for_their_classes(n_features):
    n_classes = 2 if n_features == 1 else 3
    head = Unmixing(n_features, 8, n_classes)
    histograms = torch.zeros(n_features, n_features, 8)
    histograms[:, :, 0] = 1.0
    histograms[torch.arange(n_features), torch.arange(n_features)] = torch.eye(8)[7]
    found = head(histograms.flatten(1)).argmax(1)
    if n_features == 5:  # of more features than classes, none has a class of its own
        assert found.shape == (5,)
    else:
        assert found.tolist() == ([1] if n_classes == 2 else [0, 1, 2])


@pytest.mark.parametrize("kind", BINS)
@pytest.mark.parametrize("weighted", [None, torch.int64, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histograms_of_the_same_rows_are_those_of_the_layer(kind, weighted, dtype):
    rng = np.random.default_rng(0)
    layer = BINS[kind](3, 5).to(dtype)
    rows = torch.from_numpy(rng.normal(size=(40, 3))).to(dtype)
    index = torch.from_numpy(rng.integers(40, size=60))
    offsets = torch.tensor([0, 1, 25, 60])
    weights = None if weighted is None else torch.from_numpy(rng.integers(1, 5, size=60)).to(weighted)
    pool = layer.of_rows(rows)
    expected = layer(rows, offsets, weights, index)
    for _ in range(2):  # what was computed once serves again
        found = pool(offsets, index, weights)
        assert not found.requires_grad
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=1e-7)
