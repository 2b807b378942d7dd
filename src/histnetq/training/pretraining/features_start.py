"""Pretraining of networks on any features: the encoder learns labels, the pooling and the head simulated bags.

The encoder learns the labels of rows, known or implied by proportions, with a linear layer of class scores on top,
which is then discarded. The pooling and the head are trained on bags simulated from the features of held-out rows.
Cross-validation would not do here: features of encoders trained on different folds are not comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from torch import Tensor, nn

from histnetq.nn import BagNetwork
from histnetq.training.fitting import Pretraining
from histnetq.training.pretraining.head_pretraining import SimulatedBags, blur, pretrain_head, pretraining_steps
from histnetq.training.pretraining.label_pretraining import apply_in_batches, class_shares, learn_scores
from histnetq.training.pretraining.training_rows import TrainingRows, row_protocol

_RATE = 3e-3  # learning rate of the pooling and the head
_LIKE_TRAINING = 1000  # bags drawn from labelled rows to represent the training bags
_ATTENDED = 20_000  # largest number of entries in an update if the pooling has weights


def start_features(
    ridge: float, task: Pretraining, adapt: Callable[[BagNetwork, Tensor, int], None] | None = None
) -> bool:
    """Pretrain the encoder, the pooling and the head; return False if there are too few or too many rows.

    Parameters
    ----------
    ridge : float
        Penalty of logistic regressions: ``ridge / 2`` times the sum of squared weights is added to the mean loss.
    task : Pretraining
        The network, whose pooling is not a histogram, and its data.
    adapt : callable, optional
        Called with the network, the features of some rows and the seed before the pooling and the head are trained.
    """
    network, training, rng = task.network, task.training, np.random.default_rng(task.seed)
    training_rows = TrainingRows.of(task.given, network, rng)
    if training_rows is None:
        return False
    pooling, head = network.pooling, network.head
    assert head is not None
    last = nn.Linear(pooling.n_features, training_rows.n_classes, dtype=training_rows.rows.dtype)
    scores = nn.Sequential(network.encoder, last)
    scored = learn_scores(scores, training_rows, ridge, training.weight_decay, rng, in_folds=False)
    if scored is None:
        return False
    features = apply_in_batches(network.encoder, training_rows.rows, scored.rows)
    if adapt is not None:
        adapt(network, features, task.seed)
    features, shares = blur(features, class_shares(training_rows, scored), rng, features.std(0, correction=0))
    bags, protocol = training_rows.bags, None
    if bags is None:
        bags, _ = training_rows.bags_among(scored.bags, scored.rows, task.sampler, _LIKE_TRAINING, rng)
        protocol = row_protocol(task.sampler)
    attention = list(pooling.parameters())
    limits = {"n_bags": training.batch_bags, "n_entries": _ATTENDED} if attention else {}
    draw = SimulatedBags(shares, bags, protocol, rng, **limits)

    def estimate(offsets: Tensor, rows: Tensor) -> Tensor:
        return network.quantify(pooling(features, offsets, None, rows))

    rates = [([*attention, *head.parameters()], _RATE)]
    pretrain_head(rates, partial(draw, estimate, rng), task.loss, pretraining_steps(training_rows, training))
    return True
