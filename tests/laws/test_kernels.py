import itertools
import math
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from histnetq import kernels as kernels_module
from histnetq.kernels import backend, compiled, plain, using
from histnetq.nn import HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram, squashing
from histnetq.nn.histograms import hard_edges
from histnetq.nn.squashing import squashed

# The fixture holds for all examples of a test, so it need not be set up for each.
law = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)
LN = math.log(1.01)
N_BINS = [1, 2, 32, 64, 100]
DTYPES = [torch.float32, torch.float64]
SQUASH = [None, "sigmoid"]
WEIGHTS = [None, "counts", "fractions"]
STYLES = ["partition", "mixed", "duplicates", "outlier"]
SMOOTH = {"soft": SoftHistogram, "rbf": RBFHistogram, "sigmoid": SigmoidHistogram}
every_smooth = pytest.mark.parametrize("kind", SMOOTH)


@pytest.fixture(params=["plain", "compiled"])
def kernels(request):
    with using(request.param):
        yield request.param


@pytest.fixture(params=["plain", "plain in pieces", "compiled", "compiled in pieces"])
def cut_kernels(request, monkeypatch):
    """Each backend as it is, and with the work cut as for large inputs and three threads."""
    if request.param.endswith("pieces"):
        monkeypatch.setattr(plain, "_CHUNK", 7)
        # A multiple of the processor's vectors: torch rounds the sigmoid differently in what is left over.
        monkeypatch.setattr(squashing, "_CHUNK", 96)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1)
        monkeypatch.setattr(compiled, "_WIDEST_BLOCK", 1)
        monkeypatch.setattr(compiled, "run_threads", lambda work, n_threads: work())
    with using(request.param.split()[0]):
        yield request.param


def uniform(shape, generator, low=0.0, high=1.0):
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


def pick(choices, shape, generator):
    return choices[torch.randint(len(choices), shape, generator=generator)]


def nudge(x, generator):
    """Each number as it is, or moved to the number just above or just below."""
    side = torch.randint(3, x.shape, generator=generator)
    up, down = (torch.nextafter(x, torch.full_like(x, end)) for end in (torch.inf, -torch.inf))
    return torch.where(side == 0, x, torch.where(side == 1, up, down))


def draw_bags(n_entries_of_bag, indexed, weighting, generator):
    """Rows, index, offsets and weights: the index repeats and permutes rows, fractions are sums of powers of two."""
    offsets = torch.tensor([0, *itertools.accumulate(n_entries_of_bag)])
    n_entries = int(offsets[-1])
    n_rows = n_entries // 2 + 3 if indexed else n_entries
    index = torch.randint(n_rows, (n_entries,), generator=generator) if indexed else None
    counts = torch.randint(1, 20, (n_entries,), generator=generator)
    weights = {None: None, "counts": counts, "fractions": counts.double() / 8}[weighting]
    return n_rows, index, offsets, weights


def draw_bins(style, n_features, n_bins, generator):
    centers = (torch.arange(n_bins, dtype=torch.float64) + 0.5).div(n_bins).repeat(n_features, 1)
    half_widths = torch.full_like(centers, 0.5 / n_bins)
    if style == "partition":
        return centers, half_widths
    centers = uniform(centers.shape, generator)
    half_widths = uniform(centers.shape, generator, -0.1, 0.3)
    half_widths[uniform(centers.shape, generator) < 0.1] = 0.0
    if style == "duplicates":
        which = torch.randint(2, (n_bins,), generator=generator).clamp(max=n_bins - 1)
        centers, half_widths = centers[:, which], half_widths[:, which]
    if style == "outlier":
        centers[:, n_bins // 2] = 1e6
    return centers, half_widths


def draw_hard(seed, n_bins, dtype, squash, style, sizes=(1, 25, 2, 9), weighting=None, indexed=False, n_features=3):
    """A hard histogram whose bins begin, end or are centred exactly at values, or one number beside."""
    generator = torch.Generator().manual_seed(seed)
    n_rows, index, offsets, weights = draw_bags(sizes, indexed, weighting, generator)
    centers, half_widths = (t.to(dtype) for t in draw_bins(style, n_features, n_bins, generator))
    rows = uniform((n_rows, n_features), generator, -1.5, 2.5).to(dtype)
    rows[:, 0] = pick(torch.tensor([-1e30, -3.0, -0.0, 0.0, 0.5, 1.0, 1e30], dtype=dtype), (n_rows,), generator)
    if squash is None:
        edges = torch.cat([centers - half_widths, centers, centers + half_widths], dim=1)
        for k in range(n_features):
            at_edge = uniform((n_rows,), generator) < 0.7
            rows[at_edge, k] = nudge(pick(edges[k], (int(at_edge.sum()),), generator), generator)
    else:
        values = squashed(rows)
        for k in range(1, n_features):
            touching = uniform((n_bins,), generator) < 0.7
            center, edge = (nudge(pick(values[:, k], (int(touching.sum()),), generator), generator) for _ in range(2))
            centers[k, touching], half_widths[k, touching] = center, (center - edge).abs()
    upstream = torch.randn((len(sizes), n_features, n_bins), generator=generator, dtype=torch.float64).to(dtype)
    return SimpleNamespace(**locals())


def layer_of(problem, cls=HardHistogram, **parameters):
    layer = cls(problem.n_features, problem.n_bins, problem.squash).to(problem.dtype)
    layer.load_state_dict({**layer.state_dict(), **parameters})
    return layer


def run(layer, p):
    """Output and gradients of the rows and of all parameters."""
    rows = p.rows.clone().requires_grad_()
    out = layer(rows, p.offsets, p.weights, p.index)
    out.backward(p.upstream.flatten(1))
    return out.detach(), [rows.grad, *(parameter.grad for parameter in layer.parameters())]


def share_of_entry(p):
    """Bag of each entry, and its share of the weight of the bag."""
    bag = torch.repeat_interleave(p.offsets.diff())
    weights = torch.ones(len(bag), dtype=torch.float64) if p.weights is None else p.weights.double()
    totals = torch.zeros(len(p.offsets) - 1, dtype=torch.float64).index_add(0, bag, weights)
    return bag, weights, totals


def hard_formula(p):
    """The definition, with everything of size entries × features × bins; and the sizes that gradients add up."""
    bag, weights, totals = share_of_entry(p)
    index = torch.arange(len(p.rows)) if p.index is None else p.index
    values = p.rows if p.squash is None else squashed(p.rows)
    v = values[index][:, :, None]
    inside = ((p.centers - p.half_widths <= v) & (v < p.centers + p.half_widths)).double()
    side = (v > p.centers).double() - (v < p.centers).double()
    counts = torch.zeros(p.upstream.shape, dtype=torch.float64)
    counts.index_add_(0, bag, weights[:, None, None] * inside)
    density = (counts / totals[:, None, None]).to(p.dtype).flatten(1)

    pull = LN * (weights / totals[bag])[:, None, None] * p.upstream.double()[bag] * inside
    by_row = torch.zeros(p.rows.shape, dtype=torch.float64).index_add(0, index, -(pull * side).sum(2))
    if p.squash is not None:
        by_row *= (values * (1 - values)).double()
    return density, [by_row, (pull * side).sum(0), pull.sum(0)], pull.abs().sum(0).max()


def assert_near(got, want, tolerance, summed=0.0):
    """Within a fraction of the largest entry, and the rounding of what is summed up, which may cancel in it."""
    assert got.shape == want.shape
    rounding = torch.finfo(got.dtype).eps * float(summed)
    assert float((got.double() - want).abs().max()) <= tolerance * float(want.abs().max()) + rounding + 1e-12


def assert_equals_hard_formula(p):
    out, gradients = run(layer_of(p, centers=p.centers, half_widths=p.half_widths), p)
    density, wanted, summed = hard_formula(p)
    assert out.dtype == p.dtype
    assert torch.equal(out, density)
    for got, want in zip(gradients, wanted, strict=True):
        assert got.dtype == p.dtype
        assert_near(got, want, 1e-6, summed)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_bins", N_BINS)
def test_hard_kernel_equals_the_formula(cut_kernels, n_bins, dtype, squash, style):
    assert_equals_hard_formula(draw_hard(n_bins, n_bins, dtype, squash, style, weighting="counts"))


@law
@given(
    seed=seeds,
    n_bins=st.sampled_from(N_BINS),
    dtype=st.sampled_from(DTYPES),
    squash=st.sampled_from(SQUASH),
    style=st.sampled_from(STYLES),
    sizes=st.lists(st.integers(1, 30), max_size=4).map(lambda sizes: [12, *sizes]),
    weighting=st.sampled_from(WEIGHTS),
    indexed=st.booleans(),
    n_features=st.sampled_from([2, 3, 4, 6]),
)
def test_hard_kernel_equals_the_formula_whatever_the_bags(cut_kernels, **problem):
    assert_equals_hard_formula(draw_hard(**problem))


@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_drawn_problems_touch_every_edge(dtype, squash):
    p = draw_hard(0, 32, dtype, squash, "mixed", sizes=(60,))
    v = (p.rows if squash is None else squashed(p.rows))[:, 1:2]
    low, high = p.centers[1] - p.half_widths[1], p.centers[1] + p.half_widths[1]
    for edge in (low, p.centers[1], high):
        beside = [torch.nextafter(edge, torch.full_like(edge, end)) for end in (-torch.inf, torch.inf)]
        assert all((v == place).any() for place in [edge, *beside])
    assert (p.half_widths < 0).any()
    assert (p.half_widths == 0).any()


def test_drawn_outlier_crowds_the_other_edges_into_one_bucket():
    p = draw_hard(0, 32, torch.float32, None, "outlier")
    edges, _ = hard_edges(p.centers, p.half_widths)
    assert compiled._edge_table(edges.numpy())[3].min() >= 8  # the search written out serves up to 7


@law
@given(seed=seeds, dtype=st.sampled_from(DTYPES))
def test_hard_kernel_takes_any_positive_weights(kernels, seed, dtype):
    p = draw_hard(seed, 8, dtype, None, "mixed", weighting="fractions")
    p.weights = uniform(p.weights.shape, p.generator, 0.01, 5.0)
    out, gradients = run(layer_of(p, centers=p.centers, half_widths=p.half_widths), p)
    density, wanted, summed = hard_formula(p)
    assert torch.allclose(out, density, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-13)
    for got, want in zip(gradients, wanted, strict=True):
        assert_near(got, want, 1e-6, summed)


@law
@given(seed=seeds)
def test_hard_kernel_counts_wide_values_in_narrow_bins(kernels, seed):
    p = draw_hard(seed, 32, torch.float32, None, "mixed", sizes=(40,))
    layer = layer_of(p, centers=p.centers, half_widths=p.half_widths)
    p.rows = p.rows.double() + 1e-10 * torch.randint(-1, 2, p.rows.shape, generator=p.generator)
    low, high = (p.centers - p.half_widths).double(), (p.centers + p.half_widths).double()
    inside = (low <= p.rows[:, :, None]) & (p.rows[:, :, None] < high)
    assert torch.equal(layer(p.rows, p.offsets), inside.double().sum(0).flatten()[None] / 40)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_hard_bins_by_hand(kernels, dtype):
    layer = HardHistogram(1, n_bins=2, squash=None).to(dtype)  # [0, ½) around ¼ and [½, 1) around ¾
    rows = torch.tensor([[0.0], [0.25], [0.5], [1.0]], dtype=dtype, requires_grad=True)
    out = layer(rows, torch.tensor([0, 4]))
    assert out.tolist() == [[0.5, 0.25]]
    out.backward(torch.tensor([[1.0, 10.0]], dtype=dtype))
    assert rows.grad.ravel().tolist() == pytest.approx([LN / 4, 0.0, 10 * LN / 4, 0.0], rel=1e-6)
    assert layer.centers.grad.ravel().tolist() == pytest.approx([-LN / 4, -10 * LN / 4], rel=1e-6)
    assert layer.half_widths.grad.ravel().tolist() == pytest.approx([2 * LN / 4, 10 * LN / 4], rel=1e-6)


@pytest.mark.parametrize(
    ("n_edges", "code_dtype"),
    [(4, torch.uint8), (255, torch.uint8), (256, torch.int16), (32767, torch.int16), (32768, torch.int32)],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_codes_count_the_edges_at_or_below(kernels, n_edges, code_dtype, dtype):
    generator = torch.Generator().manual_seed(n_edges)
    edges = torch.randn((2, n_edges), generator=generator, dtype=dtype).sort(dim=1).values
    values = nudge(edges[:, :: max(1, n_edges // 50)].T.contiguous(), generator)
    values = torch.cat([values, torch.tensor([[-torch.inf, torch.inf], [edges[0, -1], edges[1, 0]]], dtype=dtype)])
    codes = backend(values).hard_codes(values, edges)
    assert codes.dtype == code_dtype
    assert torch.equal(codes.long(), (edges <= values[:, :, None]).sum(2))


def draw_smooth(kind, seed, dtype, squash, weighting=None, indexed=False, sizes=(1, 12, 2, 5), n_features=3, n_bins=5):
    """Smooth bins of all widths, unsorted, with values on their centres, far away and in between."""
    generator = torch.Generator().manual_seed(seed)
    n_rows, index, offsets, weights = draw_bags(sizes, indexed, weighting, generator)
    rows = uniform((n_rows, n_features), generator, -1.5, 2.5).to(dtype)
    centers = uniform((n_features, n_bins), generator).to(dtype)
    if kind == "sigmoid":
        # Elsewhere than on the steep sides of the bins the slopes vanish.
        sides = pick(torch.arange(n_bins + 1) / n_bins, rows.shape, generator)
        rows = (sides + uniform(rows.shape, generator, -0.004, 0.004)).clamp(0.001, 0.999)
        rows = (rows if squash is None else torch.logit(rows)).to(dtype)
    elif squash is None:
        rows[:, 0] = pick(centers[0], (n_rows,), generator)
        rows[uniform(rows.shape, generator) < 0.1] = 1e25
    log_inverse_widths = uniform(centers.shape, generator, -2.0, 5.0).to(dtype)
    if kind != "sigmoid":
        # Some rows stand on the slope of a bin, so that gradients are not all negligible.
        rows[:4] = (centers + 0.5 / log_inverse_widths.exp()).T[torch.randint(n_bins, (4,), generator=generator)]
        rows[:4] = rows[:4] if squash is None else torch.logit(rows[:4].clamp(0.01, 0.99))
    upstream = torch.randn((len(sizes), n_features, n_bins), generator=generator, dtype=torch.float64).to(dtype)
    return SimpleNamespace(**locals())


def smooth_layer(p):
    if p.kind != "sigmoid":
        return layer_of(p, SMOOTH[p.kind], centers=p.centers, log_inverse_widths=p.log_inverse_widths)
    return layer_of(p, SigmoidHistogram)


def smooth_phi(p, v, bins):
    """φ of values (n_entries, n_features) for all bins, in the dtype of the values."""
    gap = v[:, :, None] - bins["centers"]
    if p.kind == "soft":
        return (1 - bins["log_inverse_widths"].exp() * gap.abs()).clamp(min=0)
    if p.kind == "rbf":
        return torch.exp(-((bins["log_inverse_widths"].exp() * gap) ** 2))
    half = bins["half_widths"]
    return torch.sigmoid(1000.0 * (gap + half)) - torch.sigmoid(1000.0 * (gap - half))


def smooth_formula(p, dtype):
    """Densities by broadcasting in this dtype, and the gradients that autograd finds for them."""
    bag, weights, totals = share_of_entry(p)
    layer = smooth_layer(p).to(dtype)
    rows = p.rows.to(dtype).requires_grad_()
    v = rows
    if p.squash is not None:
        # The layer's own rounding, the slope of the sigmoid.
        v = torch.sigmoid(rows)
        v = v + (squashed(rows) - v).detach()
    bins = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
    phi = smooth_phi(p, v if p.index is None else v[p.index], bins)
    terms = (weights / totals[bag])[:, None, None] * phi.double()
    density = torch.zeros(p.upstream.shape, dtype=torch.float64).index_add(0, bag, terms)
    gradients = torch.autograd.grad(density, [rows, *layer.parameters()], p.upstream.double())
    return density.detach().flatten(1), gradients


@every_smooth
@law
@given(
    seed=seeds,
    dtype=st.sampled_from(DTYPES),
    squash=st.sampled_from(SQUASH),
    weighting=st.sampled_from(WEIGHTS),
    indexed=st.booleans(),
    n_bins=st.sampled_from([1, 2, 5, 33]),
)
def test_smooth_kernel_equals_the_formula(cut_kernels, kind, **problem):
    p = draw_smooth(kind, **problem)
    single = p.dtype == torch.float32
    out, gradients = run(smooth_layer(p), p)
    density, _ = smooth_formula(p, p.dtype)
    assert out.dtype == p.dtype
    assert torch.allclose(out.double(), density, rtol=0, atol=1e-6 if single else 1e-12)
    # Single precision knows γ · (v − μ) to some 1e-4 only, hence the slope of a side where γ is 1000.
    _, wanted = smooth_formula(p, torch.float64)
    for got, want in zip(gradients, wanted, strict=True):
        assert_near(got, want, (2e-3 if kind == "sigmoid" else 1e-4) if single else 1e-10)


def draw_off_kinks(p, margin=1e-3):
    """Rows whose values keep away from the centres and ends of all triangles."""
    candidates = uniform((4000, p.n_features), p.generator, 0.02, 0.98)
    gap = (candidates[:, :, None] - p.centers).abs()
    smooth = (gap > margin) & ((gap - (-p.log_inverse_widths).exp()).abs() > margin)
    columns = [candidates[smooth[:, k].all(1), k][: len(p.rows)] for k in range(p.n_features)]
    values = torch.stack(columns, dim=1)
    return values if p.squash is None else torch.logit(values)


@every_smooth
@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize(("weighting", "indexed"), [(None, False), ("counts", True), ("fractions", True)])
def test_smooth_gradients_are_those_of_the_output(kernels, kind, squash, weighting, indexed):
    p = draw_smooth(kind, 3, torch.float64, squash, weighting, indexed, sizes=(1, 4, 2), n_features=2, n_bins=4)
    p.log_inverse_widths = uniform(p.centers.shape, p.generator, 0.0, 3.0)
    layer = smooth_layer(p)
    layer.gamma = 20.0
    names = [name for name, _ in layer.named_parameters()]

    def densities(rows, *parameters):
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (rows, p.offsets, p.weights, p.index))

    inputs = [draw_off_kinks(p), *layer.parameters()]
    assert torch.autograd.gradcheck(densities, [t.detach().requires_grad_() for t in inputs], eps=1e-7, atol=1e-6)


@every_smooth
@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_smooth_gradients_of_extreme_values_are_finite(kernels, kind, squash, dtype):
    layer = SMOOTH[kind](1, n_bins=4, squash=squash).to(dtype)
    extremes = torch.tensor([[0.3], [1e3], [1e20], [1e38], [-1e3], [-1e20], [-1e38]], dtype=dtype, requires_grad=True)
    out = layer(extremes, torch.tensor([0, 7]))
    out.backward(torch.arange(1.0, 5.0, dtype=dtype)[None])
    gradients = [extremes.grad, *(parameter.grad for parameter in layer.parameters())]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (extremes.grad[1:] == 0).all()
    assert out.isfinite().all()


@every_smooth
def test_smooth_kernel_takes_wide_values_in_narrow_bins(kernels, kind):
    p = draw_smooth(kind, 5, torch.float32, None, sizes=(200,), n_bins=32)
    layer = smooth_layer(p)
    p.rows = uniform(p.rows.shape, p.generator, -0.2, 1.2)
    density, _ = smooth_formula(p, torch.float64)
    assert torch.allclose(layer(p.rows, p.offsets), density, rtol=0, atol=1e-6)


@pytest.mark.parametrize("squash", SQUASH)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cls", [HardHistogram, *SMOOTH.values()])
def test_values_that_are_no_numbers_stay_in_their_feature(kernels, cls, dtype, squash):
    rows = torch.rand((9, 2), dtype=dtype, generator=torch.Generator().manual_seed(0))
    clean = cls(2, n_bins=70, squash=squash).to(dtype)(rows, torch.tensor([0, 5, 9])).detach()
    rows[:4, 1] = torch.tensor([torch.nan, torch.inf, -torch.inf, -torch.nan], dtype=dtype)
    layer = cls(2, n_bins=70, squash=squash).to(dtype)
    out = layer(rows.requires_grad_(), torch.tensor([0, 5, 9]))
    out.sum().backward()
    assert out.shape == (2, 140)
    assert torch.equal(out[:, :70], clean[:, :70])
    assert torch.equal(out[1], clean[1])
    assert rows.grad.shape == rows.shape
    assert rows.grad[:, 0].isfinite().all()
    assert all(parameter.grad.shape == (2, 70) for parameter in layer.parameters())


def test_hard_bins_hold_no_nan(kernels):
    rows = torch.tensor([[0.1], [torch.nan], [torch.inf], [-torch.inf]])
    assert HardHistogram(1, n_bins=2, squash=None)(rows, torch.tensor([0, 4])).tolist() == [[0.25, 0.0]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cls", [HardHistogram, *SMOOTH.values()])
def test_bins_that_are_no_numbers_stay_in_their_feature(kernels, cls, dtype, bad):
    rows = torch.rand((9, 3), dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows[0, 1:] = torch.tensor([torch.inf, torch.nan], dtype=dtype)
    layer = cls(3, n_bins=20, squash=None).to(dtype)
    clean = layer(rows, torch.tensor([0, 5, 9])).detach()
    layer.centers.data[1, ::3] = bad
    layer.centers.data[2] = bad
    out = layer(rows.requires_grad_(), torch.tensor([0, 5, 9]))
    out.sum().backward()
    assert out.shape == (2, 60)
    assert torch.equal(out[:, :20], clean[:, :20])
    assert rows.grad.shape == rows.shape


def test_backends_are_chosen_by_dtype_and_by_name():
    with using("compiled"):
        assert backend(torch.zeros(1)) is compiled
        assert backend(torch.zeros(1, dtype=torch.float64)) is compiled
        assert backend(torch.zeros(1, dtype=torch.bfloat16)) is plain
        with using("plain"):
            assert backend(torch.zeros(1)) is plain
        with pytest.raises(ZeroDivisionError), using("plain"):
            raise ZeroDivisionError
        assert backend(torch.zeros(1)) is compiled


def test_plain_kernels_serve_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "histnetq.kernels.compiled", None)  # an import of it then fails
    kernels_module._compiled.cache_clear()
    try:
        with using("compiled"):
            assert backend(torch.zeros(1)) is plain
    finally:
        kernels_module._compiled.cache_clear()


@pytest.mark.parametrize(
    ("offsets", "index", "message"),
    [
        ([0, 2], [0, 10**9], "index: expected numbers of the 3 rows, got 0 to 1000000000."),
        ([0, 2], [-1, 1], "index: expected numbers of the 3 rows, got -1 to 1."),
        ([0, 9], [0, 1], "offsets: expected to rise from 0 to the number of entries (2), got [0 9]."),
        ([0, 2, 1, 2], [0, 1], "offsets: bag 1 is empty, expected at least one row."),
        ([0, 0, 2], [0, 1], "offsets: bag 0 is empty, expected at least one row."),
    ],
)
@pytest.mark.parametrize("kind", [HardHistogram, SoftHistogram])
def test_compiled_kernels_refuse_addresses_outside_the_rows(kind, offsets, index, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(2, 4)(torch.zeros(3, 2), torch.tensor(offsets), index=torch.tensor(index))


def test_unknown_kernels():
    with pytest.raises(ValueError, match="kernels: expected 'plain' or 'compiled', got 'magic'"), using("magic"):
        pass
