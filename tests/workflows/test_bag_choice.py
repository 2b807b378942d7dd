"""Bags that would teach most: the greedy design is the best, and the command writes what Python returns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main


def simulate(n_bags=30, size=8, seed=0):
    rng = np.random.default_rng(seed)
    return hq.Bags.from_arrays(list(rng.normal(size=(n_bags, 1, 3)) + 0.3 * rng.normal(size=(n_bags, size, 3))))


def mean_variance(bags, chosen):
    """The mean variance of the estimates of all bags after ridge regression on the chosen ones."""
    x = np.stack([bags.rows[index].mean(0) for index in np.split(bags.index, bags.offsets[1:-1])])
    x = np.column_stack([np.ones(len(x)), (x - x.mean(0)) / x.std(0)])
    inverse = np.linalg.inv(np.diag([1e-3, 1, 1, 1]) + x[chosen].T @ x[chosen])
    return np.einsum("ij,jk,ik->i", x, inverse, x).mean()


def test_each_choice_lowers_the_variance_most():
    bags = simulate()
    chosen = hq.choose_bags(bags, 6)
    assert len(set(chosen.tolist())) == 6
    for n in range(5):
        other = [i for i in range(30) if i not in chosen[:n]]
        best = min(other, key=lambda i: mean_variance(bags, [*chosen[:n], i]))
        assert chosen[n] == best
    rng = np.random.default_rng(1)
    at_random = [mean_variance(bags, rng.permutation(30)[:6]) for _ in range(50)]
    assert mean_variance(bags, chosen) < min(at_random)


def test_the_design_does_not_depend_on_units_of_features_or_copies_of_columns():
    bags = simulate()
    scaled = bags.replaced(rows=np.column_stack([bags.rows * [1, 100, 0.01]]))
    np.testing.assert_array_equal(hq.choose_bags(scaled, 5), hq.choose_bags(bags, 5))
    constant = bags.replaced(rows=np.column_stack([bags.rows, np.ones(len(bags.rows))]))
    np.testing.assert_array_equal(hq.choose_bags(constant, 5), hq.choose_bags(bags, 5))


def test_the_number_is_checked():
    with pytest.raises(ValueError, match=r"^n: expected a whole number from 1 to 30, the number of bags, got 31; give"):
        hq.choose_bags(simulate(), 31)


def test_images_are_refused():
    bags = hq.Bags(np.zeros((4, 5, 5)), index=[0, 1, 2, 3], offsets=[0, 2, 4])
    with pytest.raises(
        ValueError, match=r"^bags: expected rows of at most 2,000 numbers, got rows of shape \(5, 5\); choose"
    ):
        hq.choose_bags(bags, 1)


def test_the_command_writes_the_chosen_bags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bags = simulate()
    rows = pd.DataFrame(bags.rows, columns=list("xyz")).assign(site=np.repeat([f"s{i:02d}" for i in range(30)], 8))
    rows.to_csv("new.csv", index=False)
    hq.CC().fit(rows[list("xyz")], np.tile(["a", "b"], 120)).save("model")
    asked = ["sample", "model", "new.csv", "--bag", "site", "--bags", "4", "-o", "next.csv"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert result.stdout == "4 bags written to next.csv.\n"
    found = pd.read_csv("next.csv")
    assert found["bag"].tolist() == [f"s{i:02d}" for i in hq.choose_bags(bags, 4)]
    assert found["rank"].tolist() == [1, 2, 3, 4]
    refused = CliRunner().invoke(main, [a for a in asked if a not in ("--bag", "site")] + ["--force"])
    assert refused.output == "Error: --bag: expected the columns that name the bags, got none; name them.\n"
