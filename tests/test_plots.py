"""Plots: what they draw is what they were given."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import histnetq as hq
from histnetq import plots
from tests.conftest import QUICK, known_bags


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    q = hq.HistNetQ(n_bins=4, encoder=(4,), head=(8,), training=QUICK, random_state=0)
    return q.fit(known_bags()).calibrate(known_bags(40, seed=1))


def test_estimates_and_bias(model):
    table = hq.evaluate(model, known_bags(20, seed=2))
    ax = plots.estimates(table)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    drawn = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(drawn, table[["true_a", "estimated_a"]])
    ax = plots.bias(table)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]


def test_error_by_shift(model):
    comparison = hq.compare({"net": model, "mean": hq.MLPE().fit(known_bags())}, known_bags(30, seed=3))
    ax = plots.error_by_shift(comparison, "rae", bins=3)
    assert [line.get_label() for line in ax.get_lines()] == ["net", "mean"]
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), comparison.by_shift(3)["net", "rae"])


def test_coverage_and_training(model):
    ax = plots.coverage({0.8: (0.81, 0.79), 0.9: (0.9, 0.88)})
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), [0.79, 0.88])
    ax = plots.training(model.history_)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), model.history_["validation_loss"])
    assert ax.get_lines()[2].get_xdata()[0] == model.best_epoch_


def test_prevalences_of_one_bag_and_of_many(model):
    bags = known_bags(5, seed=4)
    found = model.predict_interval(bags, 0.8)
    ax = plots.prevalences(found, model.classes_, ids=["mon", "tue", "wed", "thu", "fri"])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["mon", "tue", "wed", "thu", "fri"]
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), found.estimates[:, 1])
    one = model.predict_interval(bags[0].gather(), 0.8)
    ax = plots.prevalences(one, model.classes_)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], one.estimates)


def test_many_classes_have_colours_of_their_own():
    assert len({str(plots._color(i)) for i in range(28)}) == 28
