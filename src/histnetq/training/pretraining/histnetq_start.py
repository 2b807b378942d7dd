"""How HistNetQ starts: from scores that the encoder learns from labels, and from a head that has rehearsed.

The log-odds of rows that the encoder has not learned from, and the labels that these are taken to have, say what the
histograms of each class are: the templates of a head that unmixes, which then rehearses (`rehearsal`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork, LogOdds, Unmixing
from histnetq.nn.histograms import Histogram
from histnetq.training.options import Training
from histnetq.training.pretraining.examples import Examples, Floats, Ints, row_protocol
from histnetq.training.pretraining.head_pretraining import Estimates, Rehearsal, blur, rehearsal_steps, rehearse
from histnetq.training.pretraining.label_pretraining import class_shares, learn_scores
from histnetq.training.supervision import Supervision

_INNER = 0.2  # quantile of log-odds that a sigmoid brings to itself, as it does the one at 1 − 0.2
# Log-odds in one width of the sigmoid, at most: how sure a classifier is of what it is sure of depends on the rows that
# it has learned from, and is put into the outermost bins, where it does no harm.
_WIDEST = 2.0
_SMOOTHING = 0.3  # rows of each class, spread over all bins, that are added to its templates
_JUDGING_BAGS = 1000  # at most, on which a rehearsal must have been of use
_RATES = {"factor": 1e-3, "other": 3e-2}  # of a rehearsal


def start_histograms(
    ridge: float,
    training: Training,
    network: BagNetwork,
    given: Supervision,
    sampler: Protocol | None,
    loss: Measure,
    seed: int,
) -> bool:
    """Give the encoder and the head weights by which estimates have a low loss; tell whether that was possible.

    It is not with too few or too many rows.

    Parameters
    ----------
    ridge : float
        Penalty of logistic regressions: half of it times the sum of squared weights, beside the mean loss of a row.
    training : Training
        Options, of which the weight decay and the number of epochs matter.
    network : BagNetwork
        Scores, `LogOdds`, a histogram layer and `Unmixing`.
    given : Supervision
        What is learned from.
    sampler : protocol, optional
        How bags are drawn from labelled rows, where there are no bags.
    loss : callable
        What estimates are to be good for.
    seed : int
        Seed of folds and draws.
    """
    parts: Any = network.encoder
    scores, log_odds, pooling, head = parts[0], parts[1], network.pooling, network.head
    assert isinstance(log_odds, LogOdds)
    assert isinstance(pooling, Histogram)
    assert isinstance(head, Unmixing)
    rng = np.random.default_rng(seed)
    examples = Examples.of(given, network, rng)
    if examples is None or (judged := learn_scores(scores, examples, ridge, training.weight_decay, rng)) is None:
        return False
    shares = class_shares(examples, judged)
    _spread(log_odds, judged.scores, shares)
    with torch.no_grad():
        odds = log_odds(judged.scores)
    bags, rows = examples.bags_of(judged.bags, judged.rows, sampler, _JUDGING_BAGS, rng)
    weights = None if bags.weights is None else torch.from_numpy(bags.weights)
    histograms = pooling.of_rows(odds)(torch.from_numpy(bags.offsets), torch.from_numpy(rows), weights)
    head.set_usual(histograms, float(np.exp(np.log(bags.sizes).mean())))
    odds, shares = blur(odds, shares, rng)
    pool = pooling.of_rows(odds)
    known = examples.bags
    protocol = row_protocol(sampler) if known is None else None
    draw = Rehearsal(shares, bags if known is None else known, protocol, rng)
    head.set_templates(_templates(pool, draw.rows, shares, head))

    def practise() -> Estimates:
        return draw(lambda offsets, rows: head(pool(offsets, rows)).softmax(1), rng)

    _rehearse(head, practise, (bags, histograms), loss, rehearsal_steps(examples, training))
    return True


@torch.no_grad()
def _spread(log_odds: LogOdds, scores: Tensor, shares: Floats) -> None:
    """Move and scale the log-odds so that a sigmoid spreads them over (0, 1): those of a class's rows, and all."""
    odds = log_odds(scores).double().numpy()
    order = np.argsort(odds, axis=0)
    mine = shares[:, -odds.shape[1] :]  # of two classes, the second
    weights = np.take_along_axis((mine + 1 / len(odds)) / 2, order, 0)
    below, ranked = np.cumsum(weights, axis=0), np.take_along_axis(odds, order, 0)
    places = (_INNER, 1 - _INNER)
    low, high = np.array([[np.interp(q, below[:, f], ranked[:, f]) for f in range(odds.shape[1])] for q in places])
    reach = 2 * np.log(1 / _INNER - 1)
    center, scale = (low + high) / 2, (high - low) / reach
    log_odds.get_buffer("center").copy_(torch.from_numpy(np.clip(center, -2 * _WIDEST, 2 * _WIDEST)))
    log_odds.get_buffer("scale").copy_(torch.from_numpy(np.clip(scale, 1e-6, _WIDEST)))


def _templates(pool: Callable[[Tensor, Tensor], Tensor], rows: Ints, shares: Floats, head: Unmixing) -> Tensor:
    """(n_features, n_bins, n_classes): histograms of the classes, each of very many rows drawn by their shares."""
    offsets = torch.arange(len(rows) + 1) * rows.shape[1]
    found = pool(offsets, torch.from_numpy(rows.ravel())).view(-1, head.n_features, head.n_bins)
    flat = found.sum(2, keepdim=True) / head.n_bins
    n_rows = torch.as_tensor(1 / np.square(shares).sum(0), dtype=found.dtype)[:, None, None]  # that are independent
    smooth = (found * n_rows + _SMOOTHING * head.n_bins * flat) / (n_rows + _SMOOTHING * head.n_bins)
    return (smooth / smooth.sum(2, keepdim=True)).permute(1, 2, 0)


def _rehearse(
    head: Unmixing, practise: Callable[[], Estimates], judging: tuple[Bags, Tensor], loss: Measure, n_steps: int
) -> None:
    """Train the head on drawn bags, and keep what it learned if it is of use on bags that were not drawn."""
    before = {name: value.clone() for name, value in head.state_dict().items()}
    first = _mean_loss(head, *judging, loss)
    factor = [p for name, p in head.named_parameters() if name.startswith("factor.")]
    other = [p for name, p in head.named_parameters() if not name.startswith("factor.")]
    rehearse([(factor, _RATES["factor"]), (other, _RATES["other"])], practise, loss, n_steps)
    if not _mean_loss(head, *judging, loss) < first:
        head.load_state_dict(before)


@torch.no_grad()
def _mean_loss(head: Unmixing, bags: Bags, histograms: Tensor, loss: Measure) -> float:
    p_true, sizes = (torch.as_tensor(a, dtype=histograms.dtype) for a in (bags.prevalences, bags.sizes))
    return float(loss(p_true, head(histograms).softmax(1), sizes).mean())
