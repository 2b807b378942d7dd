"""Transition tables: totals are kept, known tables are found, and intervals hold the truth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import histnetq as hq
from histnetq.quantifiers.classical.transitions import Transitions, estimate_transitions

START = np.full((3, 3), 1 / 3) + np.eye(3)


def simulate(n_groups=12, n_units=20, n_voters=400, seed=0):
    """Units of groups whose transition shares differ a little: categories, classes, groups and the true tables."""
    rng = np.random.default_rng(seed)
    common = np.array([[0.8, 0.15, 0.05], [0.1, 0.85, 0.05], [0.2, 0.3, 0.5]])
    x, y, truth = [], [], np.zeros((n_groups, 3, 3))
    for group in range(n_groups):
        p = np.stack([rng.dirichlet(60 * row) for row in common])
        for sizes in rng.multinomial(n_voters, rng.dirichlet(np.ones(3) * 2, n_units)):
            table = np.stack([rng.multinomial(n, rng.dirichlet(80 * row)) for n, row in zip(sizes, p, strict=True)])
            truth[group] += table
            x.append(table.sum(1))
            y.append(table.sum(0))
    return np.array(x), np.array(y), np.repeat(np.arange(n_groups), n_units), truth


def estimate(x, y, groups=None):
    return estimate_transitions(x / x.sum(1)[:, None], y / y.sum(1)[:, None], x.sum(1), START, groups)


def test_totals_are_kept_and_the_tables_are_near_the_truth():
    x, y, groups, truth = simulate()
    found = estimate(x, y, groups)
    np.testing.assert_allclose(found.counts.sum(2), truth.sum(2), rtol=1e-6)
    np.testing.assert_allclose(found.counts.sum(1), truth.sum(1), rtol=1e-3)
    independent = truth.sum(2)[:, :, None] * truth.sum(1)[:, None] / truth.sum((1, 2))[:, None, None]
    assert found.errors(truth).mean() < 0.35 * dataclasses.replace(found, counts=independent).errors(truth).mean()
    assert found.errors(truth).mean() < 0.07
    np.testing.assert_allclose(found.overall().counts[0], found.counts.sum(0))


def test_groups_learn_from_each_other():
    x, y, groups, truth = simulate(n_units=6)
    alone = [estimate(x[groups == g], y[groups == g]).counts[0] for g in range(12)]
    together = estimate(x, y, groups)
    assert (
        together.errors(truth).mean() < 0.8 * dataclasses.replace(together, counts=np.stack(alone)).errors(truth).mean()
    )


def test_the_order_of_units_and_the_names_of_classes_do_not_matter():
    x, y, groups, _ = simulate(4, 8)
    found, order = estimate(x, y, groups), np.random.default_rng(1).permutation(len(x))
    again = estimate(x[order], y[order], groups[order])
    np.testing.assert_allclose(again.counts, found.counts, rtol=1e-6, atol=1e-6)
    turned = estimate_transitions(
        x / x.sum(1)[:, None], (y / y.sum(1)[:, None])[:, [2, 0, 1]], x.sum(1), START[:, [2, 0, 1]], groups
    )
    np.testing.assert_allclose(turned.counts, found.counts[:, :, [2, 0, 1]], rtol=1e-6, atol=1e-6)


def test_a_class_that_is_absent_from_a_group_has_no_votes_there():
    x, y, groups, _ = simulate(3, 10)
    y[groups == 1, 2] = 0
    y[groups == 1, 0] = x[groups == 1].sum(1) - y[groups == 1, 1]
    found = estimate(x, y, groups)
    np.testing.assert_allclose(found.counts[1, :, 2], 0)
    assert (found.counts[0, :, 2] > 0).all()


def test_conformal_intervals_contain_the_truth():
    x, y, groups, truth = simulate(120, 10, seed=3)
    found = estimate(x, y, groups)
    parts = [dataclasses.replace(found, counts=found.counts[some], groups=found.groups[some])
             for some in (slice(60), slice(60, None))]  # fmt: skip
    for occasions in (None, np.arange(60) % 4):
        bounded = parts[1].with_intervals(parts[0], truth[:60], 0.9, occasions)
        shares = truth[60:] / truth[60:].sum(2, keepdims=True)
        assert 0.85 < ((bounded.lower <= shares) & (shares <= bounded.upper)).mean() < 0.97
        whole = bounded.overall()
        assert ((whole.lower <= whole.shares) & (whole.shares <= whole.upper)).all()
    few = parts[1].with_intervals(
        dataclasses.replace(parts[0], counts=parts[0].counts[:5], groups=parts[0].groups[:5]), truth[:5]
    )
    assert (few.lower == 0).all()
    assert (few.upper == 1).all()


def test_a_hand_computed_error_and_frame():
    names = np.array(["n"]), np.array(["x", "y"]), np.array(["a", "b"])
    found = Transitions(np.array([[[3.0, 1.0], [0.0, 0.0]]]), *names)
    np.testing.assert_allclose(found.errors([[[6, 2], [0, 0]]]), [0.0])  # scaled to the true total
    np.testing.assert_allclose(found.errors([[[2, 2], [0, 0]]]), [0.25])
    np.testing.assert_allclose(found.shares, [[[0.75, 0.25], [0, 0]]])
    assert list(found.to_frame()) == ["group", "from", "to", "count", "share"]


def test_linear_q_needs_categories_and_groups_of_all_bags():
    x, y, groups, truth = simulate(2, 12)
    unit, category = np.nonzero(x)
    bags = hq.Bags(
        np.eye(3), category, np.searchsorted(unit, np.arange(len(x) + 1)), weights=x[unit, category],
        prevalences=y, classes=["a", "b", "c"], normalize=True,
    )  # fmt: skip
    q = hq.LinearQ().fit(bags)
    found = q.transitions(bags, groups=[f"g{number}" for number in groups])
    assert found.groups.tolist() == ["g0", "g1"]
    np.testing.assert_allclose(found.counts.sum(2), truth.sum(2), rtol=1e-6)
    unknown = q.transitions(bags.replaced(prevalences=None))
    np.testing.assert_allclose(unknown.counts.sum(), truth.sum(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"^groups: expected 24 names, one per bag, got 3; pass one for each.$"):
        q.transitions(bags, groups=[1, 2, 3])
    numbers = hq.Bags.from_arrays([np.full((4, 3), 0.5)] * 8, prevalences=np.full((8, 2), 0.5))
    with pytest.raises(
        ValueError, match=r"^bags: expected categorical rows, each with a single 1, got other numbers; pass"
    ):
        hq.LinearQ().fit(numbers).transitions(numbers)
