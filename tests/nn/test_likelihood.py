import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histnetq.kernels import backend, plain, using
from histnetq.nn.likelihood import Likelihood, covariance, maximise, standard_errors
from histnetq.nn.pooling import bag_totals
from histnetq.quantifiers.classical.emq import maximise_likelihood
from tests.conftest import exactly

# The fixture holds for all examples of a test, so it need not be set up for each.
law = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
seeds = st.integers(0, 2**32 - 1)
many_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)
class_numbers = st.integers(1, 6)
margins = st.sampled_from([0.0, 1.0, 3.0])
priors = st.sampled_from([0.0, 0.1, 1.0])
number_kinds = st.sampled_from([torch.int64, torch.float64])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture(params=["plain", "compiled"])
def kernels(request):
    with using(request.param):
        yield request.param


def draw_scores(sizes, n_classes, seed, dtype=torch.float64, margin=1.0):
    """Scores of bags that lack some of the classes, and the offsets."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.tensor([0, *itertools.accumulate(sizes)])
    scores = torch.randn((int(offsets[-1]), n_classes), generator=generator, dtype=torch.float64)
    for start, stop in itertools.pairwise(offsets.tolist()):
        present = torch.randperm(n_classes, generator=generator)[: 1 + n_classes // 2]
        own = present[torch.randint(len(present), (stop - start,), generator=generator)]
        scores[torch.arange(start, stop), own] += margin
    return scores.to(dtype), offsets


def draw_upstream(offsets, n_classes, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((len(offsets) - 1, n_classes), generator=generator, dtype=torch.float64).to(dtype)


def run(scores, offsets, weights=None, index=None, prior=0.0, seed=0):
    """Prevalences, and the gradient of the scores."""
    leaf = scores.clone().requires_grad_()
    p = maximise(leaf, offsets, weights, index, prior)
    p.backward(draw_upstream(offsets, scores.shape[1], seed, scores.dtype))
    return p.detach(), leaf.grad


def assert_same(got, want, dtype=torch.float64):
    """Prevalences within rounding; gradients within that of the largest, whose terms may all but cancel."""
    (p, gradient), (p_want, gradient_want) = got, want
    assert p.dtype == gradient.dtype == dtype
    rounding = 1e-9 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(p, p_want, rtol=0, atol=rounding)
    largest = max(1.0, float(gradient_want.abs().max()))
    torch.testing.assert_close(
        gradient, gradient_want, rtol=0, atol=(1e-6 if dtype == torch.float64 else 1e-5) * largest
    )


def shares_of(offsets, weights=None):
    bag = torch.repeat_interleave(offsets.diff())
    w = torch.ones(len(bag), dtype=torch.float64) if weights is None else weights.double()
    return bag, w / bag_totals(offsets, weights)[bag]


@every_dtype
@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, margin=margins, prior=priors)
def test_prevalences_are_the_fixed_point_and_the_maximum(kernels, dtype, seed, sizes, n_classes, margin, prior):
    scores, offsets = draw_scores(sizes, n_classes, seed, dtype, margin)
    weights = torch.randint(1, 6, (len(scores),), generator=torch.Generator().manual_seed(seed))
    p = maximise(scores, offsets, weights, prior=prior)
    assert p.shape == (len(sizes), n_classes)
    assert p.dtype == dtype
    assert (p >= 0).all()
    torch.testing.assert_close(p.double().sum(1), torch.ones(len(sizes), dtype=torch.float64), rtol=0, atol=1e-6)
    p, (bag, share) = p.double(), shares_of(offsets, weights)
    ratios = (scores.double() - torch.logsumexp(scores.double() + p.log()[bag], 1, keepdim=True)).exp()
    slopes = torch.zeros_like(p).index_add_(0, bag, ratios * (share * bag_totals(offsets, weights)[bag])[:, None])
    totals = bag_totals(offsets, weights)[:, None] + prior * n_classes
    rounding = 1e-8 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close((p * slopes + prior) / totals, p, rtol=0, atol=rounding)
    assert (p > 0).all() or prior == 0
    assert bool((slopes[p == 0] <= totals.expand_as(p)[p == 0] * (1 + rounding)).all())


@every_dtype
@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, prior=priors)
def test_order_of_rows_is_irrelevant(kernels, dtype, seed, sizes, n_classes, prior):
    scores, offsets = draw_scores(sizes, n_classes, seed, dtype)
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat([a + torch.randperm(b - a, generator=generator) for a, b in itertools.pairwise(offsets.tolist())])
    p, gradient = run(scores, offsets, prior=prior)
    assert_same(run(scores[order], offsets, prior=prior), (p, gradient[order]), dtype)


@every_dtype
@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, prior=priors)
def test_relabelling_classes_relabels_prevalences(kernels, dtype, seed, sizes, n_classes, prior):
    scores, offsets = draw_scores(sizes, n_classes, seed, dtype)
    order = torch.randperm(n_classes, generator=torch.Generator().manual_seed(seed))
    upstream = draw_upstream(offsets, n_classes, seed, dtype)
    results = []
    for columns in (torch.arange(n_classes), order):
        leaf = scores[:, columns].clone().requires_grad_()
        p = maximise(leaf, offsets, prior=prior)
        p.backward(upstream[:, columns])
        results.append((p.detach(), leaf.grad))
    (p, gradient), relabelled = results
    assert_same(relabelled, (p[:, order], gradient[:, order]), dtype)


@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, prior=priors)
def test_a_constant_of_a_row_is_irrelevant(kernels, seed, sizes, n_classes, prior):
    scores, offsets = draw_scores(sizes, n_classes, seed)
    shift = torch.randn((len(scores), 1), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p, gradient = run(scores, offsets, prior=prior)
    assert gradient.sum(1).abs().max() <= 1e-9 * max(1.0, float(gradient.abs().max()))
    for scale in (1.0, 1e3):  # as they are, and where exponentials would overflow
        assert_same(run(scores + scale * shift, offsets, prior=prior), (p, gradient))


@every_dtype
@pytest.mark.parametrize("weighting", [None, torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_ragged_bags_equal_each_bag_alone(kernels, dtype, weighting, prior):
    sizes = (1, 2, 37, 600, 40, 1, 3, 4)
    scores, offsets = draw_scores(sizes, 4, 0, dtype)
    weights = None if weighting is None else torch.arange(len(scores)).remainder(7).add(1).to(weighting)
    together = maximise(scores, offsets, weights, prior=prior)
    for i, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
        w = None if weights is None else weights[start:stop]
        alone = maximise(scores[start:stop], torch.tensor([0, stop - start]), w, prior=prior)
        torch.testing.assert_close(together[[i]], alone, rtol=0, atol=1e-9 if dtype == torch.float64 else 1e-6)


@every_dtype
@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, prior=priors, kind=number_kinds)
def test_a_weight_equals_as_many_copies(kernels, dtype, seed, sizes, n_classes, prior, kind):
    scores, offsets = draw_scores(sizes, n_classes, seed, dtype)
    counts = torch.randint(1, 6, (len(scores),), generator=torch.Generator().manual_seed(seed))
    copies = torch.repeat_interleave(torch.arange(len(scores)), counts)
    bounds = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])[offsets]
    weighted = run(scores, offsets, counts.to(kind), prior=prior)
    assert_same(weighted, run(scores, bounds, index=copies, prior=prior), dtype)
    p, gradient = run(scores[copies], bounds, prior=prior)
    assert_same(weighted, (p, torch.zeros_like(scores).index_add_(0, copies, gradient)), dtype)


@law
@given(seed=seeds, sizes=many_sizes, n_classes=class_numbers, what=st.sampled_from([0.0, math.inf, math.nan]))
def test_rows_of_weight_zero_are_irrelevant(kernels, seed, sizes, n_classes, what):
    scores, offsets = draw_scores(sizes, n_classes, seed)
    extra = torch.cat([scores, torch.full((3, n_classes), what, dtype=torch.float64)])
    index = torch.cat([torch.cat([torch.arange(a, b), torch.tensor([len(scores) + 1])])
                       for a, b in itertools.pairwise(offsets.tolist())])  # fmt: skip
    weights = (index < len(scores)).double()
    bounds = offsets + torch.arange(len(offsets))
    p, gradient = run(extra, bounds, weights, index)
    assert_same((p, gradient[:-3]), run(scores, offsets))
    assert (gradient[-3:] == 0).all()


@pytest.mark.parametrize("n_classes", [2, 10, 28])
def test_prevalences_are_those_of_expectation_maximisation(kernels, n_classes):
    rng = np.random.default_rng(n_classes)
    sizes = (1, 2, 5, 20, 100, 500, 1000, 3)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    scores = draw_scores(sizes, n_classes, 1, margin=2.0)[0].numpy()
    prior = rng.dirichlet(np.full(n_classes, 5.0))
    posteriors = prior * np.exp(scores)
    posteriors /= posteriors.sum(1, keepdims=True)
    index = rng.permutation(offsets[-1])
    wanted = maximise_likelihood(posteriors, prior, index, offsets, None, tol=0.0, max_iter=50_000)
    found = maximise(
        torch.from_numpy(np.log(posteriors / prior)), torch.from_numpy(offsets), index=torch.from_numpy(index)
    )
    assert np.abs(found.numpy() - wanted).max() < 1e-6


@pytest.mark.parametrize(
    ("n_classes", "weighted", "prior"), [(2, False, 0.3), (2, True, 0.0), (4, False, 0.0), (4, True, 0.3)]
)
def test_gradients_are_those_of_differences(kernels, n_classes, weighted, prior):
    scores, offsets = draw_scores((1, 4, 9, 14), n_classes, 3, margin=2.0)
    index = torch.cat([torch.arange(len(scores)), torch.tensor([0, 5, 20])])
    offsets[-1] = len(index)
    weights = torch.rand(len(index), generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    p = maximise(scores, offsets, weights if weighted else None, index, prior)
    if prior == 0:
        assert (p == 0).any()
        assert ((p > 0.02) & (p < 0.98)).any()

    def by_both(scores, weights):
        return maximise(scores, offsets, weights, index, prior)

    scores.requires_grad_()
    if weighted:
        assert torch.autograd.gradcheck(by_both, (scores, weights.requires_grad_()), atol=1e-5, rtol=1e-5)
    else:
        assert torch.autograd.gradcheck(lambda s: by_both(s, None), (scores,), atol=1e-5, rtol=1e-5)


@every_dtype
@law
@given(
    seed=seeds, sizes=many_sizes, n_classes=st.integers(1, 9), margin=margins, prior=priors, weighted=st.booleans(),
    indexed=st.booleans(),
)  # fmt: skip
def test_compiled_kernels_equal_plain_ones(dtype, seed, sizes, n_classes, margin, prior, weighted, indexed):
    scores, offsets = draw_scores(sizes, n_classes, seed, dtype, margin)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(len(scores), generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    index = torch.randint(len(scores), (len(scores),), generator=generator) if indexed else None
    results = []
    for name in ("plain", "compiled"):
        with using(name):
            results.append(run(scores, offsets, weights, index, prior))
    assert_same(results[1], results[0], dtype)


def test_bags_of_several_tiles_equal_the_plain_kernel():
    scores, offsets = draw_scores((3000, 10, 1400), 100, 0, margin=4.0)
    with using("plain"):
        wanted = run(scores, offsets)
    with using("compiled"):
        assert_same(run(scores, offsets), wanted)


def hard_cases():
    eye = torch.eye(4) * 50
    return {
        "separated": eye.repeat(5, 1),
        "perfectly separated": (eye.repeat(5, 1) - 50) * math.inf,
        "identical rows": torch.tensor([[1.0, 0.5, 0.25, 0.0]]).expand(20, 4),
        "all the same": torch.zeros(20, 4),
        "nearly the same": 1e-6 * torch.randn((20, 4), generator=torch.Generator().manual_seed(0)),
        "a class far away": torch.randn((20, 4), generator=torch.Generator().manual_seed(0))
        + torch.tensor([0.0, 0.0, 0.0, -1e4]),
        "rows far apart": torch.randn((20, 4), generator=torch.Generator().manual_seed(0)) * 1e4,
        "two classes alike": torch.randn((20, 3), generator=torch.Generator().manual_seed(0))[:, [0, 1, 2, 2]],
        "ties": torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]).repeat(10, 1),
    }


@every_dtype
@pytest.mark.parametrize("bags", [[20], [1] * 20, [2, 18]], ids=["one", "single rows", "two"])
@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("name", hard_cases())
def test_hard_cases_have_finite_gradients(kernels, name, prior, bags, dtype):
    scores = hard_cases()[name].nan_to_num(0.0, neginf=-math.inf).to(dtype)
    p, gradient = run(scores, torch.tensor([0, *itertools.accumulate(bags)]), prior=prior)
    assert p.isfinite().all()
    assert (p.sum(1) - 1).abs().max() < 1e-6
    assert gradient.isfinite().all()


def test_classes_alike_get_equal_parts_and_the_same_gradient(kernels):
    scores, offsets = draw_scores((30, 5), 3, 0)
    leaf = scores[:, [0, 1, 2, 2]].clone().requires_grad_()
    p = maximise(leaf, offsets)
    p.backward(draw_upstream(offsets, 4, 1))
    torch.testing.assert_close(p[:, 2], p[:, 3], rtol=0, atol=1e-9)
    torch.testing.assert_close(p[:, [2, 3]].sum(1), maximise(scores, offsets)[:, 2], rtol=0, atol=1e-9)
    torch.testing.assert_close(leaf.grad[:, 2], leaf.grad[:, 3], rtol=0, atol=1e-7)


def test_prevalences_and_slopes_by_hand(kernels):
    # Two rows for one class, a third for the other, each less likely by a factor under the class it is not for.
    less = math.exp(-1.0)
    scores = torch.tensor([[0.0, -1.0], [0.0, -1.0], [-1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    p = maximise(scores, torch.tensor([0, 3]))
    assert p.tolist() == [pytest.approx([(2 - less) / (3 - 3 * less), (1 - 2 * less) / (3 - 3 * less)], abs=1e-12)]
    p[0, 0].backward()
    # The derivative of the above by the logarithm of the factor.
    along = scores.grad[0, 1] + scores.grad[1, 1] + scores.grad[2, 0]
    assert along.item() == pytest.approx(less / (3 * (1 - less) ** 2), abs=1e-12)


def test_certain_rows_are_counted(kernels):
    scores = torch.full((10, 3), -torch.inf)
    scores[torch.arange(10), torch.tensor([0] * 7 + [2] * 3)] = 0.0
    offsets = torch.tensor([0, 10])
    assert maximise(scores, offsets).tolist() == [pytest.approx([0.7, 0.0, 0.3], abs=1e-7)]
    assert maximise(scores, offsets, prior=2.0).tolist() == [pytest.approx([9 / 16, 2 / 16, 5 / 16], abs=1e-7)]
    wanted = [math.sqrt(0.7 * 0.3 / 10), 0.0, math.sqrt(0.7 * 0.3 / 10)]
    assert standard_errors(scores, offsets).tolist() == [pytest.approx(wanted, abs=1e-7)]


@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_covariance_is_the_inverse_of_the_information(kernels, prior):
    scores, offsets = draw_scores((60,), 3, 2, margin=3.0)
    weights = torch.arange(60).remainder(3).add(1.0).double()
    p = maximise(scores, offsets, weights, prior=prior)[0]
    present = (p > 0).nonzero()[:, 0]
    assert len(present) > 1

    def likelihood(first):
        q = torch.cat([first, 1 - first.sum(0, keepdim=True)])
        return (weights * (scores[:, present].exp() @ q).log()).sum() + prior * q.log().sum()

    information = -torch.autograd.functional.hessian(likelihood, p[present[:-1]])
    found = covariance(scores, offsets, weights, prior=prior)[0]
    wanted = torch.linalg.inv(information)
    torch.testing.assert_close(found[present[:-1]][:, present[:-1]], wanted, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(found.sum(0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-10)
    errors = standard_errors(scores, offsets, weights, prior=prior)[0]
    torch.testing.assert_close(errors, found.diagonal().sqrt(), rtol=1e-10, atol=1e-10)
    layer = Likelihood(3, prior)
    assert torch.equal(layer.standard_errors(scores, offsets, weights)[0], errors)


def test_classes_that_rows_do_not_tell_apart_have_huge_standard_errors(kernels):
    scores, offsets = draw_scores((40,), 2, 0)
    errors = standard_errors(scores[:, [0, 1, 1]], offsets)[0]
    assert errors.isfinite().all()
    assert errors[1] > 100
    torch.testing.assert_close(errors[0], standard_errors(scores, offsets)[0, 0], rtol=1e-4, atol=1e-4)


def test_what_is_not_a_number_stays_in_its_bag(kernels):
    scores, offsets = draw_scores((5, 5, 5), 3, 0)
    wanted = maximise(scores, offsets)
    scores[7, 1] = math.nan
    p, gradient = run(scores, offsets)
    assert p[1].isnan().all()
    torch.testing.assert_close(p[[0, 2]], wanted[[0, 2]], rtol=0, atol=1e-12)
    assert gradient[5:10].isnan().any()
    assert gradient[[0, 1, 2, 3, 4, 10, 11, 12, 13, 14]].isfinite().all()


def test_what_is_kept_for_the_gradient_does_not_depend_on_the_iterations():
    kept = []
    for margin in (20.0, 0.1):
        scores, offsets = draw_scores((100, 50), 5, 0, margin=margin)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, into=sizes: into.append(t.numel()) or t, lambda t: t):
            maximise(scores.requires_grad_(), offsets)
        kept.append(sizes)
    assert kept[0] == kept[1]
    # The likelihoods, the curvature, prevalences, index, offsets and totals.
    assert sum(kept[0]) == 150 * 5 + 2 * 25 + 2 * 5 + 150 + 3 + 2


def test_threads_do_not_change_the_result():
    scores, offsets = draw_scores((400, 30, 1000, 800), 20, 0)
    index = torch.randint(len(scores), (len(scores),), generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    results = []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            results.append(run(scores, offsets, index=index))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_scores_are_widened(kernels, dtype):
    scores, offsets = draw_scores((30, 20), 3, 0, dtype)
    p, gradient = run(scores, offsets)
    assert p.dtype == gradient.dtype == dtype
    wanted, wanted_gradient = run(scores.double(), offsets)
    torch.testing.assert_close(p.double(), wanted, rtol=0, atol=4e-3)
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=2e-2, atol=2e-2)


def test_no_bags_give_no_results(kernels):
    nothing = torch.zeros(0, dtype=torch.long)
    leaf = torch.zeros((4, 3), requires_grad=True)
    p = Likelihood(3)(leaf, torch.tensor([0]), index=nothing)
    assert p.shape == (0, 3)
    p.sum().backward()
    assert (leaf.grad == 0).all()
    assert standard_errors(leaf, torch.tensor([0]), index=nothing).shape == (0, 3)


def test_bags_without_weight_get_equal_prevalences(kernels):
    scores, offsets = draw_scores((3, 4), 5, 0)
    p, gradient = run(scores, offsets, torch.tensor([0, 0, 0, 1, 1, 0, 1]))
    assert p[0].tolist() == pytest.approx([0.2] * 5)
    assert (gradient[:3] == 0).all()


def test_the_layer_is_the_function():
    scores, offsets = draw_scores((3, 4), 5, 0)
    weights, index = torch.arange(1, 8), torch.arange(6, -1, -1)
    layer = Likelihood(5, prior=0.25)
    assert torch.equal(layer(scores, offsets, weights, index), maximise(scores, offsets, weights, index, 0.25))
    assert (layer.n_features, layer.width) == (5, 5)
    assert repr(layer) == "Likelihood(n_classes=5, prior=0.25)"
    assert not list(layer.parameters())


def test_a_network_learns_through_the_layer(same_layers):
    rows, offsets = draw_scores((200, 200, 200, 200), 3, 5, torch.float32, margin=2.0)
    wanted = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3]])
    network = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    layer, optimizer = Likelihood(3, prior=1.0), torch.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        loss = (layer(network(rows), offsets) - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_the_kernels_follow_the_device_and_the_choice(monkeypatch):
    scores, offsets = draw_scores((3, 4), 5, 0)
    calls = []
    module = "histnetq.kernels.likelihood_{}.maximise"
    for name in ("plain", "compiled"):
        monkeypatch.setattr(module.format(name), lambda *args, name=name: calls.append(name) or 1 / 0)
        with using(name), pytest.raises(ZeroDivisionError):
            maximise(scores, offsets)
    assert calls == ["plain", "compiled"]
    assert backend(scores.to("meta")) is plain


@pytest.mark.parametrize("shape", [(4,), (4, 3, 1), (4, 0)])
def test_wrong_scores_are_named(shape):
    message = f"scores: expected floats of shape (n_rows, n_classes), got torch.float32 of shape {shape}."
    with pytest.raises(ValueError, match=exactly(message)):
        maximise(torch.zeros(shape), torch.tensor([0, 4]))


def test_other_wrong_arguments_are_named():
    scores = torch.zeros(4, 3)
    message = "weights: expected one per entry, shape (4,), got (3,)."
    with pytest.raises(ValueError, match=exactly(message)):
        maximise(scores, torch.tensor([0, 4]), torch.ones(3))
    message = "offsets: expected to rise from 0 to the number of entries (4), got [0 3]."
    with pytest.raises(ValueError, match=exactly(message)):
        maximise(scores, torch.tensor([0, 3]))
    message = "rows: expected shape (n_rows, 2), got (4, 3)."
    with pytest.raises(ValueError, match=exactly(message)):
        Likelihood(2)(scores, torch.tensor([0, 4]))
    message = "offsets: bag 1 is empty, expected at least one row."
    with pytest.raises(ValueError, match=exactly(message)):
        Likelihood(3)(scores, torch.tensor([0, 4, 4]))
    for prior in (-1.0, math.inf, math.nan):
        message = f"prior: expected a pseudo-count of at least 0, got {prior!r}."
        with pytest.raises(ValueError, match=exactly(message)):
            Likelihood(3, prior=prior)
        with pytest.raises(ValueError, match=exactly(message)):
            maximise(scores, torch.tensor([0, 4]), prior=prior)
