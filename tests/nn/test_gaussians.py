"""The layer of Gaussians equals its formula, forward and backward, whatever the kernels."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.func import functional_call

import histnetq as hq
from histnetq.kernels import compiled, gaussians_compiled, gaussians_plain, using
from histnetq.nn import Gaussians
from tests.conftest import QUICK, exactly, known_bags, labelled

law = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=["plain", "plain in pieces", "compiled", "compiled in pieces"])
def kernels(request, monkeypatch):
    """Each backend as it is, and with the work cut as for large inputs and three threads."""
    if request.param.endswith("pieces"):
        monkeypatch.setattr(gaussians_plain, "_CHUNK", 40)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1)
        monkeypatch.setattr(compiled, "run_threads", lambda work, n_threads: work())
    with using(request.param.split()[0]):
        yield request.param


def draw(seed, dtype, weighting, indexed, n_blocks, n_dims, n_gaussians=4, sizes=(1, 12, 2, 300)):
    """Gaussians of all widths and slants, rows among them, and bags of more and of less than a tile."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *itertools.accumulate(sizes)])
    n_entries = int(offsets[-1])
    n_rows = n_entries // 2 + 1 if indexed else n_entries
    index = torch.randint(n_rows, (n_entries,), generator=generator) if indexed else None
    counts = torch.randint(1, 20, (n_entries,), generator=generator)
    weights = {None: None, "counts": counts, "fractions": counts.double() / 7}[weighting]
    rows = torch.randn((n_rows, n_blocks * n_dims), generator=generator, dtype=torch.float64).to(dtype)
    layer = Gaussians(n_blocks * n_dims, n_blocks, n_gaussians)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.7 * torch.randn(parameter.shape, generator=generator))
    upstream = torch.randn((len(sizes), layer.width), generator=generator, dtype=torch.float64).to(dtype)
    return SimpleNamespace(**{**locals(), "layer": layer.to(dtype)})


def formula(layer, rows, offsets, weights, index):
    """Mean densities of normal distributions over that at their centres, one bag and one Gaussian after the other."""
    entries = torch.sigmoid(rows if index is None else rows[index])
    w = torch.ones(len(entries), dtype=rows.dtype) if weights is None else weights.to(rows.dtype)
    factors, out = layer.factors(), []
    for start, stop in itertools.pairwise(offsets.tolist()):
        share = w[start:stop] / w[start:stop].sum()
        for block, k in itertools.product(range(layer.n_blocks), range(layer.n_gaussians)):
            width = layer.n_features // layer.n_blocks
            v = entries[start:stop, block * width : (block + 1) * width]
            precision = factors[block, k].T @ factors[block, k]
            normal = torch.distributions.MultivariateNormal(layer.centers[block, k], precision_matrix=precision)
            out.append((share * (normal.log_prob(v) - normal.log_prob(normal.mean)).exp()).sum())
    return torch.stack(out).view(len(offsets) - 1, -1)


@law
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    weighting=st.sampled_from([None, "counts", "fractions"]),
    indexed=st.booleans(),
    n_blocks=st.sampled_from([1, 3]),
    n_dims=st.sampled_from([1, 2, 5]),
)
def test_kernels_equal_the_formula(kernels, **problem):
    p = draw(**problem)
    p.rows.requires_grad_()
    inputs = [p.rows, *(q for q in p.layer.parameters() if q.numel())]
    out = p.layer(p.rows, p.offsets, p.weights, p.index)
    found = torch.autograd.grad(out, inputs, p.upstream)
    exact = p.layer.double()
    rows = p.rows.detach().double().requires_grad_()
    wanted = formula(exact, rows, p.offsets, p.weights, p.index)
    single = p.dtype == torch.float32
    assert out.dtype == p.dtype
    torch.testing.assert_close(out.double(), wanted, rtol=0, atol=2e-5 if single else 1e-12)
    inputs = [rows, *(q for q in exact.parameters() if q.numel())]
    for got, want in zip(found, torch.autograd.grad(wanted, inputs, p.upstream.double()), strict=True):
        largest = float(want.abs().max())
        torch.testing.assert_close(got.double(), want, rtol=0, atol=(2e-4 if single else 1e-10) * max(largest, 1e-3))


@pytest.mark.parametrize(("weighting", "indexed"), [(None, False), ("counts", True), ("fractions", True)])
def test_gradients_are_those_of_the_output(kernels, weighting, indexed):
    p = draw(3, torch.float64, weighting, indexed, n_blocks=2, n_dims=2, n_gaussians=2, sizes=(1, 4, 2))
    names = [name for name, _ in p.layer.named_parameters()]

    def likelihoods(rows, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return functional_call(p.layer, given, (rows, p.offsets, p.weights, p.index))

    inputs = [p.rows, *p.layer.parameters()]
    assert torch.autograd.gradcheck(likelihoods, [t.detach().requires_grad_() for t in inputs], eps=1e-6, atol=1e-7)


def test_by_hand(kernels):
    layer = Gaussians(1, n_gaussians=1)
    with torch.no_grad():
        layer.centers.fill_(0.5)
        layer.log_scales.zero_()
    rows = torch.tensor([[0.0], [40.0]])  # squashed to a half and to one
    found = layer(rows, torch.tensor([0, 1, 2])).ravel()
    assert found.tolist() == pytest.approx([1.0, np.exp(-0.125)], rel=1e-6)
    weighted = layer(rows, torch.tensor([0, 2]), torch.tensor([1, 3]))
    assert weighted.item() == pytest.approx((1 + 3 * np.exp(-0.125)) / 4, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_no_number_stays_in_its_block(kernels, dtype):
    layer = Gaussians(4, n_blocks=2, n_gaussians=3).to(dtype)
    rows = torch.randn((9, 4), dtype=dtype, generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 5, 9])
    clean = layer(rows, offsets).detach()
    rows[:2, 3] = torch.tensor([torch.nan, torch.inf], dtype=dtype)
    out = layer(rows.requires_grad_(), offsets)
    out.sum().backward()
    assert torch.equal(out[:, :3], clean[:, :3])
    assert torch.equal(out[1], clean[1])
    assert rows.grad[:, :2].isfinite().all()


@pytest.mark.parametrize("n_rows", [3, 500])
def test_gaussians_are_placed_where_rows_are(n_rows):
    generator = torch.Generator().manual_seed(0)
    rows = 3 + torch.randn((n_rows, 4), generator=generator)
    layer = Gaussians(4, n_blocks=2, n_gaussians=5)
    before = layer(rows, torch.tensor([0, n_rows])).detach()
    layer.place(rows, generator)
    values = torch.sigmoid(rows).view(n_rows, 2, 2)
    for block in range(2):
        gaps = (layer.centers[block, :, None] - values[:, block]).abs().sum(-1)
        assert (gaps.min(1).values < 1e-6).all()
    assert layer(rows, torch.tensor([0, n_rows])).mean() > before.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features": 5, "n_blocks": 2}, "n_features: expected a multiple of n_blocks=2, got 5."),
        ({"n_features": 4, "n_blocks": 0}, "n_blocks: expected a whole number of at least 1, got 0."),
        ({"n_features": 4, "n_gaussians": 1.5}, "n_gaussians: expected a whole number of at least 1, got 1.5."),
    ],
)
def test_wrong_sizes_are_named(options, message):
    with pytest.raises(ValueError, match=exactly(message)):
        Gaussians(**options)


@pytest.mark.parametrize("name", ["n_blocks", "n_gaussians", "n_dims"])
def test_wrong_parameters_are_named(name):
    with pytest.raises(ValueError, match=exactly(f"{name}: expected a whole number of at least 1, got 0.")):
        hq.GMNet(**{name: 0}, training=QUICK).fit(known_bags())


def test_rows_are_encoded_in_training_as_afterwards():
    """Likelihoods of rows that training spread wider would be others."""
    training = dataclasses.replace(QUICK, dropout=0.5)
    q = hq.GMNet(2, 6, 2, encoder=(8,), head=(8,), training=training, random_state=0).fit(*labelled(300))
    rows = torch.from_numpy(labelled(300)[0]).float()
    still, moving = q.network_.eval().encode(rows), q.network_.train().encode(rows)
    assert torch.equal(still, moving)
    assert any(isinstance(layer, torch.nn.Dropout) for layer in q.network_.head.modules())


def test_the_head_reads_likelihoods_at_one_scale():
    q = hq.GMNet(2, 6, 2, encoder=(8,), head=(8,), training=QUICK, random_state=0)
    training = hq.Training(epochs=1, bags_per_epoch=2, lr=1e-12, device="cpu")
    q.set_params(training=training).fit(*labelled(300))
    bags = hq.Bags(labelled(300)[0], np.arange(300), np.arange(301))
    with torch.no_grad():
        rows = torch.from_numpy(bags.rows).float()
        pooled = q.network_.pooling(q.network_.encode(rows), torch.arange(301))
        read = q.network_.head[0](pooled)
    assert read.mean(0).abs().max() < 0.3
    assert read.std(0).sub(1).abs().max() < 0.3


def test_gaussians_learn_at_the_rate_of_bins_and_do_not_decay():
    def placed(**options):
        training = dataclasses.replace(QUICK, epochs=1, weight_decay=0.5, **options)
        q = hq.GMNet(2, 5, 2, encoder=(8,), head=(8,), training=training, random_state=0).fit(known_bags())
        return torch.cat([parameter.flatten() for parameter in q.network_.pooling.parameters()])

    still = placed(bin_lr=0.0)
    assert torch.equal(placed(bin_lr=0.0, lr=0.1), still)
    assert not torch.allclose(placed(bin_lr=1.0, lr=0.1), still)


def test_compiled_kernels_are_those_that_run():
    layer = Gaussians(2)
    calls = []
    original = gaussians_compiled.gaussian_sum
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussians_compiled, "gaussian_sum", lambda *a: calls.append(1) or original(*a))
        with using("compiled"):
            layer(torch.zeros(2, 2), torch.tensor([0, 2]))
    assert calls
