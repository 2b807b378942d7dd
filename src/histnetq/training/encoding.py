"""Encoding of pool rows as features or as bins, such that the result of a row depends on this row only."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import take_dense
from histnetq.kernels import backend, compiled_kernels
from histnetq.kernels.plain import Entries
from histnetq.kernels.precision import code_dtype, widest
from histnetq.nn import MLP, BagNetwork, HardHistogram, LogOdds, Standardize
from histnetq.nn.histograms import hard_thresholds
from histnetq.nn.pooling import PoolingState, bag_totals

# The encoder takes blocks of one size, padded with zeros: matrix products round differently for different numbers of
# rows, and a value that crosses a bin edge by rounding would change the estimate.
_BLOCK_ROWS = 256
_FEATURES_IN_MEMORY = 1 << 28  # numbers; more features are written to a temporary file
_CONVERTED_AT_ONCE = 1 << 22  # numbers in the rows that are converted for the compiled layers
_MOST_WEIGHTS = 1 << 15  # with more weights, torch is faster than the compiled layers
_MOST_BINS = 32  # with more bins, a binary search is faster than one comparison per bin


@torch.inference_mode()
def encode_rows(network: BagNetwork, bags: Bags, used: NDArray[np.int64]) -> Tensor:
    """Return the features ``(len(used), n_features)`` of some pool rows; very many are kept in a temporary file."""
    parameter = next(network.parameters())
    features = _allocate(len(used), network, parameter.dtype)
    kernels = compiled_kernels(parameter, "dense_")
    layers = None if kernels is None else _layers(network, kernels, bags)
    if kernels is not None and layers is not None:
        for part, rows, index in _plain_rows(bags, used):
            kernels.encode(rows, index, layers, features[part])
        return features
    for start in range(0, len(used), _BLOCK_ROWS):
        block = rows_tensor(bags, used[start : start + _BLOCK_ROWS], parameter.device, parameter.dtype)
        features[start : start + len(block)] = network.encode(fill_up(block, _BLOCK_ROWS))[: len(block)]
    return features


@dataclass(frozen=True)
class BinCounts:
    """Counts in hard bins, where the compiled encoder writes the bin of each feature instead of the feature itself.

    The kernels are of the family "dense\\_", the layers are in the form that they take, and the thresholds and ranks of
    the bin edges are from `hard_thresholds`.
    """

    kernels: Any
    layers: Any
    thresholds: Tensor
    ranks: Tensor

    @classmethod
    def of(cls, network: BagNetwork, bags: Bags) -> BinCounts | None:
        """Build the counts for a network; return None if its layers or its pooling are not supported."""
        pooling, kernels = network.pooling, compiled_kernels(next(network.parameters()), "dense_")
        if kernels is None or type(pooling) is not HardHistogram or pooling.n_bins > _MOST_BINS:
            return None
        layers = _layers(network, kernels, bags)
        return None if layers is None else cls(kernels, layers, *hard_thresholds(pooling))

    def encode(self, network: BagNetwork, bags: Bags, used: NDArray[np.int64]) -> Tensor:
        """Return the codes ``(len(used), n_features)`` of some pool rows, for `count`."""
        codes = _allocate(len(used), network, code_dtype(self.thresholds.shape[1]))
        for part, rows, index in _plain_rows(bags, used):
            self.kernels.encode_bins(rows, index, self.layers, self.thresholds, codes[part])
        return codes

    def count(self, codes: Tensor, offsets: Tensor, weights: Tensor | None, index: Tensor) -> PoolingState:
        """Return the pooling state of the bags, from the codes of their rows."""
        values = backend(self.thresholds).hard_count(codes, self.ranks, Entries(index, offsets, weights))
        return PoolingState(values, bag_totals(offsets, weights))


def rows_tensor(bags: Bags, used: NDArray[np.int64], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return some pool rows as a dense tensor, in the type that they are standardised in."""
    found = bags.rows.dtype
    # Values such as coordinates in metres need float64 until the mean is subtracted.
    wide = found.itemsize > 4 or (found.kind in "iu" and found.itemsize == 4)
    # numpy converts them, because it supports every number type and byte order.
    kind = _numpy_name(widest(device) if wide else dtype)
    return torch.from_numpy(np.ascontiguousarray(take_dense(bags.rows, used), dtype=kind)).to(device)


def fill_up(block: Tensor, n: int) -> Tensor:
    """Pad a block with rows of zeros to n rows."""
    return block if len(block) == n else torch.cat([block, block.new_zeros((n - len(block), *block.shape[1:]))])


def _allocate(n_rows: int, network: BagNetwork, dtype: torch.dtype) -> Tensor:
    """Return an uninitialised tensor for features; a very large one is in a temporary file."""
    shape = (n_rows, network.pooling.n_features)
    if math.prod(shape) <= _FEATURES_IN_MEMORY:
        return torch.empty(shape, dtype=dtype, device=next(network.parameters()).device)
    with tempfile.TemporaryFile() as file:  # the memory map outlives the closed file, and frees the disk at its end
        return torch.from_numpy(np.memmap(file, dtype=_numpy_name(dtype), mode="w+", shape=shape))


def _layers(network: BagNetwork, kernels: Any, bags: Bags) -> Any:
    """Convert the network's standardisation and encoder for the compiled kernels; None if they are not supported."""
    prepare, encoder, odds = network.prepare, network.encoder, None
    if type(encoder) is nn.Sequential and [type(part) for part in encoder] == [MLP, LogOdds]:
        encoder, odds = encoder
    if type(encoder) is not MLP or type(prepare) not in (nn.Identity, Standardize):
        return None
    layers: list[tuple[Tensor, Tensor, float]] = []
    for module in encoder:
        if isinstance(module, nn.Linear) and module.weight.dtype == torch.float32:
            layers.append((module.weight, module.bias, 1.0))
        elif isinstance(module, nn.LeakyReLU):
            layers[-1] = (*layers[-1][:2], module.negative_slope)
        elif not isinstance(module, nn.Flatten | nn.Dropout):
            return None
    if sum(weight.numel() for weight, _, _ in layers) > _MOST_WEIGHTS:
        return None
    if odds is not None and len(layers[-1][1]) != (2 if odds.n_features == 1 else odds.n_features):
        return None
    shape = bags.rows.shape[1:]
    if isinstance(prepare, Standardize):
        scaling = [prepare.get_buffer(name).expand(shape).flatten() for name in ("mean", "rest", "scale")]
    else:
        scaling = [torch.full(shape, number).flatten() for number in (0.0, 0.0, 1.0)]
    return kernels.pack(scaling, layers, odds and (odds.get_buffer("center"), odds.get_buffer("scale")))


def _plain_rows(bags: Bags, used: NDArray[np.int64]) -> Iterator[tuple[slice, NDArray, NDArray[np.int64]]]:
    """Yield slices of `used`, flat float32 or float64 arrays that contain these rows, and their row numbers there."""
    rows = bags.rows
    plain = isinstance(rows, np.ndarray) and rows.dtype in (np.float32, np.float64) and rows.dtype.isnative
    if plain and rows.flags.c_contiguous and rows.flags.aligned:
        yield slice(None), np.asarray(rows).reshape(len(rows), -1), used
        return
    step = max(1, _CONVERTED_AT_ONCE // bags.n_features)
    for start in range(0, len(used), step):
        some = slice(start, start + step)
        part = rows_tensor(bags, used[some], torch.device("cpu"), torch.float32).flatten(1).numpy()
        yield some, part, np.arange(len(part))


def _numpy_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
