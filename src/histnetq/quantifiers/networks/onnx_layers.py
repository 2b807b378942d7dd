"""Networks as ONNX graphs: from rows to features and, where possible, to the estimate of all rows as one bag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.errors import InputTypeError
from histnetq.nn.encoders import CNN, MLP, Dropout, Standardize, StandardizeScores
from histnetq.nn.histograms import (
    Cumulative,
    HardHistogram,
    RBFHistogram,
    SigmoidHistogram,
    SmoothHistogram,
    SoftHistogram,
    hard_thresholds,
)
from histnetq.nn.network import BagNetwork
from histnetq.nn.pooling import Max, Mean
from histnetq.nn.unmixing import LogOdds
from histnetq.persistence.onnx_graphs import OnnxGraph, layer, softmax

_LEAST_SCORE = 1e-4  # as in `StandardizeScores`


def draw_network(graph: OnnxGraph, network: BagNetwork, n_classes: int, row_output: str) -> None:
    """Draw a network; the outputs are the features of each row and, if each layer can be drawn, the estimate."""
    rows = graph.cast(_draw(graph, "rows", network.prepare), np.float32)
    features = _draw(graph, rows, network.encoder)
    graph.output(features, row_output, np.float32, ("n_rows", network.pooling.n_features))
    if type(network.pooling) not in _POOLED or network.head is None or not _can_draw(network.head):
        return
    pooled = _POOLED[type(network.pooling)](graph, features, network.pooling)
    shares = softmax(graph, _draw(graph, pooled, network.head))
    graph.output(shares, "prevalences", np.float32, (1, n_classes))


def _can_draw(module: nn.Module) -> bool:
    if type(module) in (nn.Sequential, MLP):
        return all(map(_can_draw, module.children()))
    return type(module) in _LAYERS


def _draw(graph: OnnxGraph, rows: str, module: nn.Module) -> str:
    """Draw a layer, and return the name of its result."""
    if type(module) in _LAYERS:
        return _LAYERS[type(module)](graph, rows, module)
    if type(module) not in (nn.Sequential, MLP):
        expected, way_out = "layers of this library", "export a module of your own by torch.onnx"
        raise InputTypeError("encoder", expected, type(module).__name__, way_out)
    for part in module.children():
        rows = _draw(graph, rows, part)
    return rows


def _numbers(tensor: Any) -> NDArray:
    """Return a tensor as an array of single precision."""
    assert isinstance(tensor, Tensor)
    return tensor.detach().cpu().float().numpy()


def _standardize(graph: OnnxGraph, rows: str, module: Standardize) -> str:
    mean, rest, scale = (_numbers(module.get_buffer(name)).astype(np.float64) for name in ("mean", "rest", "scale"))
    centred = graph.node("Sub", rows, graph.constant(mean + rest))
    return graph.node("Div", centred, graph.constant(scale))


def _standardize_scores(graph: OnnxGraph, rows: str, module: StandardizeScores) -> str:
    logs = graph.node("Log", graph.node("Max", rows, graph.constant(_LEAST_SCORE, np.float64)))
    odds = graph.node("Sub", logs, graph.node("ReduceMean", logs, axes=[1]))
    return _standardize(graph, odds, module)


def _linear(graph: OnnxGraph, rows: str, module: nn.Linear) -> str:
    bias = np.zeros(module.out_features, np.float32) if module.bias is None else _numbers(module.bias)
    return layer(graph, rows, _numbers(module.weight).T, bias)


def _leaky_relu(graph: OnnxGraph, rows: str, module: nn.LeakyReLU) -> str:
    return graph.node("LeakyRelu", rows, alpha=module.negative_slope)


def _cnn(graph: OnnxGraph, rows: str, module: CNN) -> str:
    """Draw the encoder of images: convolutions that keep the size of an image, each followed by pooling of 2 × 2."""
    images = graph.node("Reshape", rows, graph.constant([-1, *module.input_shape], np.int64))
    for part in module.convolutions:
        if isinstance(part, nn.Conv2d):
            weights, bias = (graph.constant(_numbers(numbers)) for numbers in (part.weight, part.bias))
            filtered = graph.node("Conv", images, weights, bias, pads=[2, 2, 2, 2])
            images = graph.node("MaxPool", graph.node("Relu", filtered), kernel_shape=[2, 2], strides=[2, 2])
    return _linear(graph, graph.node("Flatten", images), module.dense)


def _log_odds(graph: OnnxGraph, rows: str, module: LogOdds) -> str:
    if module.n_features == 1:
        odds = graph.node("MatMul", rows, graph.constant([[-1.0], [1.0]], np.float32))
    else:
        # In double precision, one form of log(1 − exp(x)) has enough digits.
        shares = graph.node("LogSoftmax", graph.cast(rows, np.float64), axis=1)
        largest = graph.constant(-1e-7, np.float64)
        others = graph.node(
            "Sub", graph.constant(1.0, np.float64), graph.node("Exp", graph.node("Min", shares, largest))
        )
        odds = graph.cast(graph.node("Sub", shares, graph.node("Log", others)), np.float32)
    center, scale = (graph.constant(_numbers(module.get_buffer(name))) for name in ("center", "scale"))
    return graph.node("Div", graph.node("Sub", odds, center), scale)


def _cumulative(graph: OnnxGraph, histograms: str, module: Cumulative) -> str:
    n_bins = module.n_bins
    each = graph.node("Reshape", histograms, graph.constant([1, -1, n_bins], np.int64))
    sums = graph.node("MatMul", each, graph.constant(np.triu(np.ones((n_bins, n_bins))), np.float32))
    moved = graph.node("Sub", sums, graph.constant(np.arange(1, n_bins + 1) / n_bins, np.float32))
    return graph.node("Flatten", moved)


def _flatten(graph: OnnxGraph, rows: str, module: nn.Flatten) -> str:
    if (module.start_dim, module.end_dim) != (1, -1):
        raise InputTypeError("encoder", "a flatten layer of all dimensions", str(module), "export it by torch.onnx")
    return graph.node("Flatten", rows)


def _as_it_is(graph: OnnxGraph, rows: str, module: nn.Module) -> str:
    return rows


_LAYERS: dict[type[nn.Module], Callable[[OnnxGraph, str, Any], str]] = {
    Standardize: _standardize,
    StandardizeScores: _standardize_scores,
    nn.Linear: _linear,
    nn.LeakyReLU: _leaky_relu,
    nn.ReLU: lambda graph, rows, module: graph.node("Relu", rows),
    nn.Flatten: _flatten,
    Dropout: _as_it_is,
    nn.Dropout: _as_it_is,
    CNN: _cnn,
    LogOdds: _log_odds,
    Cumulative: _cumulative,
    nn.Identity: _as_it_is,
}


def _mean(graph: OnnxGraph, features: str, pooling: Mean) -> str:
    return graph.node("ReduceMean", features, axes=[0])


def _maximum(graph: OnnxGraph, features: str, pooling: Max) -> str:
    return graph.node("ReduceMax", features, axes=[0])


def _hard(graph: OnnxGraph, features: str, pooling: HardHistogram) -> str:
    """Draw hard histograms by the features at which a row enters and leaves a bin, so that no sigmoid is rounded."""
    thresholds, ranks = (tensor.numpy() for tensor in hard_thresholds(pooling))
    # The value at the rank of an edge; no value reaches NaN.
    starts, ends = (np.take_along_axis(thresholds, ranks[:, j] - 1, axis=1) for j in (0, 3))
    starts, ends = (np.where(np.isnan(edges), np.inf, edges) for edges in (starts, ends))

    def share(b: int) -> str:
        inside = graph.node("GreaterOrEqual", features, graph.constant(starts[:, b]))
        before = graph.node("Less", features, graph.constant(ends[:, b]))
        return graph.cast(graph.node("And", inside, before), np.float32)

    return _histograms(graph, share, pooling.n_bins)


def _smooth(graph: OnnxGraph, features: str, pooling: SmoothHistogram) -> str:
    values = graph.node("Sigmoid", features) if pooling.squash else features
    centers, scales = (_numbers(tensor) for tensor in pooling.bins())
    one, zero = graph.constant(1.0, np.float32), graph.constant(0.0, np.float32)

    def share(b: int) -> str:
        gap = graph.node("Sub", values, graph.constant(centers[:, b]))
        if pooling.kind == "sigmoid":
            width, gamma = graph.constant(scales[:, b]), graph.constant(pooling.gamma, np.float32)
            low, high = (graph.node("Mul", graph.node(sign, gap, width), gamma) for sign in ("Add", "Sub"))
            return graph.node("Sub", graph.node("Sigmoid", low), graph.node("Sigmoid", high))
        scaled = graph.node("Mul", gap, graph.constant(scales[:, b]))
        if pooling.kind == "rbf":
            return graph.node("Exp", graph.node("Neg", graph.node("Mul", scaled, scaled)))
        return graph.node("Max", graph.node("Sub", one, graph.node("Abs", scaled)), zero)

    return _histograms(graph, share, pooling.n_bins)


def _histograms(graph: OnnxGraph, share: Callable[[int], str], n_bins: int) -> str:
    """Draw the mean over all rows of their shares in each bin, one bin at a time, so that no array has all bins."""
    means = [graph.node("ReduceMean", share(b), axes=[0]) for b in range(n_bins)]  # (1, n_features) each
    last = graph.constant([2], np.int64)
    each = [graph.node("Unsqueeze", mean, last) for mean in means]
    return graph.node("Flatten", graph.node("Concat", *each, axis=2))


_POOLED: dict[type, Callable[[OnnxGraph, str, Any], str]] = {
    Mean: _mean,
    Max: _maximum,
    HardHistogram: _hard,
    SoftHistogram: _smooth,
    RBFHistogram: _smooth,
    SigmoidHistogram: _smooth,
}
