import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histnetq import nn
from histnetq.kernels import using
from histnetq.kernels.plain import bag_of_entry
from histnetq.nn import HardHistogram, Max, Mean, Median, MergeablePooling, Pooling, SoftHistogram, likelihood, pooling
from histnetq.nn.pooling import bag_totals
from tests.conftest import exactly

# The fixtures hold for all examples of a test, so they need not be set up for each.
law = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)
many_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)
# A pooling of the two tables is here already; what it needs to be made is a line of OPTIONS.
OTHERS = {"attention": nn.SetAttention, "lstm": nn.SortedLSTM, "likelihood": nn.Likelihood, "gaussians": nn.Gaussians}
POOLINGS = {**nn.POOLINGS, **nn.BINS, **OTHERS}
MERGEABLE = [name for name, kind in POOLINGS.items() if issubclass(kind, MergeablePooling)]
OPTIONS = {
    **{kind: {"n_bins": 5} for kind in nn.BINS},
    "sigmoid": {"n_bins": 5, "gamma": 50.0},
    "attention": {"width": 6, "hidden": 8, "n_inducing": 3, "n_heads": 2},
    "lstm": {"hidden": 4, "n_steps": 7},
    "gaussians": {"n_gaussians": 5},
}
every_pooling = pytest.mark.parametrize("name", POOLINGS)
every_mergeable = pytest.mark.parametrize("name", MERGEABLE)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
N_FEATURES = 3


def make(name, dtype=torch.float32):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return POOLINGS[name](N_FEATURES, **OPTIONS.get(name, {})).to(dtype)


def draw_rows(n_rows, dtype, seed):
    return torch.randn((n_rows, N_FEATURES), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def offsets_of(sizes):
    return torch.tensor([0, *itertools.accumulate(sizes)])


def same(got, want):
    assert got.dtype == want.dtype
    return torch.allclose(got, want, rtol=0, atol=1e-6)


@every_dtype
@every_pooling
@law
@given(seed=seeds, sizes=many_sizes)
def test_order_of_items_is_irrelevant(name, dtype, seed, sizes):
    layer, rows, offsets = make(name, dtype), draw_rows(sum(sizes), dtype, seed), offsets_of(sizes)
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([a + torch.randperm(b - a, generator=generator) for a, b in itertools.pairwise(offsets.tolist())])
    weights = torch.randint(1, 5, (len(rows),), generator=generator)
    assert same(layer(rows[order], offsets), layer(rows, offsets))
    assert same(layer(rows[order], offsets, weights[order]), layer(rows, offsets, weights))


@every_dtype
@every_pooling
@pytest.mark.parametrize("weighting", [None, torch.int64, torch.float64], ids=str)
def test_ragged_bags_equal_each_bag_alone(name, dtype, weighting):
    sizes = (1, 2, 37, 5000, 40, 1, 3, 4)
    layer, rows, offsets = make(name, dtype), draw_rows(sum(sizes), dtype, 0), offsets_of(sizes)
    weights = None if weighting is None else torch.arange(len(rows)).remainder(7).add(1).to(weighting)
    together = layer(rows, offsets, weights)
    assert together.shape == (len(sizes), layer.width)
    assert together.dtype == dtype
    for i, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
        w = None if weights is None else weights[start:stop]
        assert same(together[[i]], layer(rows[start:stop], torch.tensor([0, stop - start]), w))


@every_dtype
@every_pooling
@law
@given(seed=seeds, sizes=many_sizes, kind=st.sampled_from([torch.int64, torch.float64]))
def test_a_weight_equals_as_many_copies(name, dtype, seed, sizes, kind):
    layer, rows, offsets = make(name, dtype), draw_rows(sum(sizes), dtype, seed), offsets_of(sizes)
    counts = torch.randint(1, 6, (len(rows),), generator=torch.Generator().manual_seed(seed))
    copies = torch.repeat_interleave(torch.arange(len(rows)), counts)
    bounds = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])[offsets]
    assert same(layer(rows, offsets, counts.to(kind)), layer(rows[copies], bounds))
    assert same(layer(rows, offsets, counts.to(kind)), layer(rows, bounds, index=copies))


@every_dtype
@every_pooling
@law
@given(seed=seeds, sizes=many_sizes, kind=st.sampled_from([torch.int64, torch.float64]))
def test_no_weights_equal_ones(name, dtype, seed, sizes, kind):
    layer, rows, offsets = make(name, dtype), draw_rows(sum(sizes), dtype, seed), offsets_of(sizes)
    plain, ones = layer(rows, offsets), layer(rows, offsets, torch.ones(len(rows), dtype=kind))
    assert torch.equal(plain, ones)


@every_pooling
@law
@given(seed=seeds, sizes=many_sizes, scale=st.sampled_from([0.1, 0.3, 1 / 3, 1e-3, 1e6]))
def test_scale_of_weights_is_irrelevant(name, seed, sizes, scale):
    layer, rows, offsets = make(name, torch.float64), draw_rows(sum(sizes), torch.float64, seed), offsets_of(sizes)
    counts = torch.randint(1, 6, (len(rows),), generator=torch.Generator().manual_seed(seed))
    assert same(layer(rows, offsets, counts.double() * scale), layer(rows, offsets, counts))


@every_dtype
@every_pooling
@law
@given(seed=seeds, sizes=many_sizes, n_rows=st.integers(1, 20))
def test_an_index_gathers_rows(name, dtype, seed, sizes, n_rows):
    layer, offsets = make(name, dtype), offsets_of(sizes)
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(n_rows, (sum(sizes),), generator=generator)
    upstream = torch.randn((len(sizes), layer.width), generator=generator, dtype=dtype)
    results = []
    for gather in (False, True):
        rows = draw_rows(n_rows, dtype, seed).requires_grad_()
        out = layer(rows[index], offsets) if gather else layer(rows, offsets, index=index)
        out.backward(upstream)
        results.append((out, rows.grad))
    (out, gradient), (gathered_out, gathered_gradient) = results
    assert same(out, gathered_out)
    assert float((gradient - gathered_gradient).abs().max()) <= 1e-5 * float(gathered_gradient.abs().max()) + 1e-9


@every_dtype
@every_pooling
@pytest.mark.parametrize("weights", [None, torch.arange(1, 51)], ids=["plain", "weighted"])
def test_gradients_reach_rows_and_parameters(name, dtype, weights):
    layer, rows = make(name, dtype), draw_rows(50, dtype, 1).requires_grad_()
    out = layer(rows, offsets_of([1, 30, 19]), weights)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=dtype))
    gradients = {"rows": rows.grad, **{key: parameter.grad for key, parameter in layer.named_parameters()}}
    # A softmax forgets what is added to all keys alike.
    for key in [key for key in gradients if key.endswith("key.bias")]:
        assert gradients.pop(key).abs().max() < 1e-6
    for key, gradient in gradients.items():
        assert gradient is not None, key
        assert gradient.isfinite().all(), key
        assert (gradient != 0).any(), key


@every_mergeable
@law
@given(seed=seeds, sizes=many_sizes, n_pieces=st.integers(1, 5), weighted=st.booleans())
def test_merged_pieces_equal_the_whole(name, seed, sizes, n_pieces, weighted):
    layer, rows, offsets = make(name), draw_rows(sum(sizes), torch.float32, seed), offsets_of(sizes)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(1, 9, (len(rows),), generator=generator) if weighted else None
    piece_of = torch.randint(n_pieces, (len(rows),), generator=generator)
    bag, states = bag_of_entry(offsets), []
    for piece in torch.randperm(n_pieces, generator=generator):
        index = (piece_of == piece).nonzero().squeeze(1)  # in the order of bags, some of which may be empty
        bounds = offsets_of(torch.bincount(bag[index], minlength=len(sizes)).tolist())
        states.append(layer.partial(rows, bounds, None if weights is None else weights[index], index))
    while len(states) > 1:
        i, j = torch.randperm(len(states), generator=generator)[:2].tolist()
        merged = layer.merge(states[i], states[j])
        states = [state for k, state in enumerate(states) if k not in (i, j)] + [merged]
    whole = layer.partial(rows, offsets, weights)
    assert torch.equal(states[0].totals, whole.totals)
    assert same(states[0].values.double(), whole.values.double())
    assert same(layer.finish(states[0]).float(), layer(rows, offsets, weights))
    if name == "hard":
        assert states[0].values.dtype == torch.int64
        assert torch.equal(states[0].values, whole.values)
        assert torch.equal(layer.finish(states[0]).float(), layer(rows, offsets, weights))


@every_pooling
@pytest.mark.parametrize("kernels", ["plain", "compiled"])
def test_no_bags_give_no_results(name, kernels):
    layer, nothing = make(name), torch.zeros(0, dtype=torch.long)
    with using(kernels):
        assert layer(torch.zeros(0, 3), torch.tensor([0])).shape == (0, layer.width)
        if isinstance(layer, MergeablePooling):
            state = layer.partial(torch.zeros(0, 3), torch.tensor([0]), index=nothing)
            assert layer.finish(state).shape == (0, layer.width)


@pytest.mark.parametrize("kernels", ["plain", "compiled"])
def test_hard_counts_are_exact_beyond_single_precision(kernels):
    layer, offsets = HardHistogram(1, n_bins=2, squash=None), torch.tensor([0, 3])
    rows = torch.tensor([[0.1], [0.2], [0.7]])
    with using(kernels):
        state = layer.partial(rows, offsets, torch.tensor([2**25, 1, 2**40 + 1]))
        state = layer.merge(state, layer.partial(rows, offsets, torch.tensor([1, 1, 2**40])))
        assert layer(rows, offsets, torch.tensor([2**25, 1, 2**25])).tolist() == [pytest.approx([0.5, 0.5])]
    assert state.values.dtype == torch.int64
    assert state.values.tolist() == [[[2**25 + 3, 2**41 + 1]]]
    assert state.totals.tolist() == [2**41 + 2**25 + 4]


@every_dtype
@law
@given(seed=seeds, sizes=many_sizes)
def test_median_is_that_of_torch_and_learns_through_the_chosen_row(dtype, seed, sizes):
    rows, offsets = draw_rows(sum(sizes), dtype, seed).requires_grad_(), offsets_of(sizes)
    out = Median(N_FEATURES)(rows, offsets)
    found = [rows[a:b].median(dim=0) for a, b in itertools.pairwise(offsets.tolist())]
    assert torch.equal(out, torch.stack([median.values for median in found]))
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    out.backward(upstream)
    chosen = torch.stack([median.indices for median in found]) + offsets[:-1, None]
    assert torch.equal(rows.grad, torch.zeros_like(rows).scatter(0, chosen, upstream))


@pytest.mark.parametrize("size", [1, 4, 5])
def test_median_of_equal_values_and_of_nan_is_the_same_for_bags_of_one_size_and_of_several(size):
    rows = torch.randint(0, 3, (6 * size + 1, N_FEATURES), generator=torch.Generator().manual_seed(size)).double()
    rows[:size, 0] = float("nan")
    found = []
    for last in (6 * size, 6 * size + 1):  # the last bag of the second is larger by one row
        leaf = rows[:last].clone().requires_grad_()
        out = Median(N_FEATURES)(leaf, torch.tensor([*range(0, 6 * size, size), last]))[:-1]
        out.sum().backward()
        found.append((out.detach(), leaf.grad[: 5 * size]))
    torch.testing.assert_close(found[0], found[1], equal_nan=True, rtol=0, atol=0)
    assert found[0][0][0, 0].isnan()


@law
@given(seed=seeds, sizes=many_sizes)
def test_median_in_chunks_of_features_is_the_same(monkeypatch, seed, sizes):
    rows, offsets = draw_rows(sum(sizes), torch.float32, seed), offsets_of(sizes)
    weights = torch.randint(1, 5, (len(rows),), generator=torch.Generator().manual_seed(seed))
    whole = Median(N_FEATURES)(rows, offsets, weights)
    with monkeypatch.context() as patch:
        patch.setattr(pooling, "_SORT_CHUNK", 1)
        assert torch.equal(Median(N_FEATURES)(rows, offsets, weights), whole)


def test_weighted_median_by_hand():
    rows, offsets = torch.tensor([[1.0], [2.0], [3.0], [5.0], [4.0]]), torch.tensor([0, 3, 5])
    assert Median(1)(rows, offsets).tolist() == [[2.0], [4.0]]
    assert Median(1)(rows, offsets, torch.tensor([2, 1, 1, 3, 2])).tolist() == [[1.0], [5.0]]
    assert Median(1)(rows, offsets, torch.tensor([0.2, 0.1, 0.4, 0.5, 0.5], dtype=torch.float64)).tolist() == [
        [3.0],
        [4.0],
    ]


def test_weighted_median_is_exact_beyond_single_precision():
    rows, offsets = torch.tensor([[1.0], [2.0], [3.0], [1.0], [2.0]]), torch.tensor([0, 3, 5])
    assert Median(1)(rows, offsets, torch.tensor([2**26, 1, 2**26, 5, 5])).tolist() == [[2.0], [1.0]]


def test_mean_and_max_by_hand():
    rows, offsets = torch.tensor([[1.0, -1.0], [3.0, -5.0], [5.0, 0.0]]), torch.tensor([0, 2, 3])
    assert Mean(2)(rows, offsets).tolist() == [[2.0, -3.0], [5.0, 0.0]]
    assert Mean(2)(rows, offsets, torch.tensor([3, 1, 7])).tolist() == [[1.5, -2.0], [5.0, 0.0]]
    assert Max(2)(rows, offsets).tolist() == [[3.0, -1.0], [5.0, 0.0]]


def test_max_of_an_empty_piece_loses_to_any_value():
    rows, index = torch.tensor([[-7.0]]), torch.tensor([0])
    layer = Max(1)
    state = layer.partial(rows, torch.tensor([0, 0, 1]), index=index)
    assert state.values.tolist() == [[-torch.inf], [-7.0]]
    other = layer.partial(rows, torch.tensor([0, 1, 1]), index=index)
    assert layer.finish(layer.merge(state, other)).tolist() == [[-7.0], [-7.0]]


def test_totals_and_bags_of_entries():
    offsets = torch.tensor([0, 2, 2, 5])
    assert bag_of_entry(offsets).tolist() == [0, 0, 2, 2, 2]
    assert bag_totals(offsets, None).tolist() == [2.0, 0.0, 3.0]
    assert bag_totals(offsets, torch.tensor([1, 2, 3, 4, 2**40])).tolist() == [3.0, 0.0, 7.0 + 2**40]
    assert bag_totals(offsets, None).dtype == torch.float64


@every_pooling
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 3, 1)])
def test_wrong_rows_are_named(name, shape):
    with pytest.raises(ValueError, match=exactly(f"rows: expected shape (n_rows, 3), got {shape}.")):
        make(name)(torch.zeros(shape), torch.tensor([0, 4]))


@every_pooling
def test_wrong_weights_are_named(name):
    message = "weights: expected one per entry, shape (4,), got (3,)."
    with pytest.raises(ValueError, match=exactly(message)):
        make(name)(torch.zeros(4, 3), torch.tensor([0, 4]), torch.ones(3))
    message = "weights: expected one per entry, shape (2,), got (4,)."
    with pytest.raises(ValueError, match=exactly(message)):
        make(name)(torch.zeros(4, 3), torch.tensor([0, 2]), torch.ones(4), torch.tensor([0, 1]))


@every_pooling
@pytest.mark.parametrize("kernels", ["plain", "compiled"])
def test_a_step_checks_the_entries_once(name, kernels, monkeypatch):
    calls = []

    def count(*args, **options):
        calls.append(name)
        return check(*args, **options)

    check = pooling.check_entries
    for module in (pooling, likelihood):
        monkeypatch.setattr(module, "check_entries", count)
    rows = draw_rows(4, torch.float32, 0).requires_grad_()
    with using(kernels):
        make(name)(rows, torch.tensor([0, 3, 5]), index=torch.tensor([0, 1, 2, 3, 0])).sum().backward()
    assert len(calls) == 1


@every_pooling
@pytest.mark.parametrize(("index", "told"), [([0, 4], "0 to 4"), ([-1, 1], "-1 to 1")])
def test_rows_that_are_not_there_are_named(name, index, told):
    with pytest.raises(ValueError, match=exactly(f"index: expected numbers of the 4 rows, got {told}.")):
        make(name)(torch.zeros(4, 3), torch.tensor([0, 2]), index=torch.tensor(index))


@every_mergeable
def test_partial_states_refuse_offsets_that_fall(name):
    message = "offsets: expected to rise from 0 to the number of entries (4), got [0 3 2 4]."
    with pytest.raises(ValueError, match=exactly(message)):
        make(name).partial(torch.zeros(4, 3), torch.tensor([0, 3, 2, 4]))


def test_mergeable_poolings_are_those_that_say_so():
    assert set(MERGEABLE) == {"mean", "max", "gaussians", *nn.BINS}


def test_bases_leave_the_work_to_subclasses():
    rows, offsets = torch.zeros(2, 1), torch.tensor([0, 2])
    with pytest.raises(NotImplementedError):
        Pooling(1, 1)(rows, offsets)
    with pytest.raises(NotImplementedError):
        MergeablePooling(1, 1).partial(rows, offsets)


@pytest.mark.parametrize("kind", [Mean, Max, HardHistogram, SoftHistogram])
def test_partial_states_refuse_rows_of_another_width(kind):
    with pytest.raises(ValueError, match=r"rows: expected shape \(n_rows, 3\), got \(5, 6\)"):
        kind(3).partial(torch.rand(5, 6), torch.tensor([0, 5]))


def test_narrow_counts_do_not_overflow():
    layer = HardHistogram(1, 2, squash=None)
    rows, counts = torch.tensor([[0.1], [0.2], [0.9]]), torch.tensor([200, 100, 50], dtype=torch.uint8)
    wide = layer(rows, torch.tensor([0, 3]), counts.long())
    assert torch.equal(layer(rows, torch.tensor([0, 3]), counts), wide)


def test_the_mean_of_a_large_bag_is_exact():
    rows = 100 + torch.rand(500_000, 1, generator=torch.Generator().manual_seed(0))
    exact = rows.double().mean()
    assert abs(float(Mean(1)(rows, torch.tensor([0, 500_000]))) - exact) < 1e-5 * exact


def test_layers_say_that_they_take_tensors():
    with pytest.raises(TypeError, match=r"rows, offsets: expected tensors, got Tensor and list; use torch\.as_tensor"):
        Mean(1)(torch.zeros(2, 1), [0, 2])
