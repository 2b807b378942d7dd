"""How EMNetQ starts: from scores that the encoder learns from labels, adjusted to the loss.

The scores of rows that the encoder has not learned from, which are as good on training bags as on others, tell by which
factor to sharpen or to flatten all scores, how much to add to those of a class, and below which prevalence to shrink
estimates, for the loss to be the lowest.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork, ShrunkLikelihood
from histnetq.training.pretraining.examples import Examples, Ints
from histnetq.training.pretraining.label_pretraining import learn_scores
from histnetq.training.supervision import Supervision

_ADJUSTING_BAGS = 1000
_ADJUSTING_STEPS = 20


def start_scores(
    ridge: float,
    weight_decay: float,
    network: BagNetwork,
    given: Supervision,
    sampler: Protocol | None,
    loss: Measure,
    seed: int,
) -> bool:
    """Give the encoder weights by which estimates have a low loss; tell whether that was possible.

    It is not with too few or too many rows.

    Parameters
    ----------
    ridge : float
        Penalty of logistic regressions: half of it times the sum of squared weights, beside the mean loss of a row.
    weight_decay : float
        Weight decay of AdamW, for an encoder with hidden layers.
    network : BagNetwork
        An encoder that ends with a linear layer of scores, followed by `ShrunkLikelihood`.
    given : Supervision
        What is learned from.
    sampler : protocol, optional
        How bags are drawn from labelled rows, where there are no bags.
    loss : callable
        What estimates are to be good for.
    seed : int
        Seed of folds and draws.
    """
    if not isinstance(network.pooling, ShrunkLikelihood):
        return False
    rng = np.random.default_rng(seed)
    examples = Examples.of(given, network, rng)
    if examples is None or (judged := learn_scores(network.encoder, examples, ridge, weight_decay, rng)) is None:
        return False
    bags = examples.bags_of(judged.bags, judged.rows, sampler, _ADJUSTING_BAGS, rng)
    change = _adjust(*bags, judged.scores, network.pooling, loss)
    last = [layer for layer in network.encoder.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(change[0])
        last.bias.mul_(change[0]).add_(change[1:])
    return True


def _adjust(bags: Bags, rows: Ints, scores: Tensor, pooling: ShrunkLikelihood, loss: Measure) -> Tensor:
    """The factor of all scores and the addends of each class for which, with the pooling's best threshold, the bags'
    mean loss is the lowest.
    """
    used, index = (torch.from_numpy(a) for a in used_rows(rows, len(scores)))
    offsets, mine = torch.from_numpy(bags.offsets), scores[used]
    sized = bags.sized_weights()
    weights = None if sized is None else torch.from_numpy(sized)
    p_true, sizes = (torch.as_tensor(a, dtype=scores.dtype) for a in (bags.prevalences, bags.sizes))
    change = torch.zeros(1 + scores.shape[1], dtype=scores.dtype, requires_grad=True)
    learned = [change, pooling.threshold]
    solver = torch.optim.LBFGS(learned, max_iter=_ADJUSTING_STEPS, line_search_fn="strong_wolfe")
    best, kept = float("inf"), [value.detach().clone() for value in learned]

    def closure() -> Tensor:
        nonlocal best, kept
        solver.zero_grad()
        p_pred = pooling(mine * change[0].exp() + change[1:], offsets, weights, index)
        value = loss(p_true, p_pred, sizes).mean()
        value.backward()
        if float(value.detach()) < best:
            best, kept = float(value.detach()), [value.detach().clone() for value in learned]
        return value

    solver.step(closure)
    with torch.no_grad():
        pooling.threshold.copy_(kept[1])
    return torch.cat([kept[0][:1].exp(), kept[0][1:]])
