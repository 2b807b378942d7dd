import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histnetq.kernels import using
from histnetq.nn import HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram
from histnetq.nn.histograms import hard_edges
from histnetq.nn.squashing import squashed
from tests.conftest import exactly

# The fixture holds for all examples of a test, so it need not be set up for each.
law = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)
bin_numbers = st.one_of(st.integers(1, 40), st.sampled_from([64, 100, 512, 1000]))
ONE_BAG_EACH = torch.arange(4)
LAYERS = [HardHistogram, SoftHistogram, RBFHistogram, SigmoidHistogram]
every_layer = pytest.mark.parametrize("cls", LAYERS)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture(params=["plain", "compiled"])
def kernels(request):
    with using(request.param):
        yield request.param


def neighbours(x):
    return torch.cat([x, *(torch.nextafter(x, torch.full_like(x, end)) for end in (-torch.inf, torch.inf))])


@every_dtype
@law
@given(n_bins=bin_numbers, seed=seeds)
def test_hard_bins_start_as_a_partition(kernels, dtype, n_bins, seed):
    layer = HardHistogram(1, n_bins, squash=None).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    edges = torch.cat([layer.centers[0] - layer.half_widths[0], layer.centers[0] + layer.half_widths[0]]).detach()
    some = edges[torch.randint(2 * n_bins, (20,), generator=generator)]
    values = torch.cat([neighbours(some), torch.rand(20, generator=generator, dtype=dtype)])
    values = values[(values >= 0) & (values < 1)]
    bins = layer(values[:, None], torch.arange(len(values) + 1))
    assert torch.equal(bins.sum(1), torch.ones_like(values))
    assert ((bins.argmax(1) - values * n_bins).abs() <= 1 + 1e-3).all()
    assert layer(torch.tensor([[-1e-9], [1.0]], dtype=dtype), torch.tensor([0, 2])).sum() == 0


@law
@given(n_bins=bin_numbers)
def test_bins_start_evenly_spread(n_bins):
    centers = (torch.arange(n_bins) + 0.5).repeat(2, 1) / n_bins
    for cls in LAYERS:
        assert torch.allclose(cls(2, n_bins).centers, centers, rtol=0, atol=3e-7)
    for cls in (HardHistogram, SigmoidHistogram):
        widths = cls(2, n_bins).half_widths
        assert torch.allclose(widths, torch.full_like(centers, 0.5 / n_bins), rtol=0, atol=3e-7)


def test_overlap_widens_hard_bins(kernels):
    layer = HardHistogram(1, n_bins=32, squash=None, overlap=0.001)
    assert torch.allclose(layer.half_widths, torch.tensor(1 / 64 + 0.001), rtol=0, atol=1e-8)
    values = torch.tensor([[0.5 - 0.0009], [0.5], [0.5 + 0.0009], [0.5 + 0.0011], [-0.0009], [1.0009]])
    assert (layer(values, torch.arange(7)).sum(1)).tolist() == [2, 2, 2, 1, 1, 1]
    values = torch.linspace(0, 1, 20_001)[:-1, None]
    mass = layer(values, torch.tensor([0, 20_000])).sum().item()
    assert mass == pytest.approx(1.062, abs=1e-3)  # 2 · 31 strips of 0.001 count twice


@every_dtype
@law
@given(n_bins=bin_numbers, seed=seeds)
def test_triangles_start_with_sum_one(kernels, dtype, n_bins, seed):
    layer = SoftHistogram(1, n_bins, squash=None).to(dtype)
    inner = torch.rand(50, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    inner = 0.5 / n_bins + (1 - 1 / n_bins) * inner
    values = torch.cat([inner, torch.tensor([0.5 / n_bins, 1 - 0.5 / n_bins, 0.0, 1.0], dtype=dtype)])
    mass = layer(values[:, None], torch.arange(55)).sum(1)
    # The centres and the logarithm of the width are stored in single precision, the slope is n_bins.
    assert torch.allclose(mass[:-2], mass.new_ones(52), rtol=0, atol=1e-6 * max(1, n_bins / 8))
    assert torch.allclose(mass[-2:], mass.new_full((2,), 0.5), rtol=0, atol=1e-6 * max(1, n_bins / 8))


@given(seed=seeds, start=st.integers(0, 300), n=st.integers(1, 700))
def test_a_value_is_squashed_alike_wherever_it_stands(seed, start, n):
    rows = torch.randn(1000, 1, generator=torch.Generator().manual_seed(seed)) * 3
    assert torch.equal(squashed(rows[start : start + n]), squashed(rows)[start : start + n])


@every_layer
@law
@given(seed=seeds)
def test_squashing_is_a_sigmoid_in_front(kernels, cls, seed):
    rows = torch.randn((256, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    offsets = torch.tensor([0, 4, 256])
    leaf, squashed_leaf = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    upstream = torch.randn((2, 15), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inside = cls(3, n_bins=5).double()(leaf, offsets)
    in_front = cls(3, n_bins=5, squash=None).double()(torch.sigmoid(squashed_leaf), offsets)
    inside.backward(upstream)
    in_front.backward(upstream)
    assert torch.equal(inside, in_front)
    assert torch.allclose(leaf.grad, squashed_leaf.grad, rtol=1e-9, atol=1e-12)


@every_layer
def test_features_do_not_mix(kernels, cls):
    rows = torch.randn((20, 3), generator=torch.Generator().manual_seed(0))
    together = cls(3, n_bins=4)(rows, torch.tensor([0, 20]))
    alone = [cls(1, n_bins=4)(rows[:, [k]], torch.tensor([0, 20])) for k in range(3)]
    assert torch.equal(together, torch.cat(alone, dim=1))


@law
@given(seed=seeds, n_bins=st.integers(1, 20))
def test_ranks_tell_which_edges_a_value_has_reached(seed, n_bins):
    generator = torch.Generator().manual_seed(seed)
    centers, half_widths = torch.randint(-4, 5, (2, 2, n_bins), generator=generator).float()
    edges, ranks = hard_edges(centers, half_widths)
    assert edges.shape == (2, 4 * n_bins)
    assert (edges.diff() >= 0).all()
    values = neighbours(torch.arange(-9.0, 10.0))
    reached = (edges <= values[:, None, None]).sum(2)[:, :, None, None] >= ranks
    assert torch.equal(reached[:, :, 0], centers - half_widths <= values[:, None, None])
    assert torch.equal(reached[:, :, 3], centers + half_widths <= values[:, None, None])
    wide = half_widths > 0
    assert torch.equal(reached[:, :, 1][:, wide], (centers <= values[:, None, None])[:, wide])
    assert torch.equal(reached[:, :, 2][:, wide], (centers < values[:, None, None])[:, wide])


def test_soft_bins_by_hand(kernels):
    layer = SoftHistogram(1, n_bins=2, squash=None)  # triangles around ¼ and ¾ with half-base ½
    values = torch.tensor([[0.25], [0.5], [1.0]])
    assert layer(values, ONE_BAG_EACH).tolist() == [[1.0, 0.0], [0.5, 0.5], [0.0, 0.5]]
    assert layer(values, torch.tensor([0, 3])).tolist() == [pytest.approx([0.5, 1 / 3])]
    assert layer(values, torch.tensor([0, 3]), torch.tensor([2, 1, 1])).tolist() == [[0.625, 0.25]]


def test_gaussian_bins_by_hand(kernels):
    layer = RBFHistogram(1, n_bins=2, squash=None)  # around ¼ and ¾, of width ¼
    values = torch.tensor([[0.25], [0.5], [1.0]])
    expected = [[1.0, math.exp(-4)], [math.exp(-1), math.exp(-1)], [math.exp(-9), math.exp(-1)]]
    assert torch.allclose(layer(values, ONE_BAG_EACH), torch.tensor(expected), rtol=1e-6, atol=1e-7)


def test_sigmoid_bins_by_hand(kernels):
    values = torch.tensor([[0.25], [0.5], [1.0]])
    steep = SigmoidHistogram(1, n_bins=2, squash=None)
    assert steep(values, ONE_BAG_EACH).tolist() == [[1.0, 0.0], [0.5, 0.5], [0.0, 0.5]]
    flat = SigmoidHistogram(1, n_bins=2, squash=None, gamma=4.0)
    above_1, above_3 = (1 / (1 + math.exp(t)) for t in (1, 3))  # σ(−1) and σ(−3)
    expected = [1 - 2 * above_1, above_1 - above_3]  # at ¼ the sides at 0, ½ and 1 are 1, −1 and −3 steps of 1/γ away
    assert flat(values[:1], torch.tensor([0, 1])).tolist() == [pytest.approx(expected, abs=1e-6)]


@pytest.mark.parametrize(("cls", "names"), [
    (HardHistogram, ["centers", "half_widths"]),
    (SoftHistogram, ["centers", "log_inverse_widths"]),
    (RBFHistogram, ["centers", "log_inverse_widths"]),
    (SigmoidHistogram, []),
])  # fmt: skip
def test_what_is_learned(cls, names):
    layer = cls(3, n_bins=4)
    assert [name for name, _ in layer.named_parameters()] == names
    assert all(parameter.shape == (3, 4) for parameter in layer.parameters())
    assert "centers" in layer.state_dict()
    assert layer.width == 12


@pytest.mark.parametrize("cls", [SoftHistogram, RBFHistogram])
def test_widths_stay_positive_whatever_is_learned(kernels, cls):
    layer = cls(1, n_bins=1, squash=None)
    torch.nn.init.constant_(layer.log_inverse_widths, -30.0)
    assert layer(torch.tensor([[0.1], [0.9]]), torch.tensor([0, 2])).item() == pytest.approx(1.0)


def test_evaluation_keeps_nothing_for_a_backward_pass(kernels):
    layer = HardHistogram(2, n_bins=4)
    with torch.no_grad():
        assert layer(torch.zeros(3, 2), torch.tensor([0, 3])).grad_fn is None
    assert not layer.requires_grad_(False)(torch.zeros(3, 2), torch.tensor([0, 3])).requires_grad


def test_rows_may_learn_alone(kernels):
    layer = HardHistogram(1, n_bins=2).requires_grad_(False)
    rows = torch.tensor([[-1.0], [2.0]], requires_grad=True)
    layer(rows, torch.tensor([0, 2])).backward(torch.tensor([[1.0, 2.0]]))
    v = torch.sigmoid(rows.detach())
    side = torch.tensor([[-1.0], [-2.0]])  # sigmoid(−1) > ¼ and sigmoid(2) > ¾
    assert torch.allclose(rows.grad, math.log(1.01) / 2 * side * v * (1 - v), rtol=1e-5)
    assert layer.centers.grad is None


def test_repr_names_the_arguments():
    assert repr(HardHistogram(3, n_bins=4)) == "HardHistogram(n_features=3, n_bins=4, squash='sigmoid')"
    assert repr(RBFHistogram(3, 4, squash=None)) == "RBFHistogram(n_features=3, n_bins=4, squash=None)"


@every_layer
def test_wrong_arguments_are_named(cls):
    with pytest.raises(ValueError, match=exactly("n_bins: expected a whole number of at least 1, got 0.")):
        cls(3, n_bins=0)
    with pytest.raises(ValueError, match=exactly("squash: expected 'sigmoid' or None, got 'tanh'.")):
        cls(3, squash="tanh")


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan])
def test_gamma_must_be_positive(gamma):
    with pytest.raises(ValueError, match=exactly(f"gamma: expected a positive number, got {gamma!r}.")):
        SigmoidHistogram(3, gamma=gamma)
