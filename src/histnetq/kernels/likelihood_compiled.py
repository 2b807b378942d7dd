"""The likelihood kernels for the CPU, on compiled loops; the functions and their meaning: see `likelihood_plain`.

The bags are divided among torch's threads, and so are the rows where gradients are written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from histnetq.kernels.compiled import _array, _layout, _run, _weights, _zeros
from histnetq.kernels.likelihood_loops import maximise_bags, scatter_rows

__all__ = ["maximise", "scatter"]


def maximise(
    likelihoods: Tensor,
    index: Tensor,
    offsets: Tensor,
    weights: Tensor | None,
    totals: Tensor,
    prior: float,
    curved: bool,
) -> tuple[Tensor, Tensor]:
    n_bags, n_classes = len(totals), likelihoods.shape[1]
    p = torch.empty((n_bags, n_classes), dtype=torch.float64)
    curvature = torch.zeros((n_bags if curved else 0, n_classes, n_classes), dtype=torch.float64)
    _run(
        n_bags, len(index) * n_classes * n_classes, maximise_bags, _array(likelihoods),
        *_layout(index, offsets, len(likelihoods)), *_weights(weights), _array(totals), float(prior),
        p.numpy(), curvature.numpy(),
    )  # fmt: skip
    return p, curvature


def scatter(
    likelihoods: Tensor,
    p: Tensor,
    pull: Tensor,
    index: Tensor,
    offsets: Tensor,
    weights: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    n_rows, n_classes = likelihoods.shape
    out = _zeros(likelihoods.shape, torch.promote_types(dtype, torch.float32))
    means = torch.zeros(len(index), dtype=torch.float64)
    _run(
        n_rows, len(index) * n_classes, scatter_rows, _array(likelihoods), _array(p), _array(pull),
        *_layout(index, offsets, n_rows), *_weights(weights), out.numpy(), means.numpy(),
    )  # fmt: skip
    return out.to(dtype), means
