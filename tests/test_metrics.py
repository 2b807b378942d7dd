import functools
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from histnetq.metrics import MEASURES, CostSensitiveAE, ae, as_loss, kld, macro_nmd, nae, nkld, nmd, nrae, rae, se
from histnetq.simplex import apportion, draw_uniform
from tests.conftest import exactly

law = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)
SMOOTHED = ["rae", "nrae", "kld", "nkld"]
ORDINAL = ["nmd", "macro_nmd"]
every_measure = pytest.mark.parametrize("name", [*MEASURES, "cost-sensitive"])


def measure(name, n_classes):
    return MEASURES[name] if name in MEASURES else CostSensitiveAE(tuple(range(1, n_classes + 1)))


@st.composite
def problems(draw):
    """True and estimated prevalences, some of them 0, and ragged sizes."""
    n_bags, n_classes = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(seeds))
    sizes = np.array(draw(st.lists(st.integers(1, 500), min_size=n_bags, max_size=n_bags)))
    p_true = apportion(draw_uniform(n_bags, n_classes, rng), sizes) / sizes[:, None]
    return p_true, draw_uniform(n_bags, n_classes, rng), sizes


def smoothed(p, size):
    eps = 1 / (2 * size)
    return [(x + eps) / (len(p) * eps + 1) for x in p]


def loop_rae(p, q, size):
    t, e = smoothed(p, size), smoothed(q, size)
    return sum(abs(a - b) / a for a, b in zip(t, e, strict=True)) / len(p)


def loop_kld(p, q, size):
    return sum(a * math.log(a / b) for a, b in zip(smoothed(p, size), smoothed(q, size), strict=True))


def loop_nrae(p, q, size):
    least = min(smoothed(p, size))
    return loop_rae(p, q, size) / ((len(p) - 1 + (1 - least) / least) / len(p))


def loop_cost_sensitive(p, q, size):
    k = len(p)
    weights = [(j + 1) / (k * (k + 1) / 2) for j in range(k)]
    return sum(w * abs(a - b) for w, a, b in zip(weights, p, q, strict=True))


LOOPS = {
    "ae": lambda p, q, size: sum(abs(a - b) for a, b in zip(p, q, strict=True)) / len(p),
    "nae": lambda p, q, size: sum(abs(a - b) for a, b in zip(p, q, strict=True)) / (2 * (1 - min(p))),
    "rae": loop_rae,
    "nrae": loop_nrae,
    "se": lambda p, q, size: sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) / len(p),
    "mse": lambda p, q, size: sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) / len(p),
    "kld": loop_kld,
    "nkld": lambda p, q, size: 2 * math.exp(loop_kld(p, q, size)) / (1 + math.exp(loop_kld(p, q, size))) - 1,
    "nmd": lambda p, q, size: sum(abs(sum(p[:j]) - sum(q[:j])) for j in range(1, len(p))) / (len(p) - 1),
    "cost-sensitive": loop_cost_sensitive,
}


@pytest.mark.parametrize("name", LOOPS)
@law
@given(problem=problems())
def test_measure_equals_a_loop_over_its_formula(name, problem):
    p_true, p_pred, sizes = problem
    expected = [LOOPS[name](p, q, n) for p, q, n in zip(p_true.tolist(), p_pred.tolist(), sizes.tolist(), strict=True)]
    values = measure(name, p_true.shape[1])(p_true, p_pred, sizes)
    assert values.shape == sizes.shape
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-13)


@every_measure
@law
@given(problem=problems())
def test_torch_equals_numpy_and_gradients_are_finite(name, problem):
    p_true, p_pred, sizes = problem
    function = measure(name, p_true.shape[1])
    for estimate in (p_pred, p_true):
        leaf = torch.tensor(estimate, requires_grad=True)
        values = function(torch.tensor(p_true), leaf, torch.tensor(sizes))
        assert values.dtype == torch.float64
        np.testing.assert_allclose(values.detach().numpy(), function(p_true, estimate, sizes), rtol=1e-12, atol=1e-14)
        values.mean().backward()
        assert torch.isfinite(leaf.grad).all()
    assert function(torch.tensor(p_true).float(), torch.tensor(p_pred).float(), sizes).dtype == torch.float32


@every_measure
def test_gradient_equals_finite_differences(name):
    p_true = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.9, 0.1]], dtype=torch.float64)
    p_pred = torch.tensor([[0.3, 0.1, 0.6], [0.5, 0.3, 0.2]], dtype=torch.float64, requires_grad=True)
    function = measure(name, 3)
    assert torch.autograd.gradcheck(lambda q: function(p_true, q, torch.tensor([10, 50])), p_pred)


@every_measure
@law
@given(problem=problems())
def test_error_is_zero_only_for_the_truth(name, problem):
    p_true, p_pred, sizes = problem
    function = measure(name, p_true.shape[1])
    np.testing.assert_allclose(function(p_true, p_true, sizes), 0, atol=1e-15)
    apart = np.abs(p_true - p_pred).max(1) > 1e-4
    assert (function(p_true, p_pred, sizes)[apart] > 0).all()


@pytest.mark.parametrize("name", [n for n in [*MEASURES, "cost-sensitive"] if n not in ORDINAL])
@law
@given(problem=problems(), seed=seeds)
def test_relabelling_classes_changes_nothing(name, problem, seed):
    p_true, p_pred, sizes = problem
    order = np.random.default_rng(seed).permutation(p_true.shape[1])
    function = measure(name, p_true.shape[1])
    relabelled = function
    if name == "cost-sensitive":
        relabelled = CostSensitiveAE(tuple(np.array(function.weights)[order]))
    np.testing.assert_allclose(
        relabelled(p_true[:, order], p_pred[:, order], sizes), function(p_true, p_pred, sizes), rtol=1e-9, atol=1e-13
    )


@law
@given(problem=problems())
def test_match_distance_depends_on_the_order_of_classes_but_not_on_its_direction(problem):
    p_true, p_pred, _ = problem
    np.testing.assert_allclose(nmd(p_true[:, ::-1], p_pred[:, ::-1]), nmd(p_true, p_pred), atol=1e-12)
    swapped = [0, 2, 1]
    p, q = np.array([[1.0, 0, 0]]), np.array([[0, 1.0, 0]])
    assert nmd(p, q) == 0.5
    assert nmd(p[:, swapped], q[:, swapped]) == 1


def loop_macro_nmd(p_true, p_pred):
    """The mean over groups of bags, by whole stars of their mean, of the mean distance in a group."""
    n_classes = p_true.shape[1]
    groups = {}
    for p, q in zip(p_true.tolist(), p_pred.tolist(), strict=True):
        stars = sum(star * share for star, share in enumerate(p, start=1))
        group = min(math.floor(stars + 1e-6), n_classes - 1)
        groups.setdefault(group, []).append(LOOPS["nmd"](p, q, None))
    return np.mean([np.mean(errors) for errors in groups.values()])


@law
@given(problem=problems())
def test_macro_match_distance_equals_a_loop_over_groups_of_bags(problem):
    p_true, p_pred, _ = problem
    np.testing.assert_allclose(macro_nmd(p_true, p_pred).mean(), loop_macro_nmd(p_true, p_pred), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(macro_nmd(p_true[:1], p_pred[:1]), nmd(p_true[:1], p_pred[:1]))


def test_measures_of_lequa_on_cases_computed_by_hand():
    p_true, p_pred = np.array([[0.2, 0.8]]), np.array([[0.3, 0.7]])
    # Smoothed by 1/500 each, over 1.004, which cancels in the ratio.
    np.testing.assert_allclose(rae(p_true, p_pred, [250]), (0.1 / 0.202 + 0.1 / 0.802) / 2)
    np.testing.assert_allclose(ae(p_true, p_pred, [250]), 0.1)
    np.testing.assert_allclose(rae(np.array([[0.0, 1.0]]), p_pred, [1000]), (0.3 / 0.0005 + 0.3 / 1.0005) / 2)
    stars = np.array([[1, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]])
    guess = np.array([[0, 1, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0.2, 0.8]])
    np.testing.assert_allclose(nmd(stars, guess), [0.25, 0, 0.5, 0.05])
    # Means of 1 and 1.5 stars are one group, 3 another, and 5 stars are in the last; no bag has a mean from 2 to 3.
    np.testing.assert_allclose(macro_nmd(stars, guess).mean(), (0.25 / 2 + 0.5 + 0.05) / 3)


def test_a_mean_class_that_rounding_brought_below_a_whole_number_counts_as_that_number():
    p_true = np.array([[0, 1 / 3, 0, 0, 2 / 3 - 1e-12], [0, 0, 0, 1, 0]])  # both of class 3 but for rounding
    p_pred = np.full((2, 5), 0.2)
    np.testing.assert_allclose(macro_nmd(p_true, p_pred), nmd(p_true, p_pred))


@pytest.mark.parametrize("name", ["nae", "nrae", "nkld", "nmd"])
@law
@given(problem=problems())
def test_normalised_measures_lie_between_0_and_1(name, problem):
    p_true, p_pred, sizes = problem
    corners = np.eye(p_true.shape[1])
    for estimate in (p_pred, *(np.broadcast_to(c, p_true.shape) for c in corners)):
        values = MEASURES[name](p_true, estimate, sizes)
        assert (values >= -1e-15).all()
        assert (values <= 1 + 1e-12).all()


@law
@given(problem=problems())
def test_all_mass_on_the_rarest_class_is_the_worst_estimate(problem):
    p_true, p_pred, sizes = problem
    worst = np.eye(p_true.shape[1])[p_true.argmin(1)]
    np.testing.assert_allclose(nae(p_true, worst), 1, rtol=1e-12)
    assert (rae(p_true, worst, sizes) >= rae(p_true, p_pred, sizes) - 1e-12).all()
    # The smoothed estimate keeps ε in every class, hence 1 in the limit only.
    assert (nrae(p_true, worst, sizes) < 1).all()
    np.testing.assert_allclose(nrae(p_true, worst, np.full(len(sizes), 1e9)), 1, atol=1e-5)


@pytest.mark.parametrize("name", SMOOTHED)
@law
@given(problem=problems())
def test_each_bag_is_smoothed_by_its_own_size(name, problem):
    p_true, p_pred, sizes = problem
    alone = [MEASURES[name](p_true[[i]], p_pred[[i]], sizes[[i]])[0] for i in range(len(sizes))]
    np.testing.assert_allclose(MEASURES[name](p_true, p_pred, sizes), alone, rtol=1e-12)
    assert (MEASURES[name](p_true, p_pred, 4 * sizes) != MEASURES[name](p_true, p_pred, sizes)).any()


@every_measure
def test_a_single_vector_gives_a_single_number(name):
    p_true, p_pred = np.array([0.2, 0.8]), np.array([0.5, 0.5])
    function = measure(name, 2)
    assert function(p_true, p_pred, 10) == function(p_true[None], p_pred[None], [10])[0]


@pytest.mark.parametrize(
    ("function", "p_true", "p_pred", "size", "expected"),
    [
        (ae, [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], None, 0.2),
        (se, [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], None, 0.06),
        (nae, [0.5, 0.5], [0.75, 0.25], None, 0.5),
        (nae, [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], None, 0.5),
        (rae, [1.0, 0.0], [0.5, 0.5], 5, 30 / 11),  # (0.5/1.1 + 0.5/0.1) / 2
        (rae, [1.0, 0.0], [0.5, 0.5], 50, (0.5 / 1.01 + 0.5 / 0.01) / 2),
        (nrae, [1.0, 0.0], [0.5, 0.5], 5, 30 / 11 / 6),  # least class 1/12, so the worst is (1 + 11) / 2
        (kld, [1.0, 0.0], [0.0, 1.0], 1, 0.5 * math.log(3)),  # (3/4, 1/4) against (1/4, 3/4)
        (nkld, [1.0, 0.0], [0.0, 1.0], 1, (math.sqrt(3) - 1) / (math.sqrt(3) + 1)),
        (nmd, [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], None, 0.3),
        (CostSensitiveAE((3, 1, 0)), [0.5, 0.3, 0.2], [0.2, 0.4, 0.4], None, 0.25),  # (3·0.3 + 0.1) / 4
    ],
)
def test_values_by_hand(function, p_true, p_pred, size, expected):
    value = function(np.array([p_true]), np.array([p_pred]), None if size is None else np.array([size]))
    np.testing.assert_allclose(value, [expected], rtol=1e-12)


@pytest.mark.parametrize("name", SMOOTHED)
def test_smoothing_without_sizes_is_refused(name):
    p = np.array([[0.5, 0.5]])
    cause = "kld" if name == "nkld" else name
    message = f"{cause}: sizes is needed for the smoothing 1/(2·size); pass the bags' sizes."
    with pytest.raises(ValueError, match=exactly(message)):
        MEASURES[name](p, p)


@law
@given(problem=problems(), scale=st.floats(0.01, 100))
def test_equal_costs_give_the_absolute_error_at_any_scale(problem, scale):
    p_true, p_pred, _ = problem
    costs = CostSensitiveAE((scale,) * p_true.shape[1])
    np.testing.assert_allclose(costs(p_true, p_pred), ae(p_true, p_pred), rtol=1e-12)


def test_costs_are_compared_by_value_and_fixed():
    assert CostSensitiveAE([1, 2]) == CostSensitiveAE(np.array([1.0, 2.0]))
    assert CostSensitiveAE((1, 2)) != CostSensitiveAE((2, 1))
    with pytest.raises(AttributeError):
        CostSensitiveAE((1, 2)).weights = (1, 1)


@pytest.mark.parametrize("weights", [(), (0, 0), (1, -1), (1, float("nan")), (1, float("inf")), 3.0, ((1, 2), (3, 4))])
def test_bad_costs_are_refused(weights):
    message = f"weights: expected one non-negative number per class, not all zero; got {weights!r}."
    with pytest.raises(ValueError, match=exactly(message)):
        CostSensitiveAE(weights)


def test_costs_for_another_number_of_classes_are_refused():
    message = "weights: expected one per class (3), got 2; give them in the order of classes_."
    with pytest.raises(ValueError, match=exactly(message)):
        CostSensitiveAE((1, 2))(np.full((1, 3), 1 / 3), np.full((1, 3), 1 / 3))


@pytest.mark.parametrize("name", MEASURES)
def test_a_name_is_its_measure(name):
    assert as_loss(name) is MEASURES[name]


def test_mse_is_the_squared_error():
    assert MEASURES["mse"] is se


class Module(torch.nn.Module):
    def forward(self, p_true, p_pred, sizes):
        return p_true - p_pred, sizes


class Called:
    def __call__(self, p_true, p_pred, sizes=None):
        return p_true - p_pred, sizes


def with_option(p_true, p_pred, reduction="none"):
    return p_true - p_pred, reduction


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda p_true, p_pred: (p_true, p_pred), (5, 3)),
        (lambda p_true, p_pred, sizes: (p_true - p_pred, sizes), (2, 7)),
        (lambda p_true, p_pred, n: (p_true - p_pred, n), (2, 7)),
        (lambda p_true, p_pred, sizes=1: (p_true - p_pred, sizes), (2, 7)),
        (with_option, (2, "none")),
        (functools.partial(with_option, reduction="sum"), (2, "sum")),
        (Module(), (2, 7)),
        (Called(), (2, 7)),
        (math.fmod, 2.0),
    ],
    ids=itertools.count(),
)
def test_a_callable_gets_the_sizes_if_it_takes_them(loss, expected):
    assert as_loss(loss)(5, 3, 7) == expected


def test_a_torch_loss_is_a_loss():
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.75, 0.25]])
    assert as_loss(torch.nn.L1Loss())(p, q, torch.tensor([9])) == 0.25
    assert as_loss(torch.nn.functional.mse_loss)(p, q, torch.tensor([9])) == 0.0625


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (
            "mae",
            ValueError,
            "loss: expected one of ae, rae, nae, nrae, se, mse, kld, nkld, nmd, macro_nmd "
            "or a callable (p_true, p_pred), got 'mae'.",
        ),
        (3, TypeError, "loss: expected a name or a callable (p_true, p_pred), got int."),
        (None, TypeError, "loss: expected a name or a callable (p_true, p_pred), got NoneType."),
    ],
)
def test_bad_losses_are_refused(loss, error, message):
    with pytest.raises(error, match=exactly(message)):
        as_loss(loss)
