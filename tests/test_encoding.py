"""Encoding: a row gives the same bits alone and among others, as features and as bins, whatever holds the rows."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import histnetq as hq
from histnetq.kernels import compiled, dense_compiled, using
from histnetq.nn import MLP, BagNetwork, HardHistogram, LogOdds, Mean, Standardize, Unmixing
from histnetq.nn.histograms import hard_thresholds
from histnetq.nn.squashing import squashed
from histnetq.training import encoding
from histnetq.training.batches import bag_states, predict_bags, predict_states
from histnetq.training.encoding import BinCounts, encode_rows

SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=4)


def network(n_inputs: int, sizes, seed: int = 0, n_bins: int = 5, squash: str | None = "sigmoid") -> BagNetwork:
    """A network with scaled rows and bins that overlap, leave gaps, are empty and reach beyond 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    scaling = Standardize(torch.randn(n_inputs, generator=generator).double(), torch.ones(n_inputs) * 1.5)
    layer = HardHistogram(sizes[-1], n_bins, squash)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        layer.centers += torch.randn_like(layer.centers) / 5
        layer.half_widths += torch.randn_like(layer.half_widths) / 10
        return BagNetwork(MLP(n_inputs, sizes, dropout=0.5), layer, (), 3, prepare=scaling).eval()


def odds_network(n_inputs: int, hidden, n_classes: int, seed: int = 0, n_bins: int = 5) -> BagNetwork:
    """HistNetQ's own network: scores, log-odds with any centre and scale, bins as above, and a head that unmixes."""
    net, odds = network(n_inputs, (*hidden, n_classes), seed, n_bins), LogOdds(n_classes)
    generator = torch.Generator().manual_seed(seed)
    odds.center += torch.randn(odds.n_features, generator=generator)
    odds.scale *= 0.5 + torch.rand(odds.n_features, generator=generator)
    pooling = network(n_inputs, (odds.n_features,), seed, n_bins).pooling
    head = Unmixing(odds.n_features, n_bins, n_classes)
    scores = torch.nn.Sequential(net.encoder, odds)
    return BagNetwork(scores, pooling, head, n_classes, prepare=net.prepare).eval()


def stretched(net: BagNetwork, factor: float) -> BagNetwork:
    """Multiply the scores."""
    with torch.no_grad():
        for parameter in net.encoder[0][-1].parameters():
            parameter *= factor
    return net


@torch.no_grad()
def wide_features(net: BagNetwork, rows: np.ndarray) -> torch.Tensor:
    """What the layers of torch give in double precision."""
    return copy.deepcopy(net).double().encode(torch.from_numpy(rows).double())


def numbers(n: int, n_inputs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_inputs)).astype(np.float32)


def features_of(net: BagNetwork, rows, used=None) -> torch.Tensor:
    return encode_rows(net, hq.Bags(rows), np.arange(rows.shape[0]) if used is None else used)


@pytest.fixture
def three_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(compiled, "_WORTH_A_THREAD", 1)
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.integers(1, 13), SIZES, st.integers(1, 500), st.booleans())
def test_compiled_layers_are_those_of_torch(seed, n_inputs, sizes, n, wide):
    net, rows = network(n_inputs, sizes, seed), numbers(n, n_inputs, seed).astype(np.float64 if wide else np.float32)
    with torch.no_grad():
        expected = net.encode(torch.from_numpy(rows))
    torch.testing.assert_close(features_of(net, rows), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [1, 30, 1e4])
@pytest.mark.parametrize("n_classes", [2, 3, 10, 28])
@pytest.mark.parametrize("hidden", [(), (64,)], ids=str)
def test_compiled_log_odds_are_the_formula(hidden, n_classes, factor):
    net, rows = stretched(odds_network(9, hidden, n_classes), factor), numbers(500, 9)
    expected = wide_features(net, rows)
    for kind in (np.float32, np.float64):
        found = features_of(net, rows.astype(kind))
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * factor)


@pytest.mark.parametrize("n_classes", [3, 28])
def test_log_odds_keep_their_digits_and_end_where_the_layer_ends_them(n_classes):
    net = odds_network(1, (), n_classes)
    with torch.no_grad():
        for parameter in net.encoder[0].parameters():
            parameter.zero_()
        net.encoder[0][-1].weight[0] = 1
    net.prepare, net.encoder[1].center[:], net.encoder[1].scale[:] = torch.nn.Identity(), 0, 1
    rows = np.linspace(-120, 120, 4801, dtype=np.float32)[:, None]
    found, expected = features_of(net, rows).double(), wide_features(net, rows)
    torch.testing.assert_close(found, expected, rtol=2e-7, atol=2e-6)
    assert found[-1, 0] < 120 - np.log(n_classes), "the others have a least share"


@pytest.mark.parametrize("sizes", [(64, 32), (7, 5), (300, 300)], ids=str)
def test_a_row_does_not_depend_on_those_beside_it(sizes, request):
    net, rows = network(9, sizes), numbers(1000, 9)
    whole, bins = features_of(net, rows), BinCounts.of(net, hq.Bags(rows))
    assert (bins is None) == (sizes == (300, 300)), "which has too many weights for compiled layers"
    request.getfixturevalue("three_threads")
    for used in (np.arange(3), np.arange(100, 611), np.array([999]), np.random.default_rng(0).permutation(1000)):
        assert torch.equal(features_of(net, rows, used), whole[used])
        if bins is not None:
            codes = bins.encode(net, hq.Bags(rows), np.arange(1000))
            assert torch.equal(bins.encode(net, hq.Bags(rows), used), codes[used])


@pytest.mark.parametrize("n_classes", [2, 3, 28])
def test_log_odds_of_a_row_do_not_depend_on_those_beside_it(n_classes, request):
    net, rows = odds_network(9, (64,), n_classes), numbers(1000, 9)
    bags, everything = hq.Bags(rows), np.arange(1000)
    bins, whole = BinCounts.of(net, bags), features_of(net, rows)
    codes = bins.encode(net, bags, everything)
    request.getfixturevalue("three_threads")
    for used in (np.arange(3), np.arange(100, 611), np.array([999]), np.random.default_rng(0).permutation(1000)):
        assert torch.equal(features_of(net, rows, used), whole[used])
        assert torch.equal(bins.encode(net, bags, used), codes[used])


@pytest.mark.parametrize("n_classes", [2, 3, 28])
def test_bins_of_log_odds_are_those_of_the_features(n_classes):
    net = odds_network(4, (20,), n_classes)
    bags = hq.Bags(numbers(400, 4), offsets=np.array([0, 1, 150, 400]))
    expected = net.pooling.partial(features_of(net, bags.rows), torch.from_numpy(bags.offsets))
    assert BinCounts.of(net, bags) is not None
    np.testing.assert_array_equal(bag_states(net, bags), expected.values.numpy())


@pytest.mark.parametrize(("n_classes", "encoder"), [(2, ()), (3, (64,))])
def test_the_default_quantifier_streams_the_bits_of_memory(n_classes, encoder):
    X, y = numbers(600, 9), np.arange(600) % n_classes
    training = hq.Training(epochs=1, bags_per_epoch=2, batch_bags=2, validation_bags=2, progress=False)
    q = hq.HistNetQ(encoder=encoder, training=training, random_state=0).fit(X + y[:, None], y)
    ids = np.random.default_rng(0).integers(20, size=600)
    bags = hq.Bags(X, np.argsort(ids, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(ids))]))
    assert BinCounts.of(q.network_, bags) is not None
    sketch = q.sketch_stream((ids[i : i + 37], X[i : i + 37]) for i in range(0, 600, 37))
    np.testing.assert_array_equal(q.predict(sketch)[np.argsort(sketch.ids)], q.predict(bags))


@pytest.mark.parametrize("squash", ["sigmoid", None])
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 99), sizes=SIZES, n_bins=st.integers(1, 32), n=st.integers(1, 400), weighted=st.booleans())
def test_bins_are_those_of_the_features(squash, seed, sizes, n_bins, n, weighted):
    net, rng = network(4, sizes, seed, n_bins, squash), np.random.default_rng(seed)
    offsets = np.unique([0, *rng.integers(n, size=3), n])
    counts = rng.integers(1, 5, size=n) if weighted else None
    bags = hq.Bags(numbers(n, 4, seed), rng.permutation(n), offsets, weights=counts)
    entries = [torch.from_numpy(bags.offsets), None if counts is None else torch.from_numpy(bags.weights)]
    expected = net.pooling.partial(features_of(net, bags.rows), *entries, torch.from_numpy(bags.index))
    found = bag_states(net, bags)
    assert BinCounts.of(net, bags) is not None
    np.testing.assert_array_equal(found, expected.values.numpy())
    np.testing.assert_array_equal(predict_states(net, found, expected.totals.numpy()), predict_bags(net, bags))


def test_thresholds_are_where_the_sigmoid_reaches_the_edges():
    layer = HardHistogram(3, 4)
    with torch.no_grad():
        layer.centers += torch.linspace(-1, 1, 12).view(3, 4) ** 3 / 3
    low, high = ((layer.centers + sign * layer.half_widths).detach() for sign in (-1, 1))
    thresholds, ranks = hard_thresholds(layer)
    edges = torch.cat([low, high], dim=1).sort(dim=1).values
    assert torch.equal(thresholds.isnan(), edges > 1), "the sigmoid is at most 1"
    assert torch.equal(thresholds == -torch.inf, edges <= 0), "and at least 0"
    inside = (edges > 0) & (edges <= 1)
    at, just_below = thresholds[inside], torch.nextafter(thresholds[inside], torch.tensor(-torch.inf))
    assert (squashed(at) >= edges[inside]).all()
    assert (squashed(just_below) < edges[inside]).all()
    assert torch.equal(edges.gather(1, ranks[:, 0] - 1), low)
    assert torch.equal(edges.gather(1, ranks[:, 3] - 1), high)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_features_that_are_no_finite_numbers_fall_where_the_layer_puts_them(value):
    net = network(1, (2,), n_bins=4)
    bags = hq.Bags.trusted(np.array([[value]], np.float32), np.arange(1), np.array([0, 1]))
    expected = net.pooling.partial(encode_rows(net, bags, np.arange(1)), torch.tensor([0, 1]))
    np.testing.assert_array_equal(bag_states(net, bags), expected.values.numpy())


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -3e38])
def test_log_odds_of_what_is_not_finite_are_those_of_the_layer(n_classes, value):
    net = odds_network(1, (), n_classes)
    with torch.no_grad():
        net.encoder[0][-1].weight[:] = torch.eye(n_classes)[:, :1]  # the other classes stay finite, or are no number
        expected = net.encode(torch.tensor([[value]]))
    bags = hq.Bags.trusted(np.array([[value]], np.float32), np.arange(1), np.array([0, 1]))
    torch.testing.assert_close(encode_rows(net, bags, np.arange(1)), expected, equal_nan=True)


@pytest.mark.parametrize(
    "hold",
    [
        np.asfortranarray, sparse.csr_matrix, lambda rows: rows.astype(">f4"), lambda rows: rows[:, :, None],
        lambda rows: np.repeat(rows, 2, axis=0)[::2], lambda rows: rows.astype(np.int8), lambda rows: rows.astype("f2"),
    ],
    ids=["columns first", "sparse", "big-endian", "images", "every other row", "int8", "float16"],
)  # fmt: skip
@pytest.mark.parametrize("net", [network(9, (8, 4)), odds_network(9, (8,), 3)], ids=["features", "log-odds"])
def test_whatever_holds_the_rows(hold, net, monkeypatch):
    monkeypatch.setattr(encoding, "_CONVERTED_AT_ONCE", 500)
    rows = numbers(300, 9).round()
    for name in ("mean", "rest", "scale"):  # a number for each of the pixels, which stand in a column
        net.prepare.register_buffer(name, net.prepare.get_buffer(name).view(hold(rows).shape[1:]))
    found = features_of(net, hold(rows))
    for name in ("mean", "rest", "scale"):
        net.prepare.register_buffer(name, net.prepare.get_buffer(name).view(9))
    assert torch.equal(found, features_of(net, rows))


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.double(),
        lambda net: setattr(net, "encoder", torch.nn.Sequential(torch.nn.Linear(9, 4))),
        lambda net: setattr(net, "prepare", torch.nn.Tanh()),
        lambda net: net.encoder.append(torch.nn.Softmax(1)),
        lambda net: setattr(net, "pooling", Mean(4)),
        lambda net: setattr(net, "pooling", HardHistogram(4, n_bins=33)),
    ],
    ids=["double", "encoder", "preparation", "layer", "pooling", "bins"],
)
def test_other_networks_take_the_way_of_torch(change):
    net, rows = network(9, (8, 4)), numbers(300, 9)
    change(net)
    assert BinCounts.of(net, hq.Bags(rows)) is None
    with torch.no_grad():
        expected = net.encode(torch.from_numpy(rows))
    torch.testing.assert_close(features_of(net, rows), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.double(),
        lambda net: net.encoder.append(torch.nn.Tanh()),
        lambda net: net.encoder.insert(1, torch.nn.Tanh()),
        lambda net: setattr(net.encoder, "0", torch.nn.Sequential(net.encoder[0])),
        lambda net: setattr(net.encoder, "1", torch.nn.Softmax(1)),
        lambda net: setattr(net.encoder[0], "1", torch.nn.Linear(9, 1)),
        lambda net: (setattr(net, "encoder", odds_network(9, (), 1).encoder), setattr(net, "pooling", Mean(1))),
    ],
    ids=["double", "layer after", "layer between", "scores", "no log-odds", "one score", "one class"],
)
def test_other_layers_about_log_odds_take_the_way_of_torch(change):
    net, rows = odds_network(9, (), 3), numbers(300, 9)
    change(net)
    assert BinCounts.of(net, hq.Bags(rows)) is None
    with torch.no_grad():
        expected = net.encode(torch.from_numpy(rows))
    torch.testing.assert_close(features_of(net, rows), expected)


def test_plain_kernels_take_the_way_of_torch(monkeypatch):
    monkeypatch.setattr(dense_compiled, "encode", None)
    with using("plain"):
        assert BinCounts.of(network(9, (8, 4)), hq.Bags(numbers(9, 9))) is None
        assert features_of(network(9, (8, 4)), numbers(9, 9)).shape == (9, 4)
