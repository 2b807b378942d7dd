"""Plots: what they draw is what they were given."""

from __future__ import annotations

import itertools
import re
import sys
import warnings

import matplotlib as mpl

mpl.use("Agg")


import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import histnetq as hq
from histnetq.evaluation import plots
from histnetq.evaluation.plot_style import color_of
from histnetq.nn import HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram
from tests.conftest import QUICK, exactly, known_bags


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


def test_bags_are_counted_in_whole_numbers():
    comparison = hq.compare({"mean": hq.MLPE().fit(known_bags())}, known_bags(3, seed=3))
    ticks = plots.error_by_shift(comparison, bins=3).figure.axes[1].get_yticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))


def test_a_long_name_leaves_room_for_the_plot():
    bags, long = known_bags(10), "/a/long/path/to/a/folder/with/many/models/" + "x" * 60
    figure = plt.figure(figsize=(5.5, 4), layout="constrained")
    methods = {f"{long}{i}": hq.MLPE().fit(bags) for i in range(4)}
    ax = plots.error_by_shift(hq.compare(methods, bags), bins=2, ax=figure.subplots())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="constrained_layout not applied")
        figure.canvas.draw()  # warns if nothing is left of the axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"…{'x' * 30}{i}" for i in range(4)]


def test_coverage_and_training(model):
    ax = plots.coverage({0.8: (0.81, 0.79), 0.9: (0.9, 0.88)})
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), [0.79, 0.88])
    ax = plots.training(model.history_)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), model.history_["validation_loss"])
    assert ax.get_lines()[2].get_xdata()[0] == model.best_epoch_


def test_prevalences_of_one_bag_and_of_many(model):
    bags = known_bags(5, seed=4)
    found = model.predict_interval(bags, 0.8)
    days = [f"2024-05-{i:02}" for i in range(1, 6)]
    ax = plots.prevalences(found, model.classes_, ids=days)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == days
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), found.estimates[:, 1])
    assert ax.get_lines()[1].get_linestyle() == "-"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    one = model.predict_interval(bags[0].gather(), 0.8)
    ax = plots.prevalences(one, model.classes_)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], one.estimates)


def test_bags_without_order_are_dots_with_bars_and_the_truth(model):
    bags = known_bags(5, seed=4)
    found = model.predict_interval(bags, 0.8)
    ax = plots.prevalences(found, model.classes_, ids=list("vwxyz"), truth=bags.prevalences)
    lines = ax.get_lines()
    assert {line.get_linestyle() for line in lines} == {"None"}
    np.testing.assert_allclose([line.get_ydata() for line in lines[::2]], found.estimates.T)
    np.testing.assert_allclose([line.get_ydata() for line in lines[1::2]], bags.prevalences.T)
    ends = np.array([[segment[:, 1] for segment in bars.get_segments()] for bars in ax.collections])
    np.testing.assert_allclose(ends, np.stack([found.lower.T, found.upper.T], axis=2))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c", "truth"]
    one = model.predict_interval(bags[0].gather(), 0.8)
    drawn = plots.prevalences(one, model.classes_, truth=bags.prevalences[0]).get_lines()
    np.testing.assert_allclose(drawn[-1].get_ydata(), bags.prevalences[0])


def test_names_of_many_bags_do_not_run_into_each_other():
    p = np.full((150, 2), 0.5)
    found = hq.Intervals.around(p, p, p, np.ones(150), 0.9, np.zeros(150))
    for name in ("sample{}", "{}", "a-very-long-name-of-sample-{}"):
        ax = plots.prevalences(found, "ab", ids=[name.format(i) for i in range(150)])
        ax.figure.canvas.draw()
        boxes = [tick.get_window_extent() for tick in ax.get_xticklabels()]
        assert len(boxes) >= 2
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes)), name


def test_axes_of_estimates_fit_the_data_and_many_classes_have_a_legend():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(26, 3.0), size=40)
    bags = hq.Bags(np.zeros((40, 1)), offsets=range(41), prevalences=p, classes=[f"c{j}" for j in range(26)])
    table = hq.evaluate(0.9 * p + 0.1 * np.roll(p, 1, axis=1), bags)
    ax = plots.estimates(table)
    top = table.filter(regex="^(true|estimated)_").to_numpy().max()
    assert ax.get_xlim() == ax.get_ylim() == pytest.approx((0, 1.05 * top))
    worst = np.abs(table.filter(like="true_").to_numpy() - table.filter(like="estimated_").to_numpy()).mean(0)
    names = [f"c{j}" for j in np.argsort(-worst)[:6]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["20 other classes", *names]


def test_a_mean_error_of_0_has_no_place_on_a_log_scale():
    bags = known_bags(10)
    ax = plots.error_by_shift(hq.compare({"truth": bags.prevalences, "mean": hq.MLPE().fit(bags)}, bags), bins=2)
    assert ax.get_ylim()[0] > 1e-3


@pytest.mark.parametrize("bins", ["hard", "soft", "rbf", "sigmoid"])
def test_histograms_of_a_few_bags_are_what_the_head_reads(bins):
    q = hq.HistNetQ(bins, 4, encoder=(3,), head=(8,), training=QUICK, random_state=0).fit(known_bags())
    bags = known_bags(5, seed=5)
    ax = plots.histograms(q, bags, feature=1)
    rows, offsets = torch.as_tensor(bags.gather()), torch.as_tensor(bags.offsets)
    with torch.inference_mode():
        read = q.network_.pooling(q.network_.encode(rows), offsets).reshape(5, 3, 4)[:, 1].numpy()
    centers = q.network_.pooling.bins()[0][1].detach().numpy()
    order = np.argsort(centers)
    for line, own in zip(ax.get_lines(), read, strict=True):
        np.testing.assert_allclose(line.get_xdata(), centers[order])
        np.testing.assert_allclose(line.get_ydata(), own[order], atol=1e-6)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], read.mean(0), atol=1e-6)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [*(f"bag {i}" for i in range(5)), "mean of all bags"]


@pytest.mark.parametrize(("bins", "at_start"), [("hard", 0.25), ("soft", 0.25), ("rbf", 0.2081), ("sigmoid", 0.25)])
def test_bins_are_drawn_as_wide_as_they_are(bins, at_start):
    """A bin counts a value at its edge half, or not any more."""
    layer = {"hard": HardHistogram, "soft": SoftHistogram, "rbf": RBFHistogram, "sigmoid": SigmoidHistogram}[bins](1, 4)
    centers, widths = plots._places(layer, 0)
    np.testing.assert_allclose(widths, at_start, atol=1e-4)
    layer.squash = None
    edges = torch.as_tensor(centers + widths / 2, dtype=torch.float32)[:, None]
    counted = layer(edges, torch.arange(5)).detach().numpy().reshape(4, 4).diagonal()
    np.testing.assert_allclose(counted, 0.0 if bins == "hard" else 0.5, atol=1e-3)


def test_histograms_of_many_bags_are_means_of_those_with_most_of_a_class(model):
    bags = known_bags(40, seed=6)
    some = {name: bags[np.argsort(-p, kind="stable")[:4]] for name, p in zip("abc", bags.prevalences.T, strict=True)}
    ax = plots.histograms(model, bags)
    feature = int(re.fullmatch(r"feature (\d+) of the encoder", ax.get_xlabel())[1])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["most of a", "most of b", "most of c", "mean of all bags"]
    for line, own in zip(ax.get_lines(), some.values(), strict=True):
        bars = plots.histograms(model, own, feature).patches
        drawn = sorted((bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars)
        np.testing.assert_allclose(np.column_stack(line.get_data()), drawn, atol=1e-6)


def test_histograms_are_of_the_feature_that_varies_most(model):
    bags = known_bags(6, seed=7)
    drawn = [[line.get_ydata() for line in plots.histograms(model, bags, j).get_lines()] for j in range(4)]
    widest = np.var(drawn, axis=1).sum(1).argmax()
    assert plots.histograms(model, bags).get_xlabel() == f"feature {widest} of the encoder"


def test_histograms_refuse(model):
    bags = known_bags(3)
    q = hq.DeepSets(encoder=(4,), head=(8,), training=QUICK, random_state=0).fit(bags)
    for other in (q, hq.HistNetQ()):
        name = type(other).__name__
        message = f"quantifier: expected a fitted HistNetQ, the only one with histograms, got {name}."
        with pytest.raises(TypeError, match=exactly(message)):
            plots.histograms(other, bags)
    with pytest.raises(ValueError, match=exactly("feature: expected a number from 0 to 3, got 4.")):
        plots.histograms(model, bags, feature=4)


def test_names_are_shown_to_the_letter():
    names = ["_other", "$x$", r"\frac"]
    table = hq.evaluate([[0.2, 0.3, 0.5]], hq.Bags(np.zeros((2, 1)), prevalences=[[0.2, 0.3, 0.5]], classes=names))
    ax = plots.estimates(table)
    ax.figure.canvas.draw()  # a formula that is none would fail here
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [" _other", r"\$x\$", r"\frac"]


def test_without_matplotlib(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError, match=exactly("plots need matplotlib; install it by pip install 'histnetq[report]'.")
    ):
        plots.training(model.history_)


def test_many_classes_have_colours_of_their_own():
    assert len({str(color_of(i)) for i in range(28)}) == 28
