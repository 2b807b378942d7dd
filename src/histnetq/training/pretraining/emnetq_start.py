"""Pretraining of EMNetQ: the encoder learns class scores from labels, and the scores are adjusted to the loss.

The adjustment uses scores of rows that the encoder was not trained on, because these are as good on training bags as on
new bags. It finds a factor for all scores, a constant to add to the scores of each class, and the prevalence below
which estimates are shrunk, such that the loss is lowest.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.checks import used_rows
from histnetq.metrics import Measure
from histnetq.nn import ShrunkLikelihood
from histnetq.training.fitting import Pretraining
from histnetq.training.pretraining.label_pretraining import learn_scores
from histnetq.training.pretraining.training_rows import Ints, TrainingRows

_ADJUSTING_BAGS = 1000
_ADJUSTING_STEPS = 20


def start_scores(ridge: float, task: Pretraining) -> bool:
    """Pretrain an encoder that ends with a linear layer of scores; return False if there are too few or too many rows.

    The pooling of the network is `ShrunkLikelihood`. `ridge` is the penalty of logistic regressions: ``ridge / 2``
    times the sum of squared weights is added to the mean loss.
    """
    encoder, pooling = task.network.encoder, task.network.pooling
    if not isinstance(pooling, ShrunkLikelihood):
        return False
    rng = np.random.default_rng(task.seed)
    training_rows = TrainingRows.of(task.given, task.network, rng)
    if training_rows is None:
        return False
    scored = learn_scores(encoder, training_rows, ridge, task.training.weight_decay, rng)
    if scored is None:
        return False
    bags = training_rows.bags_among(scored.bags, scored.rows, task.sampler, _ADJUSTING_BAGS, rng)
    change = _adjust(*bags, scored.scores, pooling, task.loss)
    last = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(change[0])
        last.bias.mul_(change[0]).add_(change[1:])
    return True


def _adjust(bags: Bags, rows: Ints, scores: Tensor, pooling: ShrunkLikelihood, loss: Measure) -> Tensor:
    """Set the pooling's threshold, and return the factor of all scores and the addend of each class: (1 + n_classes,).

    Together, they minimise the mean loss of the bags.
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
