"""The likelihood kernels for the CPU, with compiled loops; `likelihood_plain` documents the same functions.

Torch's threads share the bags and, for gradients, the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from histnetq.kernels.compiled import run_pieces, unpacked, zeros
from histnetq.kernels.likelihood_loops import maximise_bags, scatter_rows
from histnetq.kernels.plain import Entries


def maximise(
    likelihoods: Tensor, entries: Entries, totals: Tensor, prior: float, curved: bool
) -> tuple[Tensor, Tensor]:
    n_bags, n_classes = len(totals), likelihoods.shape[1]
    p = torch.empty((n_bags, n_classes), dtype=torch.float64)
    curvature = torch.zeros((n_bags if curved else 0, n_classes, n_classes), dtype=torch.float64)
    args = likelihoods, *unpacked(entries), totals, float(prior), p, curvature
    run_pieces(n_bags, len(entries.rows) * n_classes * n_classes, maximise_bags, *args)
    return p, curvature


def scatter(
    likelihoods: Tensor, p: Tensor, pull: Tensor, entries: Entries, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    n_rows, n_classes = likelihoods.shape
    out = zeros(likelihoods.shape, torch.promote_types(dtype, torch.float32))
    means = torch.zeros(len(entries.rows), dtype=torch.float64)
    args = likelihoods, p, pull, *unpacked(entries), out, means
    run_pieces(n_rows, len(entries.rows) * n_classes, scatter_rows, *args)
    return out.to(dtype), means
