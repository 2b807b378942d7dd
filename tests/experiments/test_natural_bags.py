"""Few bags with natural mixes: bags that share no rows, and one row of results per draw, number and method."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import elections, natural_bags


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.multinomial(80, [0.3, 0.3, 0.2, 0.2], size=60)
    labels = np.stack([rng.multinomial(80, row @ np.full((4, 4), 0.05) / 80 + 0.8 * row / 80) for row in counts])
    np.savez(
        tmp_path / elections.FILE, instance_counts=counts, prevalence=labels / 80, group_names=np.array(list("ABCD")),
        year=np.repeat([2017, 2020], 30),
    )  # fmt: skip
    y = rng.integers(0, 8, 600).astype(np.uint8)
    tow = np.repeat(np.arange(27), 23)[:600]
    np.savez(
        tmp_path / natural_bags._PLANKTON, X=rng.normal(y[:, None], 1.0, (600, 4)), y=y, tow=tow,
        scan=tow * 2 + np.arange(600) % 2, class_names=np.array([f"class {c}" for c in range(8)]),
    )  # fmt: skip
    return tmp_path


@pytest.mark.parametrize("name", list(natural_bags.DATA))
def test_tested_bags_share_no_rows_with_the_others(folder, name):
    every, test = natural_bags.DATA[name](folder, 0)
    assert every.prevalences is not None
    if name == "zooplankton":
        assert np.intersect1d(every.index, test.index).size == 0
        assert len(every.classes) == 7
    else:
        assert len(np.unique(every.index)) == len(every.index)


def test_there_is_one_row_per_draw_number_and_method(folder, monkeypatch):
    monkeypatch.setattr(natural_bags, "COUNTS", (12, 24, 400))
    methods = ["training mean", "LinearQ", "EMQ on 300 labelled rows"]
    table = natural_bags.natural_bags(["elections", "zooplankton"], methods, 1, folder)
    assert table.groupby("data").size().tolist() == [4, 6]
    found = natural_bags.summary(table)
    assert found.loc[found["method"] != methods[2], "coverage"].between(0.5, 1).all()
    means = found[found["data"] == "elections"].groupby("method")["ae"].mean()
    assert means["LinearQ"] < means["training mean"]


def test_chosen_bags_stand_beside_random_ones(folder, monkeypatch):
    monkeypatch.setattr(natural_bags, "CHOSEN", (12, 30, 400))
    found = natural_bags.chosen_bags(1, folder)
    errors = found.pivot(index=["data", "bags"], columns="way", values="ae")
    assert errors.index.tolist() == [("elections", 12), ("elections", 30), ("zooplankton", 12), ("zooplankton", 30)]
    assert errors.loc[("elections", 30), "random"] == pytest.approx(errors.loc[("elections", 30), "chosen"])
