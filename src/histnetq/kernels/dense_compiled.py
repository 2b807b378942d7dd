"""Fully connected layers for the CPU, compiled by numba: rows → features, or the bins that the features fall into.

Matrix products of a library round differently for different numbers of rows. Here every number is the sum of the same
products in the same order, however many rows there are and wherever a row stands among them. Tiles of rows stay in the
first-level cache from the first layer to the codes, with a feature's values of all rows of the tile side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from histnetq.kernels.compiled import run_pieces
from histnetq.kernels.precision import code_dtype

_TILE = 128  # rows
_STEP = 4  # inputs and thresholds handled together; the numbers of both are filled up to a multiple


class Layers(NamedTuple):
    """What `pack` makes of layers: `sizes` of inputs and of each layer, the rest after one another in flat arrays."""

    mean: np.ndarray
    rest: np.ndarray
    scale: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    slopes: np.ndarray
    n_outputs: int


def pack(scaling: Sequence[Tensor], layers: Sequence[tuple[Tensor, Tensor, float]]) -> Layers:
    """Prepare layers for the kernels.

    Parameters
    ----------
    scaling : mean, rest, scale, each of shape (n_inputs,)
        A row x becomes ``(x − mean − rest) / scale`` first.
    layers : sequence of (weight, bias, slope)
        Of shapes (n_outputs, n_inputs) and (n_outputs,); negative results are multiplied by the slope, 1 for none.
    """
    widths = [layers[0][0].shape[1], *(len(bias) for _, bias, _ in layers)]
    sizes = [-(-width // _STEP) * _STEP for width in widths]
    weights, biases = [], []
    for (weight, bias, _), n_in, n_out in zip(layers, sizes[:-1], sizes[1:], strict=True):
        filled = weight.new_zeros((n_out, n_in))
        filled[: len(weight), : weight.shape[1]] = weight
        weights.append(filled.flatten())
        biases.append(torch.nn.functional.pad(bias, (0, n_out - len(bias))))
    slopes = np.array([slope for _, _, slope in layers], np.float32)
    arrays = [part.detach().numpy() for part in (*scaling, torch.cat(weights), torch.cat(biases))]
    return Layers(*arrays[:3], np.array(sizes), *arrays[3:], slopes, widths[-1])


def encode(rows: np.ndarray, index: np.ndarray, layers: Layers) -> Tensor:
    """Features ``(len(index), n_outputs)`` of these rows, which are contiguous arrays of float32 or float64."""
    features = torch.empty((len(index), layers.n_outputs))
    _run(_features, rows, index, layers, features)
    return features


def encode_bins(rows: np.ndarray, index: np.ndarray, layers: Layers, thresholds: Tensor) -> Tensor:
    """Number of thresholds ``(n_outputs, n)`` at or below each feature: ``(len(index), n_outputs)`` of small integers.

    A threshold of NaN is never reached.
    """
    codes = torch.empty((len(index), layers.n_outputs), dtype=code_dtype(thresholds.shape[1]))
    fill = -thresholds.shape[1] % _STEP
    _run(_bins, rows, index, layers, torch.nn.functional.pad(thresholds, (0, fill), value=torch.nan), codes)
    return codes


def _run(kernel, rows, index, layers, *args):  # type: ignore[no-untyped-def]
    n_tiles, n_numbers = -(-len(index) // _TILE), len(index) * len(layers.weights)
    run_pieces(n_tiles, n_numbers, kernel, rows, index, *layers[:-1], *args)


@njit(cache=True, nogil=True)
def _features(start, stop, rows, index, mean, rest, scale, sizes, weights, biases, slopes, out):
    x, hidden = _room(sizes)
    for tile in range(start, stop):
        first = tile * _TILE
        n = min(_TILE, len(index) - first)
        _load(rows, index[first : first + n], mean, rest, scale, x)
        y = _forward(x, hidden, sizes, weights, biases, slopes)
        for r in range(n):
            for k in range(out.shape[1]):
                out[first + r, k] = y[k, r]


@njit(cache=True, nogil=True)
def _bins(start, stop, rows, index, mean, rest, scale, sizes, weights, biases, slopes, thresholds, codes):
    x, hidden = _room(sizes)
    n_features = codes.shape[1]
    reached = np.zeros((n_features, _TILE), np.int32)
    for tile in range(start, stop):
        first = tile * _TILE
        n = min(_TILE, len(index) - first)
        _load(rows, index[first : first + n], mean, rest, scale, x)
        y = _forward(x, hidden, sizes, weights, biases, slopes)
        for k in range(n_features):
            _reach(y[k], thresholds[k], reached[k])
        for r in range(n):
            for k in range(n_features):
                codes[first + r, k] = reached[k, r]


@njit(cache=True, nogil=True)
def _room(sizes):
    # Inputs have a place of their own: those that fill up to a multiple of the step stay zero.
    return np.zeros((sizes[0], _TILE), np.float32), np.zeros((2, sizes.max(), _TILE), np.float32)


@njit(cache=True, nogil=True)
def _load(rows, index, mean, rest, scale, x):
    for r in range(len(index)):
        row = rows[index[r]]
        for k in range(len(row)):
            x[k, r] = (row[k] - mean[k] - rest[k]) / scale[k]


@njit(cache=True, nogil=True)
def _forward(x, hidden, sizes, weights, biases, slopes):
    """All layers, from one half of `hidden` to the other."""
    at_weight, at_bias = 0, 0
    for i in range(len(slopes)):
        n_in, n_out = sizes[i], sizes[i + 1]
        y = hidden[i % 2]
        w = weights[at_weight : at_weight + n_out * n_in].reshape((n_out, n_in))
        _multiply(x, w, biases[at_bias : at_bias + n_out], y)
        if slopes[i] != 1:
            _leak(y[:n_out].reshape(-1), slopes[i])
        x, at_weight, at_bias = y, at_weight + n_out * n_in, at_bias + n_out
    return x


@njit(cache=True, nogil=True, fastmath={"contract"})
def _multiply(x, w, bias, y):
    """y = w x + bias, four inputs and two outputs at a time, which keeps their weights in registers."""
    n_out, n_in = w.shape
    for j in range(0, n_out, 2):
        y0, y1 = y[j], y[j + 1]
        for r in range(_TILE):
            y0[r] = bias[j]
        for r in range(_TILE):
            y1[r] = bias[j + 1]
        for k in range(0, n_in, 4):
            a0, a1, a2, a3 = w[j, k], w[j, k + 1], w[j, k + 2], w[j, k + 3]
            b0, b1, b2, b3 = w[j + 1, k], w[j + 1, k + 1], w[j + 1, k + 2], w[j + 1, k + 3]
            x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
            for r in range(_TILE):
                y0[r] = (((y0[r] + a0 * x0[r]) + a1 * x1[r]) + a2 * x2[r]) + a3 * x3[r]
                y1[r] = (((y1[r] + b0 * x0[r]) + b1 * x1[r]) + b2 * x2[r]) + b3 * x3[r]


@njit(cache=True, nogil=True)
def _leak(values, slope):
    zero, one = np.float32(0), np.float32(1)
    for i in range(len(values)):
        # A product, as a choice of two values is not made into vector instructions.
        values[i] *= one if values[i] > zero else slope


@njit(cache=True, nogil=True)
def _reach(values, thresholds, reached):
    """Number of thresholds at or below each value: comparing with all of them is faster than searching few."""
    reached[:] = 0
    for t in range(0, len(thresholds), 4):
        t0, t1, t2, t3 = thresholds[t], thresholds[t + 1], thresholds[t + 2], thresholds[t + 3]
        for r in range(_TILE):
            v = values[r]
            reached[r] += np.int32(v >= t0) + np.int32(v >= t1) + np.int32(v >= t2) + np.int32(v >= t3)
