"""Bayes decisions: no draw, mean or other point has a lower expected loss, and values worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from histnetq.metrics import MEASURES, CostSensitiveAE, as_loss
from histnetq.uncertainty import decisions
from histnetq.uncertainty.decisions import decide
from tests.conftest import exactly

EXACT = [name for name in MEASURES if name not in ("nkld", "macro_nmd")]
SYMMETRIC = [name for name in MEASURES if "nmd" not in name]


def name_of(loss):
    """The name of a test; a function without an address, which differs by process."""
    return getattr(loss, "__name__", None) or str(loss)


def largest_gap(p_true, p_pred):
    return abs(p_true - p_pred).max(-1)


@dataclass
class Distance:
    """A callable without a hash."""

    power: float

    def __call__(self, p_true, p_pred):
        return (abs(p_true - p_pred) ** self.power).sum(-1)


def posteriors(seed: int, n_bags: int = 3, n_draws: int = 40, n_classes: int = 3) -> np.ndarray:
    """Draws around different mixes, some of which are 0 for some classes."""
    rng = np.random.default_rng(seed)
    sharp = rng.choice([0.3, 2.0, 30.0])
    p = np.stack([rng.dirichlet(sharp * rng.dirichlet(np.ones(n_classes)) + 0.02, n_draws) for _ in range(n_bags)])
    counts = np.round(p * 20)
    counts[..., 0] += (counts.sum(-1) == 0).astype(float)
    return counts / counts.sum(-1, keepdims=True) if seed % 2 else p


def risk(loss, estimate, draws, sizes, weights=None):
    """Mean loss of one estimate for each bag."""
    measure = as_loss(loss)
    each = [measure(draws[:, d], estimate, sizes) for d in range(draws.shape[1])]
    return np.average(np.stack(each, 1), axis=1, weights=weights)


LOSSES = [
    *(name for name in MEASURES if name != "macro_nmd"),
    CostSensitiveAE((5, 1, 0)),
    largest_gap,
    Distance(0.75),
    Distance(3.0),
]


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@given(seed=st.integers(0, 10_000))
def test_no_draw_and_no_mean_has_a_lower_expected_loss(loss, seed):
    draws, sizes = posteriors(seed), np.array([7, 20, 300])
    found = decide(draws, loss, sizes)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(1), 1)
    least = risk(loss, found, draws, sizes)
    for other in (draws.mean(1), *(draws[:, d] for d in range(draws.shape[1]))):
        assert (least <= risk(loss, other, draws, sizes) + 1e-9).all()


@pytest.mark.parametrize("loss", [*EXACT, CostSensitiveAE((5, 1, 0.5))], ids=name_of)
@given(seed=st.integers(0, 10_000))
def test_exact_decisions_are_minima(loss, seed):
    draws, sizes, rng = posteriors(seed), np.array([7, 20, 300]), np.random.default_rng(seed)
    weights = rng.random(draws.shape[:2])
    found = decide(draws, loss, sizes, weights)
    least = risk(loss, found, draws, sizes, weights)
    for step in (1e-4, 1e-2, 0.3):
        for target in (*np.eye(3), *rng.dirichlet(np.ones(3), 20)):
            other = found + step * (target - found)
            assert (least <= risk(loss, other, draws, sizes, weights) + 1e-9).all()


def test_quantiles_solve_the_linear_programme():
    draws, sizes = posteriors(3, n_draws=15, n_classes=4), np.array([10, 10, 10])
    for b, found in enumerate(decide(draws, "ae", sizes)):
        # Variables: the estimate, then the gap of each draw and class.
        gaps, places = np.eye(60), np.tile(np.eye(4), (15, 1))
        above, below = np.hstack([places, -gaps]), np.hstack([-places, -gaps])
        best = linprog(
            np.r_[np.zeros(4), np.full(60, 1 / 60)],
            np.vstack([above, below]),
            np.r_[draws[b].ravel(), -draws[b].ravel()],
            np.r_[np.ones(4), np.zeros(60)][None],
            [1],
        )
        assert abs(draws[b] - found).mean() == pytest.approx(best.fun)


@pytest.mark.parametrize("loss", [*SYMMETRIC, largest_gap], ids=name_of)
def test_permuting_classes_permutes_decisions(loss):
    draws, order = posteriors(8, n_bags=20), np.array([2, 0, 1])
    sizes = np.arange(1, 21)
    np.testing.assert_allclose(decide(draws[..., order], loss, sizes), decide(draws, loss, sizes)[:, order], atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_bags_do_not_affect_each_other(loss, monkeypatch):
    draws, sizes = posteriors(4, n_bags=7), np.arange(1, 8)
    together = decide(draws, loss, sizes)
    monkeypatch.setattr(decisions, "_AT_ONCE", 100)
    np.testing.assert_allclose(decide(draws, loss, sizes), together, atol=1e-12)


@pytest.mark.parametrize("loss", ["ae", "rae", "se", "nmd", "nkld"])
def test_a_draw_of_weight_k_is_k_draws(loss):
    draws, sizes = posteriors(6, n_draws=12), np.array([5, 6, 7])
    counts = np.random.default_rng(0).integers(1, 5, 12)
    copies = np.repeat(draws, counts, axis=1)
    weighted = decide(draws, loss, sizes, np.tile(counts, (3, 1)))
    np.testing.assert_allclose(weighted, decide(copies, loss, sizes), atol=1e-9)


def test_values_by_hand():
    draws = np.array([[[0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.1, 0.2, 0.7]]])
    # The medians are 0.2, 0.4 and 0. The next gaps, to 0.6, 0.8 and 0.7, are all of the slope 1/3.
    expected = np.array([0.2, 0.4, 0.0]) + 0.4 * np.array([0.4, 0.4, 0.7]) / 1.5
    np.testing.assert_allclose(decide(draws, "ae"), [expected])
    np.testing.assert_allclose(decide(draws, "se"), [[0.3, 1.4 / 3, 0.7 / 3]])
    np.testing.assert_allclose(decide(draws, "nmd"), [[0.2, 0.8, 0.0]])
    np.testing.assert_allclose(decide(draws, "kld", [5]), decide(draws, "mse"))
    np.testing.assert_allclose(decide(draws, "macro_nmd"), decide(draws, "nmd"))


def test_relative_errors_prefer_small_shares():
    draws = np.array([[[0.0, 1.0], [0.5, 0.5], [0.6, 0.4]]])
    np.testing.assert_allclose(decide(draws, "ae"), [[0.5, 0.5]])
    # The draw of 0 has the weight 1 / 0.05 = 20, and all others have at most 1 / 0.45.
    np.testing.assert_allclose(decide(draws, "rae", [10]), [[0.0, 1.0]])
    np.testing.assert_allclose(decide(draws, CostSensitiveAE((9, 0))), [[0.5, 0.5]])


def test_two_classes_have_medians():
    draws = np.array([[[0.1, 0.9], [0.2, 0.8], [0.4, 0.6], [0.9, 0.1]]])
    np.testing.assert_allclose(decide(draws, "ae"), [[0.3, 0.7]])
    np.testing.assert_allclose(decide(draws, "nmd"), [[0.3, 0.7]])
    np.testing.assert_allclose(decide(draws[:, 2:3], "ae"), [[0.4, 0.6]])
    np.testing.assert_allclose(decide(np.tile(draws[:, 1:2], (1, 9, 1)), "ae"), [[0.2, 0.8]])


DRAWS = np.array([[[0.5, 0.5], [0.2, 0.8]]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (DRAWS[0], "ae"),
            "draws: expected prevalences of at least 2 classes that sum to 1, shape (n_bags, n_draws, n_classes), got "
            "shape (2, 2); draw at least one vector for each bag.",
        ),
        (
            (2 * DRAWS, "ae"),
            "draws: expected prevalences of at least 2 classes that sum to 1, shape (n_bags, n_draws, n_classes), got "
            "others; draw at least one vector for each bag.",
        ),
        (
            (DRAWS, "rae"),
            "sizes: expected the size of each bag, got None; the loss smooths by 1 / (2 · size).",
        ),
        ((DRAWS, "rae", [0]), "sizes: expected numbers above 0, got [0]; give the number of rows of each bag."),
        (
            (DRAWS, "ae", None, np.ones(2)),
            "weights: expected numbers of at least 0, not all 0 in a bag, shape (1, 2), got shape (2,); None gives all "
            "draws the same weight.",
        ),
        (
            (DRAWS, "ae", None, np.zeros((1, 2))),
            "weights: expected numbers of at least 0, not all 0 in a bag, shape (1, 2), got others; None gives all "
            "draws the same weight.",
        ),
        (
            (DRAWS, lambda p_true, p_pred: abs(p_true - p_pred)),
            "loss: expected one finite number for each of 8 rows, got shape (8, 2); reduce only the last axis, and "
            "smooth logarithms and divisions.",
        ),
        (
            (DRAWS, lambda p_true, p_pred: np.full(len(p_true), np.nan)),
            "loss: expected one finite number for each of 8 rows, got NaN or infinity; reduce only the last axis, and "
            "smooth logarithms and divisions.",
        ),
        (
            (DRAWS, CostSensitiveAE((1, 2, 3))),
            "weights: expected one per class (2), got 3; give them in the order of classes_.",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=exactly(message)):
        decide(*arguments)


def test_draws_of_texts():
    message = "draws: expected arrays of numbers, and one size per bag, got others; check draws, sizes and weights."
    with pytest.raises(TypeError, match=exactly(message)):
        decide("draws", "ae")
