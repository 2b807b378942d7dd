"""How networks on any features start: from an encoder that has learned labels, and layers that have rehearsed.

A linear layer of class scores behind the encoder teaches it the labels of rows, known or implied by proportions, and is
thrown away. Pooling and head then rehearse on the features of rows that the encoder has not learned from. These are
kept apart: features of encoders that learned from different folds would have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork
from histnetq.training.options import Training
from histnetq.training.pretraining.examples import Examples, row_protocol
from histnetq.training.pretraining.head_pretraining import Estimates, Rehearsal, blur, rehearsal_steps, rehearse
from histnetq.training.pretraining.label_pretraining import class_shares, encode_examples, learn_scores
from histnetq.training.supervision import Supervision

_RATE = 3e-3  # of a rehearsal
_LIKE_TRAINING = 1000  # bags that say what those of training are like, where these are drawn
_ATTENDED = 20_000  # entries of an update, at most, for poolings that learn


def start_features(
    ridge: float,
    training: Training,
    network: BagNetwork,
    given: Supervision,
    sampler: Protocol | None,
    loss: Measure,
    seed: int,
    settle: Callable[[BagNetwork, Tensor, int], None] | None = None,
) -> bool:
    """Give the encoder, the pooling and the head weights by which estimates have a low loss; tell whether it could.

    It cannot with too few or too many rows.

    Parameters
    ----------
    ridge : float
        Penalty of logistic regressions: half of it times the sum of squared weights, beside the mean loss of a row.
    training : Training
        Options, of which the weight decay, the number of epochs and that of bags in a batch matter.
    network : BagNetwork
        Any encoder, a pooling other than histograms, and any head.
    given : Supervision
        What is learned from.
    sampler : protocol, optional
        How bags are drawn from labelled rows, where there are no bags.
    loss : callable
        What estimates are to be good for.
    seed : int
        Seed of folds and draws.
    settle : callable, optional
        Adapts the pooling and the head to the features of some rows, and the seed, before they rehearse.
    """
    rng = np.random.default_rng(seed)
    examples = Examples.of(given, network, rng)
    if examples is None:
        return False
    pooling, head = network.pooling, network.head
    assert head is not None
    last = nn.Linear(pooling.n_features, examples.n_classes, dtype=examples.rows.dtype)
    scores = nn.Sequential(network.encoder, last)
    judged = learn_scores(scores, examples, ridge, training.weight_decay, rng, in_folds=False)
    if judged is None:
        return False
    features = encode_examples(network.encoder, examples.rows, judged.rows)
    if settle is not None:
        settle(network, features, seed)
    features, shares = blur(features, class_shares(examples, judged), rng, features.std(0, correction=0))
    bags, protocol = examples.bags, None
    if bags is None:
        bags, _ = examples.bags_of(judged.bags, judged.rows, sampler, _LIKE_TRAINING, rng)
        protocol = row_protocol(sampler)
    attention = list(pooling.parameters())
    limits = {"n_bags": training.batch_bags, "n_entries": _ATTENDED} if attention else {}
    draw = Rehearsal(shares, bags, protocol, rng, **limits)

    def practise() -> Estimates:
        return draw(lambda offsets, rows: network.quantify(pooling(features, offsets, None, rows)), rng)

    rehearse([([*attention, *head.parameters()], _RATE)], practise, loss, rehearsal_steps(examples, training))
    return True
