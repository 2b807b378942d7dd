"""How HistNetQ starts: from scores that the encoder learns from labels, and from a head that has rehearsed.

The log-odds of rows that the encoder has not learned from, and the labels that these are taken to have, say what the
histograms of each class are: the templates of a head that unmixes. The head then rehearses: with the encoder as it is,
every row has its bins once and for all, and tens of thousands of bags are drawn, class by class, at prevalences like
those of training, so that their labels are exact. On these the head learns to have a low loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from histnetq.data.bags import Bags
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork, LogOdds, Unmixing
from histnetq.nn.histograms import Histogram
from histnetq.quantifiers.examples import Examples, Floats, Ints, row_protocol
from histnetq.quantifiers.row_scores import class_shares, learn_scores
from histnetq.simplex import apportion, count_labels
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

_INNER = 0.2  # quantile of log-odds that a sigmoid brings to itself, as it does the one at 1 − 0.2
# Log-odds in one width of the sigmoid, at most: how sure a classifier is of what it is sure of depends on the rows that
# it has learned from, and is put into the outermost bins, where it does no harm.
_WIDEST = 2.0
_SMOOTHING = 0.3  # rows of each class, spread over all bins, that are added to its templates
_ENOUGH_ROWS, _MOST_COPIES, _BLUR = 50_000, 20, 0.6  # rows are copied to about so many; widths of the sigmoid
_JUDGING_BAGS = 1000  # at most, on which a rehearsal must have been of use
# Updates in a rehearsal: fewer where labels are implied, as a head then learns their errors too; and at most so many
# for each epoch that may follow.
_STEPS, _STEPS_PER_EPOCH = {False: 1000, True: 500}, 20
_BAGS, _ENTRIES = 100, 200_000  # drawn for an update: so many bags, if they have no more entries
_DRAWN_ROWS = 50_000  # of each class, at least
_RATES = {"factor": 1e-3, "other": 3e-2}
_CLIP = 1.0
# Prevalences of bags that are drawn are those of a bag, or of two, mixed by a Beta distribution with this parameter,
# and are multiplied by log-normal numbers of this deviation: a head learns a few hundred of them by heart otherwise.
_ENDS, _JITTER = 0.3, 0.5


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
    odds, shares = _blur(odds, shares, rng)
    pool = pooling.of_rows(odds)
    known = examples.bags
    protocol = row_protocol(sampler) if known is None else None
    draw = _Rehearsal(shares, bags if known is None else known, protocol, rng)
    head.set_templates(_templates(pool, draw.rows, shares, head))
    n_steps = min(_STEPS[examples.unknown], _STEPS_PER_EPOCH * training.epochs)
    _rehearse(head, lambda: draw(pool, rng), (bags, histograms), loss, n_steps)
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


def _blur(odds: Tensor, shares: Floats, rng: np.random.Generator) -> tuple[Tensor, Floats]:
    """Give copies of few rows, moved a little at random, so that a head does not learn these very rows by heart."""
    n_copies = int(np.clip(_ENOUGH_ROWS // len(odds), 1, _MOST_COPIES))
    # As wide as kernels of density estimates: the fewer rows a class has, the wider.
    width = _BLUR * float((np.square(shares).sum(0) ** 0.2).mean())
    blurred = odds.repeat(n_copies, 1)
    blurred += width * torch.from_numpy(rng.standard_normal(tuple(blurred.shape))).to(odds.dtype)
    return blurred, np.tile(shares, (n_copies, 1)) / n_copies


def _templates(pool: Callable[[Tensor, Tensor], Tensor], rows: Ints, shares: Floats, head: Unmixing) -> Tensor:
    """(n_features, n_bins, n_classes): histograms of the classes, each of very many rows drawn by their shares."""
    offsets = torch.arange(len(rows) + 1) * rows.shape[1]
    found = pool(offsets, torch.from_numpy(rows.ravel())).view(-1, head.n_features, head.n_bins)
    flat = found.sum(2, keepdim=True) / head.n_bins
    n_rows = torch.as_tensor(1 / np.square(shares).sum(0), dtype=found.dtype)[:, None, None]  # that are independent
    smooth = (found * n_rows + _SMOOTHING * head.n_bins * flat) / (n_rows + _SMOOTHING * head.n_bins)
    return (smooth / smooth.sum(2, keepdim=True)).permute(1, 2, 0)


class _Rehearsal:
    """Bags of judged rows, drawn class by class, at prevalences and of sizes like those of training."""

    def __init__(self, shares: Floats, bags: Bags, protocol: Protocol | None, rng: np.random.Generator) -> None:
        # Of each class, many rows drawn by their shares once and for all, of which each bag takes some.
        self.rows = np.stack(
            [_draw_rows(np.cumsum(column), max(_DRAWN_ROWS, 2 * len(shares)), rng) for column in shares.T]
        )
        self.bags, self.protocol, n_classes = bags, protocol, shares.shape[1]
        # A row of each class, as common as the class is in bags of the protocol: some draw rows and not classes.
        usual = np.maximum(bags.prevalences.mean(0), 1e-9)  # type: ignore[union-attr]
        self.classes = Bags(
            np.arange(n_classes)[:, None], labels=np.arange(n_classes), classes=range(n_classes), weights=usual,
            weight_kind="survey",
        )  # fmt: skip

    def __call__(
        self, pool: Callable[[Tensor, Tensor], Tensor], rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Histograms, prevalences and sizes of some bags."""
        counts = self._counts(rng)
        sizes = counts.sum(1)
        n_bags, n_classes = counts.shape
        codes = np.repeat(np.tile(np.arange(n_classes), n_bags), counts.ravel())
        rows = self.rows[codes, rng.integers(self.rows.shape[1], size=len(codes))]
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]))
        histograms = pool(offsets, torch.from_numpy(rows))
        p_true, sizes_ = (torch.as_tensor(a, dtype=histograms.dtype) for a in (counts / sizes[:, None], sizes))
        return histograms, p_true, sizes_

    def _counts(self, rng: np.random.Generator) -> Ints:
        """(n_bags, n_classes): rows of each class in each bag."""
        if self.protocol is not None:
            drawn = self.protocol.draw(self.classes, _BAGS, rng)
            found = count_labels(drawn.index, drawn.bag_of_entry, len(drawn), len(self.classes.index), None)
            counts = found.astype(np.int64)
        else:
            known: Any = self.bags.prevalences
            a, b = rng.integers(len(known), size=(2, _BAGS))
            part = np.where(rng.random(_BAGS) < 0.5, 1.0, rng.beta(_ENDS, _ENDS, _BAGS))[:, None]
            mixed = (part * known[a] + (1 - part) * known[b]) * np.exp(_JITTER * rng.standard_normal(known[a].shape))
            sizes = np.clip(np.round(self.bags.sizes[a]), 1, _ENTRIES).astype(np.int64)
            counts = apportion(mixed / mixed.sum(1, keepdims=True), sizes)
        fits = np.cumsum(counts.sum(1)) <= _ENTRIES
        fits[0] = True
        return counts[fits]


def _draw_rows(below: Floats, n: int, rng: np.random.Generator) -> Ints:
    """Draw rows by their cumulative shares."""
    found = np.searchsorted(below, rng.random(n) * below[-1], side="right")
    return np.minimum(found, len(below) - 1)


def _rehearse(
    head: Unmixing,
    draw: Callable[[], tuple[Tensor, Tensor, Tensor]],
    judging: tuple[Bags, Tensor],
    loss: Measure,
    n_steps: int,
) -> None:
    """Train the head on drawn bags, and keep what it learned if it is of use on bags that were not drawn."""
    before = {name: value.clone() for name, value in head.state_dict().items()}
    first = _mean_loss(head, *judging, loss)
    factor = [p for name, p in head.named_parameters() if name.startswith("factor.")]
    other = [p for name, p in head.named_parameters() if not name.startswith("factor.")]
    groups = [{"params": p, "rate": _RATES[name]} for name, p in (("factor", factor), ("other", other)) if p]
    solver = torch.optim.Adam(groups)
    for step in range(n_steps):
        for group in solver.param_groups:
            group["lr"] = group["rate"] * (1 - step / n_steps)
        histograms, p_true, sizes = draw()
        solver.zero_grad()
        loss(p_true, head(histograms).softmax(1), sizes).mean().backward()
        nn.utils.clip_grad_norm_(head.parameters(), _CLIP)
        solver.step()
    if not _mean_loss(head, *judging, loss) < first:
        head.load_state_dict(before)


@torch.no_grad()
def _mean_loss(head: Unmixing, bags: Bags, histograms: Tensor, loss: Measure) -> float:
    p_true, sizes = (torch.as_tensor(a, dtype=histograms.dtype) for a in (bags.prevalences, bags.sizes))
    return float(loss(p_true, head(histograms).softmax(1), sizes).mean())
