"""Pretraining of GMNet: its Gaussians are placed among the features of rows, and its likelihoods are standardised.

Gaussians at random places would be far from all rows and would hardly learn. They are placed by the features of some
rows, from an encoder that is random or pretrained (`features_start`). The head reads the likelihoods minus their mean,
divided by their standard deviation, over these rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from histnetq.nn import BagNetwork, Gaussians
from histnetq.training.batches import prepare_rows
from histnetq.training.fitting import Pretraining
from histnetq.training.pretraining.features_start import start_features
from histnetq.training.pretraining.label_pretraining import apply_in_batches

_ROWS = 5000  # largest number of rows used to place the Gaussians
_LEAST = 1e-6  # smallest standard deviation of the likelihoods


def start_gaussians(ridge: float | None, task: Pretraining) -> bool:
    """Place the Gaussians, pretrain the network unless `ridge` is None, and return whether it was pretrained.

    The pooling of the network is `Gaussians`, and its head begins with `Standardize`. With None, the encoder and the
    head keep their random weights.
    """
    if ridge is not None and start_features(ridge, task, place_gaussians):
        return True
    network, given = task.network, task.given
    first = given.bags if given.rows is None else given.rows
    assert first is not None
    rows = np.unique(first.index)
    used = np.sort(np.random.default_rng(task.seed).permutation(rows)[:_ROWS])
    inputs = prepare_rows(network, first, used).unflatten(1, given.input_shape)
    place_gaussians(network, apply_in_batches(network.encoder, inputs, np.arange(len(used))), task.seed)
    return False


@torch.no_grad()
def place_gaussians(network: BagNetwork, features: Tensor, seed: int) -> None:
    """Place the Gaussians by features ``(n_rows, n_features)``, and let the head standardise their likelihoods."""
    pooling, head = network.pooling, network.head
    assert isinstance(pooling, Gaussians)
    generator = torch.Generator().manual_seed(seed)
    some = features[torch.randperm(len(features), generator=generator)[:_ROWS]]
    pooling.place(some, generator)
    likelihoods = pooling(some, torch.arange(len(some) + 1))
    scaling: Any = head[0]  # type: ignore[index]
    scaling.get_buffer("mean").copy_(likelihoods.mean(0))
    scaling.get_buffer("scale").copy_(likelihoods.std(0, correction=0).clamp(min=_LEAST))
