"""Fully connected layers for the CPU, compiled by numba, which compute features of rows, or the bins of these features.

The features are the outputs of the last layer, or the log-odds of the classes whose scores are its outputs.

Matrix products of a library round differently for different numbers of rows. Here every number is the sum of the same
products in the same order, for any number of rows and any position of a row. Tiles of rows stay in the cache from the
first layer to the codes, with contiguous values of each feature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from histnetq.kernels.compiled import run_pieces
from histnetq.kernels.jit import njit

_TILE = 192  # rows: not a power of two, so that rows of arrays do not compete for the same cache sets
_STEP = 4  # inputs and thresholds processed together; both are padded to a multiple
_LEAST_OTHERS = np.float32(-math.expm1(-1e-7))  # least share of all other classes, as in `histnetq.nn.LogOdds`
_LOWEST = np.float32(-87)  # its exponential is negligible next to 1, and still has full precision
_LN2, _PER_LN2 = np.float32(math.log(2)), np.float32(1 / math.log(2))
# log 2 in two parts, as whole multiples of the first are exact.
_LN2_HIGH, _LN2_LOW = np.float32(355 / 512), np.float32(math.log(2) - 355 / 512)
_ROUNDING = np.float32(3 << 22)  # adding it rounds a number, and leaves the whole number in the last bits
_EXP = tuple(np.float32(1 / math.factorial(i)) for i in range(8))
_ATANH = tuple(np.float32(2 / i) for i in (1, 3, 5, 7, 9))


class Layers(NamedTuple):
    """Layers in flat arrays, as `pack` returns them; `sizes` has the number of inputs and the size of each layer."""

    mean: np.ndarray
    rest: np.ndarray
    scale: np.ndarray
    sizes: np.ndarray
    weights: np.ndarray
    biases: np.ndarray
    slopes: np.ndarray
    odds_center: np.ndarray
    odds_scale: np.ndarray


def pack(
    scaling: Sequence[Tensor], layers: Sequence[tuple[Tensor, Tensor, float]], odds: tuple[Tensor, Tensor] | None = None
) -> Layers:
    """Prepare layers for the kernels.

    Parameters
    ----------
    scaling : mean, rest, scale, each of shape (n_inputs,)
        A row x becomes ``(x − mean − rest) / scale`` first.
    layers : sequence of (weight, bias, slope)
        Of shapes (n_outputs, n_inputs) and (n_outputs,); negative results are multiplied by the slope.
    odds : (center, scale), optional
        With it, the outputs of the last layer are scores of classes, and features are their log-odds, minus the centre,
        divided by the scale: one per class, or for two classes only the log-odds of the second class.
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
    parts = *scaling, torch.cat(weights), torch.cat(biases), *(odds or (torch.empty(0), torch.empty(0)))
    mean, rest, scale, w, b, center, spread = (part.detach().numpy() for part in parts)
    return Layers(mean, rest, scale, np.array(sizes), w, b, slopes, center, spread)


def encode(rows: np.ndarray, index: np.ndarray, layers: Layers, features: Tensor) -> None:
    """Compute the features of these rows into a contiguous array of float32 or float64, (len(index), n_outputs)."""
    _run(_features, rows, index, layers, features)


def encode_bins(rows: np.ndarray, index: np.ndarray, layers: Layers, thresholds: Tensor, codes: Tensor) -> None:
    """For each row in `index` and each feature, count the thresholds that are at most the value of the feature.

    The thresholds are (n_outputs, n), and the counts are written to `codes`, (len(index), n_outputs). A threshold of
    NaN is not counted.
    """
    fill = -thresholds.shape[1] % _STEP
    _run(_bins, rows, index, layers, torch.nn.functional.pad(thresholds, (0, fill), value=torch.nan), codes)


def _run(kernel: Callable[..., None], rows: np.ndarray, index: np.ndarray, layers: Layers, *tensors: Tensor) -> None:
    n_tiles, n_numbers = -(-len(index) // _TILE), len(index) * len(layers.weights)
    run_pieces(n_tiles, n_numbers, kernel, rows, index, *layers, *tensors)


@njit(cache=True, nogil=True)
def _features(start, stop, rows, index, mean, rest, scale, sizes, weights, biases, slopes, center, spread, out):
    x, hidden, room = _room(sizes, len(center))
    for tile in range(start, stop):
        first = tile * _TILE
        n = min(_TILE, len(index) - first)
        _load(rows, index[first : first + n], mean, rest, scale, x)
        y = _forward(x, hidden, sizes, weights, biases, slopes)
        _log_odds(y, center, spread, room)
        for r in range(n):
            for k in range(out.shape[1]):
                out[first + r, k] = y[k, r]


@njit(cache=True, nogil=True)
def _bins(
    start, stop, rows, index, mean, rest, scale, sizes, weights, biases, slopes, center, spread, thresholds, codes
):
    x, hidden, room = _room(sizes, len(center))
    n_features = codes.shape[1]
    reached = np.zeros((n_features, _TILE), np.int32)
    for tile in range(start, stop):
        first = tile * _TILE
        n = min(_TILE, len(index) - first)
        _load(rows, index[first : first + n], mean, rest, scale, x)
        y = _forward(x, hidden, sizes, weights, biases, slopes)
        _log_odds(y, center, spread, room)
        for k in range(n_features):
            _reach(y[k], thresholds[k], reached[k])
        for r in range(n):
            for k in range(n_features):
                codes[first + r, k] = reached[k, r]


@njit(cache=True, nogil=True)
def _room(sizes, n_odds):
    # Inputs have their own array, so that the padding up to a multiple of the step stays zero.
    x, hidden = np.zeros((sizes[0], _TILE), np.float32), np.zeros((2, sizes.max(), _TILE), np.float32)
    return x, hidden, np.zeros((2 * n_odds + 3, _TILE), np.float32)


@njit(cache=True, nogil=True)
def _load(rows, index, mean, rest, scale, x):
    for r in range(len(index)):
        row = rows[index[r]]
        for k in range(len(row)):
            x[k, r] = (row[k] - mean[k] - rest[k]) / scale[k]


@njit(cache=True, nogil=True)
def _forward(x, hidden, sizes, weights, biases, slopes):
    """Apply all layers, alternating between the two halves of `hidden`."""
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
        # A product, as the compiler does not vectorise a choice of two values.
        values[i] *= one if values[i] > zero else slope


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def _log_odds(y, center, spread, room):
    """Replace scores by centred and scaled log-odds, in place; without a centre, y is unchanged.

    The log-odds of class c are ``s_c − log Σ_{j≠c} exp(s_j)``. The sum leaves out c itself, as one minus a share of
    nearly one would have no correct digits.
    """
    n = len(center)
    if n == 1:
        for r in range(_TILE):
            y[0, r] = (y[1, r] - y[0, r] - center[0]) / spread[0]
    if n < 2:
        return
    parts, after, top, total, before = room[:n], room[n : 2 * n], room[2 * n], room[2 * n + 1], room[2 * n + 2]
    top[:], total[:], before[:] = y[0], 0, 0
    for k in range(1, n):
        for r in range(_TILE):
            top[r] = max(top[r], y[k, r])
    for k in range(n - 1, -1, -1):
        after[k] = total
        for r in range(_TILE):
            y[k, r] -= top[r]
            parts[k, r] = exp_at_most_zero(y[k, r])
            total[r] += parts[k, r]
    for k in range(n):
        for r in range(_TILE):
            others = max(before[r] + after[k, r], _LEAST_OTHERS * total[r])
            y[k, r] = (y[k, r] - _log(others) - center[k]) / spread[k]
            before[r] += parts[k, r]


# The compiler vectorises these two functions, but not calls of a library. NaN stays NaN.
@njit(cache=True, nogil=True, inline="always")
def exp_at_most_zero(x):
    """Return the exponential of a float32 of at most zero: 2ⁿ times a series, with n in the last bits of a sum."""
    x = max(x, _LOWEST)
    shifted = np.float32(x * _PER_LN2 + _ROUNDING)
    n = shifted - _ROUNDING
    x = (x - n * _LN2_HIGH) - n * _LN2_LOW
    series = ((_EXP[7] * x + _EXP[6]) * x + _EXP[5]) * x + _EXP[4]
    series = (((series * x + _EXP[3]) * x + _EXP[2]) * x + _EXP[1]) * x + _EXP[0]
    return series * np.int32((shifted.view(np.int32) << 23) + 0x3F800000).view(np.float32)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _log(x):
    """Return the logarithm of x = 2ⁿ m > 0, with m from √½ to √2 and log m = 2 atanh((m − 1) / (m + 1))."""
    n = np.int32(np.int32(np.float32(x).view(np.int32) - 0x3F3504F3) >> 23)
    m = x * np.int32((127 - n) << 23).view(np.float32)
    part = (m - np.float32(1)) / (m + np.float32(1))
    square = part * part
    series = ((_ATANH[4] * square + _ATANH[3]) * square + _ATANH[2]) * square + _ATANH[1]
    return np.float32(n) * _LN2 + part * (series * square + _ATANH[0])


@njit(cache=True, nogil=True)
def _reach(values, thresholds, reached):
    """Count the thresholds at or below each value; comparing with all is faster than a search among few."""
    reached[:] = 0
    for t in range(0, len(thresholds), 4):
        t0, t1, t2, t3 = thresholds[t], thresholds[t + 1], thresholds[t + 2], thresholds[t + 3]
        for r in range(_TILE):
            v = values[r]
            reached[r] += np.int32(v >= t0) + np.int32(v >= t1) + np.int32(v >= t2) + np.int32(v >= t3)
