"""Pretraining of HistNetQ: the encoder learns class scores from labels, and the head learns on simulated bags.

The histograms of each class are computed from rows that the encoder was not trained on, with their known or implied
labels. They are the templates of the unmixing head, which is then trained on simulated bags (`head_pretraining`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from histnetq.bags.bags import Bags
from histnetq.metrics import Measure
from histnetq.nn import LogOdds, Unmixing
from histnetq.nn.histograms import Histogram
from histnetq.training.fitting import Pretraining
from histnetq.training.pretraining.head_pretraining import SimulatedBags, blur, pretrain_head, pretraining_steps
from histnetq.training.pretraining.label_pretraining import class_shares, learn_scores
from histnetq.training.pretraining.training_rows import Floats, Ints, TrainingRows, row_protocol

_INNER = 0.2  # the sigmoid maps this quantile of the log-odds to 0.2, and the quantile 1 − 0.2 to 0.8
# Largest scale of the log-odds. How confident a classifier is about clear rows depends on its training rows, so such
# rows go into the outermost bins, where the exact value has no effect.
_WIDEST = 2.0
_SMOOTHING = 0.3  # rows per bin that are added to the templates of each class
_JUDGING_BAGS = 1000  # largest number of bags on which the trained head must be better
_MIXED_BAGS = 100  # bags of an update of the head on mixed bags
_RATES = {"factor": 1e-3, "other": 3e-2}  # learning rates of the head


def start_histograms(ridge: float, task: Pretraining) -> bool:
    """Pretrain the encoder and the head; return False if there are too few or too many rows.

    The network has an encoder of scores and `LogOdds`, a histogram layer, and an `Unmixing` head. `ridge` is the
    penalty of logistic regressions: ``ridge / 2`` times the sum of squared weights is added to the mean loss.
    """
    parts: Any = task.network.encoder
    scores, log_odds, pooling, head = parts[0], parts[1], task.network.pooling, task.network.head
    assert isinstance(log_odds, LogOdds)
    assert isinstance(pooling, Histogram)
    assert isinstance(head, Unmixing)
    rng = np.random.default_rng(task.seed)
    training_rows = TrainingRows.of(task.given, task.network, rng)
    if training_rows is None:
        return False
    scored = learn_scores(scores, training_rows, ridge, task.training.weight_decay, rng)
    if scored is None:
        return False
    shares = class_shares(training_rows, scored)
    _spread(log_odds, scored.scores, shares)
    with torch.no_grad():
        odds = log_odds(scored.scores)
    bags, rows = training_rows.bags_among(scored.bags, scored.rows, task.sampler, _JUDGING_BAGS, rng)
    weights = None if bags.weights is None else torch.from_numpy(bags.weights)
    histograms = pooling.of_rows(odds)(torch.from_numpy(bags.offsets), torch.from_numpy(rows), weights)
    head.set_usual(histograms, float(np.exp(np.log(bags.sizes).mean())))
    if not scored.categorical:
        odds, shares = blur(odds, shares, rng)
    pool = pooling.of_rows(odds)
    known = training_rows.bags
    protocol = row_protocol(task.sampler) if known is None else None
    draw = SimulatedBags(shares, bags if known is None else known, protocol, rng)
    head.set_templates(_templates(pool, draw.rows, shares, head))

    def estimate(offsets: Tensor, rows: Tensor) -> Tensor:
        return head(pool(offsets, rows)).softmax(1)

    n_steps = pretraining_steps(training_rows, task.training)
    if not scored.categorical:
        _pretrain_if_useful(head, partial(draw, estimate, rng), (bags, histograms), task.loss, n_steps)
        return True
    for parameter in scores.parameters():  # a move of a common row into the next bin would change all estimates
        parameter.requires_grad_(False)
    batch = partial(draw, estimate, rng) if known is None else partial(_mixed_batch, head, bags, histograms, rng)
    _pretrain_if_useful(head, batch, (bags, histograms), task.loss, n_steps)
    if known is not None:
        _start_again_if_useful(head, batch, (bags, histograms), task.loss, n_steps)
    return True


def _start_again_if_useful(
    head: Unmixing,
    estimate_batch: Callable[[], tuple[Tensor, ...]],
    judging: tuple[Bags, Tensor],
    loss: Measure,
    n_steps: int,
) -> None:
    """Train the head again from equal templates of all classes, and keep it if it is better on the bags for judging.

    The estimates then come from its hidden layer alone. This is better if the rows of a class differ between bags, so
    that no mixture of templates explains them.
    """
    trained, before = (
        {name: value.clone() for name, value in head.state_dict().items()},
        _mean_loss(head, *judging, loss),
    )
    head.set_templates(torch.full_like(head.templates, 1 / head.n_bins))
    head.restart_factor(torch.as_tensor(judging[0].prevalences).mean(0))
    _pretrain_if_useful(head, estimate_batch, judging, loss, n_steps)
    if not _mean_loss(head, *judging, loss) < before:
        head.load_state_dict(trained)


def _mixed_batch(head: Unmixing, bags: Bags, histograms: Tensor, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Mix pairs of real bags, whose histograms are mixed like their proportions, and return p_true, p_pred and sizes.

    Few distinct rows often tell the proportions of their class by themselves, such as the votes of a group. Then the
    rows of a class differ between bags, and bags that are simulated from the rows of each class are not like real ones.
    """
    pair = rng.integers(len(bags), size=(2, _MIXED_BAGS))
    part = torch.from_numpy(rng.random(_MIXED_BAGS)).to(histograms.dtype)[:, None]
    truth, sizes = (torch.as_tensor(a, dtype=histograms.dtype) for a in (bags.prevalences, bags.sizes))
    p_true, mixed = (part * values[pair[0]] + (1 - part) * values[pair[1]] for values in (truth, histograms))
    return p_true, head(mixed).softmax(1), sizes[pair[0]]


@torch.no_grad()
def _spread(log_odds: LogOdds, scores: Tensor, shares: Floats) -> None:
    """Shift and scale the log-odds so that a sigmoid spreads them over (0, 1), for the rows of a class and for all."""
    odds = log_odds(scores).double().numpy()
    order = np.argsort(odds, axis=0)
    mine = shares[:, -odds.shape[1] :]  # with two classes, there are log-odds of the second class only
    weights = np.take_along_axis((mine + 1 / len(odds)) / 2, order, 0)
    below, ranked = np.cumsum(weights, axis=0), np.take_along_axis(odds, order, 0)
    places = (_INNER, 1 - _INNER)
    low, high = np.array([[np.interp(q, below[:, f], ranked[:, f]) for f in range(odds.shape[1])] for q in places])
    reach = 2 * np.log(1 / _INNER - 1)
    center, scale = (low + high) / 2, (high - low) / reach
    log_odds.get_buffer("center").copy_(torch.from_numpy(np.clip(center, -2 * _WIDEST, 2 * _WIDEST)))
    log_odds.get_buffer("scale").copy_(torch.from_numpy(np.clip(scale, 1e-6, _WIDEST)))


def _templates(pool: Callable[[Tensor, Tensor], Tensor], rows: Ints, shares: Floats, head: Unmixing) -> Tensor:
    """Compute smoothed histograms of the classes from rows drawn by their shares: (n_features, n_bins, n_classes)."""
    offsets = torch.arange(len(rows) + 1) * rows.shape[1]
    found = pool(offsets, torch.from_numpy(rows.ravel())).view(-1, head.n_features, head.n_bins)
    flat = found.sum(2, keepdim=True) / head.n_bins
    n_rows = torch.as_tensor(1 / np.square(shares).sum(0), dtype=found.dtype)[:, None, None]  # effective numbers
    smooth = (found * n_rows + _SMOOTHING * head.n_bins * flat) / (n_rows + _SMOOTHING * head.n_bins)
    return (smooth / smooth.sum(2, keepdim=True)).permute(1, 2, 0)


def _pretrain_if_useful(
    head: Unmixing,
    estimate_batch: Callable[[], tuple[Tensor, ...]],
    judging: tuple[Bags, Tensor],
    loss: Measure,
    n_steps: int,
) -> None:
    """Train the head on simulated bags, and restore its weights if it is not better on the bags for judging."""
    before = {name: value.clone() for name, value in head.state_dict().items()}
    first = _mean_loss(head, *judging, loss)
    factor = [p for name, p in head.named_parameters() if name.startswith("factor.")]
    other = [p for name, p in head.named_parameters() if not name.startswith("factor.")]
    pretrain_head([(factor, _RATES["factor"]), (other, _RATES["other"])], estimate_batch, loss, n_steps)
    if not _mean_loss(head, *judging, loss) < first:
        head.load_state_dict(before)


@torch.no_grad()
def _mean_loss(head: Unmixing, bags: Bags, histograms: Tensor, loss: Measure) -> float:
    p_true, sizes = (torch.as_tensor(a, dtype=histograms.dtype) for a in (bags.prevalences, bags.sizes))
    return float(loss(p_true, head(histograms).softmax(1), sizes).mean())
