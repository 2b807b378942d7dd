"""Batches of tensors from `Bags`, and prevalences of `Bags` from a network; each pool row is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.kernels.precision import widest
from histnetq.nn import BagNetwork, MergeablePooling
from histnetq.nn.pooling import PoolingState
from histnetq.training.encoding import BinCounts, encode_rows, fill_up, rows_tensor

_BLOCK_BAGS = 32  # the head takes blocks of one size, because the rounding of matrix products depends on it
_ENCODED_AT_ONCE = 1 << 24  # numbers in the features of a group of bags that share few rows
_FEW_SHARED = 2  # with at most this many entries per row, a row may be encoded several times
_POOLED_AT_ONCE = 1 << 24  # numbers in the pooled vectors of a group of bags
_CODED_AT_ONCE = 1 << 28  # numbers in the entries of a group of bags whose pooling reads rows in place
_GATHERED_AT_ONCE = 1 << 25  # numbers in the entries of a group of bags whose pooling gathers rows


@dataclass(frozen=True)
class Batch:
    """Bags as tensors: entry *e* is row ``index[e]`` of `rows`, which holds each row once; otherwise as in `Bags`."""

    rows: Tensor
    index: Tensor
    offsets: Tensor
    weights: Tensor | None
    p_true: Tensor | None
    sizes: Tensor
    labels: Tensor | None


def make_batch(bags: Bags, device: torch.device, dtype: torch.dtype) -> Batch:
    """Copy each row once, also if it is in several bags, and move all arrays to the device."""
    used, index = used_rows(bags.index, bags.rows.shape[0])
    weights = bags.sized_weights()
    return Batch(
        rows_tensor(bags, used, device, dtype),
        torch.from_numpy(index).to(device),
        torch.from_numpy(bags.offsets).to(device),
        None if weights is None else _wide(weights, device),
        None if bags.prevalences is None else torch.as_tensor(bags.prevalences, dtype=dtype, device=device),
        torch.as_tensor(bags.sizes, dtype=dtype, device=device),
        None if bags.labels is None else torch.from_numpy(bags.labels[used]).to(device),
    )


@torch.inference_mode()
def predict_bags(network: BagNetwork, bags: Bags) -> NDArray[np.float64]:
    """Estimate the prevalences ``(n_bags, n_classes)``, in bounded memory."""
    pooling: Any = network.pooling
    if (bins := BinCounts.of(network, bags)) is not None:
        count = bins.count
        return _map_bags(network, bags, bins.encode, lambda *e: quantify_bags(network, pooling.finish(count(*e))))
    return _map_bags(network, bags, encode_rows, lambda *entries: quantify_bags(network, pooling(*entries)))


@torch.inference_mode()
def bag_states(network: BagNetwork, bags: Bags) -> NDArray:
    """Return the mergeable summary of each bag, such as sums over its rows, in bounded memory: (n_bags, ...)."""
    if (bins := BinCounts.of(network, bags)) is not None:
        count = bins.count
        return _map_bags(network, bags, bins.encode, lambda *entries: count(*entries).values)
    pooling: Any = network.pooling
    return _map_bags(network, bags, encode_rows, lambda *e: pooling.partial(*e).values.cpu())


@torch.inference_mode()
def predict_states(network: BagNetwork, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
    """Estimate the prevalences ``(n_bags, n_classes)`` of bags from their merged states."""
    network.eval()
    pooling: Any = network.pooling
    device, parts = next(network.parameters()).device, []
    step = max(1, _POOLED_AT_ONCE // max(1, pooling.width))
    for start in range(0, len(values), step):
        some = slice(start, start + step)
        # A copy, because torch warns about read-only arrays, such as those from files.
        state = PoolingState(_wide(np.array(values[some]), device), _wide(totals[some].astype(np.float64), device))
        parts.append(quantify_bags(network, pooling.finish(state)))
    return torch.cat(parts).numpy()


@torch.inference_mode()
def quantify_bags(network: BagNetwork, pooled: Tensor) -> Tensor:
    """Apply the head, (n_bags, width) → float64 (n_bags, n_classes), so that each bag's result is independent."""
    parts = []
    for block in pooled.split(_BLOCK_BAGS):
        p = network.quantify(fill_up(block, _BLOCK_BAGS)).cpu().double()
        parts.append((p / p.sum(1, keepdim=True))[: len(block)])
    return torch.cat(parts)


def _map_bags(network: BagNetwork, bags: Bags, encode: Callable[..., Tensor], work: Callable[..., Tensor]) -> NDArray:
    """Call ``work(encoded, offsets, weights, index)`` for groups of bags, and concatenate the results.

    Rows that many bags share are encoded once, by ``encode(network, bags, used)``.
    """
    network.eval()
    few_shared = len(bags.index) <= _FEW_SHARED * bags.rows.shape[0]
    if few_shared and len(groups := list(_groups(bags, network, _ENCODED_AT_ONCE))) > 1:
        return np.concatenate([_map_bags(network, bags[group], encode, work) for group in groups])
    used, index = used_rows(bags.index, bags.rows.shape[0])
    features = encode(network, bags, used)
    device, parts = next(network.parameters()).device, []
    mergeable = isinstance(network.pooling, MergeablePooling)
    # States are sums of the original weights. Other poolings may depend on the size of a bag, so weights are scaled.
    all_weights = bags.weights if mergeable else bags.sized_weights()
    at_once = _CODED_AT_ONCE if mergeable else _GATHERED_AT_ONCE
    for group in _groups(bags, network, at_once):
        first, last = bags.offsets[group.start], bags.offsets[group.stop]
        taken, entries = features, index[first:last]
        if last - first < len(index):
            # Take the rows of these bags only, because the pooling may process all rows that it gets.
            rows, entries = used_rows(entries, len(features))
            taken = features if len(rows) == len(features) else features[torch.from_numpy(rows)]
        offsets = torch.from_numpy(bags.offsets[group.start : group.stop + 1] - first).to(device)
        weights = None if all_weights is None else _wide(all_weights[first:last], device)
        parts.append(work(taken.to(device), offsets, weights, torch.from_numpy(entries).to(device)))
    return torch.cat(parts).numpy()


def choose_device(name: str) -> torch.device:
    """Return the device with this name; "auto" is CUDA if it is available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
        return device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device: {name!r} cannot be used here ({reason}); use 'auto' or 'cpu'.") from None


@torch.no_grad()
def prepare_rows(network: BagNetwork, bags: Bags, used: NDArray[np.int64]) -> Tensor:
    """Return the inputs of the encoder for some pool rows, in memory: (len(used), n_numbers)."""
    parameter = next(network.parameters())
    inputs = parameter.new_empty((len(used), bags.n_features))
    step = max(1, _ENCODED_AT_ONCE // bags.n_features)
    for start in range(0, len(used), step):
        some = slice(start, start + step)
        rows = rows_tensor(bags, used[some], parameter.device, parameter.dtype)
        inputs[some] = network.prepare(rows).flatten(1).to(parameter.dtype)
    return inputs


def _wide(numbers: NDArray, device: torch.device) -> Tensor:
    """Convert floats to the most precise type of the device, and integers to int64."""
    kind = widest(device) if numbers.dtype.kind == "f" else torch.int64
    return torch.as_tensor(numbers, dtype=kind, device=device)


def _groups(bags: Bags, network: BagNetwork, at_once: int) -> Iterator[slice]:
    """Yield slices of consecutive bags, at least one each, with about `at_once` numbers in their entries."""
    pooling = network.pooling
    load = np.arange(len(bags) + 1) * (pooling.width / _POOLED_AT_ONCE) + bags.offsets * (pooling.n_features / at_once)
    start = 0
    while start < len(bags):
        stop = max(start + 1, int(np.searchsorted(load, load[start] + 1, "right")) - 1)
        yield slice(start, stop)
        start = stop
