"""How GMNet starts: its Gaussians stand where rows are, and what they give is brought to one scale.

Gaussians at random places would be far from all rows at first, and hardly learn. So they are placed by the features of
some rows: of an encoder with random weights, or of one that has learned labels (`features_start`). The head reads the
likelihoods minus their mean among these rows, over their deviation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork, Gaussians
from histnetq.training.batches import prepare_rows
from histnetq.training.options import Training
from histnetq.training.pretraining.features_start import start_features
from histnetq.training.pretraining.label_pretraining import encode_examples
from histnetq.training.supervision import Supervision

_ROWS = 5000  # at most, by which Gaussians are placed
_LEAST = 1e-6  # deviation of likelihoods


def start_gaussians(
    ridge: float | None,
    training: Training,
    network: BagNetwork,
    given: Supervision,
    sampler: Protocol | None,
    loss: Measure,
    seed: int,
) -> bool:
    """Place the Gaussians; with a penalty, teach the encoder labels before, let all after it rehearse, and tell so.

    Parameters
    ----------
    ridge : float or None
        Penalty of logistic regressions; None leaves the weights of encoder and head random.
    training : Training
        Options, of which the weight decay, the number of epochs and that of bags in a batch matter.
    network : BagNetwork
        Any encoder, `Gaussians`, and a head that begins with `Standardize`.
    given : Supervision
        What is learned from.
    sampler : protocol, optional
        How bags are drawn from labelled rows, where there are no bags.
    loss : callable
        What estimates are to be good for.
    seed : int
        Seed of folds and draws.
    """
    if ridge is not None and start_features(ridge, training, network, given, sampler, loss, seed, settle):
        return True
    first = given.bags if given.rows is None else given.rows
    assert first is not None
    rows = np.unique(first.index)
    used = np.sort(np.random.default_rng(seed).permutation(rows)[:_ROWS])
    inputs = prepare_rows(network, first, used).unflatten(1, given.input_shape)
    settle(network, encode_examples(network.encoder, inputs, np.arange(len(used))), seed)
    return False


@torch.no_grad()
def settle(network: BagNetwork, features: Tensor, seed: int) -> None:
    """Place the Gaussians by features ``(n_rows, n_features)``, and bring what they give to mean 0 and deviation 1."""
    pooling, head = network.pooling, network.head
    assert isinstance(pooling, Gaussians)
    generator = torch.Generator().manual_seed(seed)
    some = features[torch.randperm(len(features), generator=generator)[:_ROWS]]
    pooling.place(some, generator)
    likelihoods = pooling(some, torch.arange(len(some) + 1))
    scaling: Any = head[0]  # type: ignore[index]
    scaling.get_buffer("mean").copy_(likelihoods.mean(0))
    scaling.get_buffer("scale").copy_(likelihoods.std(0, correction=0).clamp(min=_LEAST))
