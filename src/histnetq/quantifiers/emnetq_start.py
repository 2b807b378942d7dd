"""An encoder's class scores, learned from labelled rows and from bags, by the labels that proportions imply.

Training a network's estimates to be right on its training bags makes it learn these bags by heart. Here the scores are
those of a classifier: of the labels where they are known, and otherwise of those that the proportions of the bags imply
(`label_recovery`). Both take turns: a logistic regression says how likely the classes of a row are that it has not
seen (it is fitted to the other folds), the proportions correct that, the regression is fitted anew. Then the encoder
learns the labels. Its scores across folds, which are as good on training bags as on others, at last tell by which
factor to sharpen or to flatten all scores, how much to add to those of a class, and below which prevalence to shrink
estimates, for the loss to be the lowest.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.data.bags import Bags
from histnetq.data.checks import used_rows
from histnetq.data.protocols import APP, Protocol
from histnetq.metrics import Measure
from histnetq.nn import BagNetwork, ShrunkLikelihood
from histnetq.quantifiers.label_recovery import memberships, recover_labels
from histnetq.training.batches import prepare_rows
from histnetq.training.supervision import Supervision

_FEWEST_ROWS = 100  # that differ, to divide into folds
_MOST_NUMBERS = 1 << 27  # in the rows that scores are learned from; of more, some bags and rows are drawn
_FOLDS = 5
_TURNS = 2
_STEPS = 100  # of a logistic regression; the next one goes on from there
_EPOCHS, _FEWEST_UPDATES, _BATCH_ROWS, _RATE = 25, 600, 128, 1e-3  # of hidden layers
_ADJUSTING_BAGS = 1000
_ADJUSTING_STEPS = 20

Floats = NDArray[np.float64]


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

    It is not for an encoder of one's own, whose last layer need not be linear, and with too few or too many rows.

    Parameters
    ----------
    ridge : float
        Penalty of logistic regressions: half of it times the sum of squared weights, beside the mean loss of a row.
    weight_decay : float
        Weight decay of AdamW, for an encoder with hidden layers.
    network : BagNetwork
        An encoder that is followed by `ShrunkLikelihood`.
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
    examples = _Examples.of(given, network, rng)
    folds = np.empty(0, np.int64) if examples is None else examples.folds(rng)
    if examples is None or not len(folds):
        return False
    linear = _Learner(_zero_layer(examples), partial(_regress, ridge=ridge))
    for _ in range(_TURNS if examples.bags is not None else 0):
        examples.recover(linear.scores_across(examples, folds))
    encoder, pooling = network.encoder, network.pooling
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    learner = linear if len(layers) == 1 else _Learner(encoder, partial(_learn, weight_decay=weight_decay))
    change = _adjust(examples.bags_to_adjust(sampler, rng), learner.scores_across(examples, folds), pooling, loss)
    learner.learn(learner.module, *examples.part(np.arange(len(folds))))
    if learner is linear:
        layers[0].load_state_dict(linear.module.state_dict())
    with torch.no_grad():
        layers[-1].weight.mul_(change[0])
        layers[-1].bias.mul_(change[0]).add_(change[1:])
    return True


class _Learner:
    """A module, copies of it for all folds, and how they learn; a module that has learned goes on from there."""

    def __init__(self, module: nn.Module, learn: Callable[..., None]) -> None:
        self.module, self.learn = module, learn
        self.copies = [copy.deepcopy(module) for _ in range(_FOLDS)]

    def scores_across(self, examples: _Examples, folds: NDArray) -> Tensor:
        """(n_rows, n_classes): of each row by the copy that has learned from the other folds."""
        scores = torch.empty(examples.labels.shape, dtype=examples.rows.dtype)
        for fold, module in enumerate(self.copies):
            self.learn(module, *examples.part(np.flatnonzero(folds != fold)))
            others = torch.from_numpy(np.flatnonzero(folds == fold))
            with torch.no_grad():
                scores[others] = module.eval()(examples.rows[others])
        return scores


class _Examples:
    """Rows of bags, then labelled ones, each once, with the labels they are taken to have."""

    def __init__(
        self, rows: Tensor, known_weights: NDArray, labels: Floats, codes: NDArray | None, bags: Bags | None,
        entries: NDArray,
    ) -> None:  # fmt: skip
        self.rows, self.labels, self.codes, self.bags, self.entries = rows, labels, codes, bags, entries
        self.weights = np.ones(len(rows))
        self.priors = np.zeros_like(labels)  # logarithms of the prevalences among bags' and among labelled rows
        n_labelled = len(known_weights)
        n = self.n_recovered = len(rows) - n_labelled
        if bags is not None:
            assert bags.prevalences is not None
            self.members = memberships(bags, entries, n)
            self.weights[:n] = np.asarray(self.members.sum(0))[0] / np.bincount(entries, minlength=n)
            self.priors[:n] = _logarithm(bags.prevalences.mean(0), n)
            self.recover(torch.zeros(labels.shape))
        if n_labelled:
            self.weights[n:] = known_weights / known_weights.mean()
            self.priors[n:] = _logarithm(np.average(labels[n:], axis=0, weights=self.weights[n:]), n_labelled)

    @classmethod
    def of(cls, given: Supervision, network: BagNetwork, rng: np.random.Generator) -> _Examples | None:
        """Those of what is given; None where they are too many to be held in memory, a single bag of them even."""
        n_classes = len(given.classes)
        most = _MOST_NUMBERS // (int(np.prod(given.input_shape)) + 8 * n_classes)
        bags, rows = given.bags, given.rows
        used, entries = (np.empty(0, np.int64),) * 2
        if bags is not None:
            order = rng.permutation(len(bags))
            used, entries = used_rows(bags.index, bags.rows.shape[0])
            if len(used) > most:
                few = np.searchsorted(np.cumsum(np.diff(bags.offsets)[order]), most)
                bags = bags[np.sort(order[: max(1, int(few))])]
                used, entries = used_rows(bags.index, bags.rows.shape[0])
            if len(used) > most:
                return None
        known = np.empty(0, np.int64) if rows is None else rng.permutation(np.unique(rows.index))[:most]
        if given.one_pool:  # their labels are found with the bags
            known = np.setdiff1d(known, used)
        chosen, first = np.concatenate([used, known]), bags if rows is None else rows
        assert first is not None
        labels = np.zeros((len(chosen), n_classes))
        if rows is not None:
            assert rows.labels is not None
            labels[np.arange(len(used), len(chosen)), rows.labels[known]] = 1
        codes = None if bags is None or bags.labels is None else bags.labels[used]
        weighed = rows is not None and rows.weights is not None
        weights = np.bincount(rows.index, rows.weights)[known] if weighed else np.ones(len(known))  # type: ignore
        return cls(prepare_rows(network, first, chosen), weights, labels, codes, bags, entries)

    def folds(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """A fold for every example; rows that are the same share one, as a label that is known of one tells of all."""
        folds = rng.permutation(np.arange(len(self.rows)) % _FOLDS)
        content = self.rows.numpy()
        content = content.view(f"V{content.itemsize * content.shape[1]}").ravel()
        _, first, group = np.unique(content, return_index=True, return_inverse=True)
        return folds[first[group]] if len(first) >= _FEWEST_ROWS else np.empty(0, np.int64)

    def part(self, among: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Rows, labels, priors and weights, of sum 1, of some of the examples."""
        some = (self.labels[among], self.priors[among], self.weights[among] / self.weights[among].sum())
        return self.rows[torch.from_numpy(among)], *(torch.as_tensor(a, dtype=self.rows.dtype) for a in some)

    def recover(self, scores: Tensor) -> None:
        """Labels of the bags' rows, given scores that were learned from other rows."""
        n = self.n_recovered
        assert self.bags is not None
        assert self.bags.prevalences is not None
        logits = scores[:n].double().numpy() + self.priors[:n]
        self.labels[:n] = recover_labels(self.members, self.bags.prevalences, logits)
        if self.codes is not None:  # some rows of the bags have labels
            known = np.flatnonzero(self.codes >= 0)
            self.labels[known] = np.eye(self.labels.shape[1])[self.codes[known]]
        # A class that few rows have may be common in bags that share these: its rows count once each.
        self.priors[:n] = _logarithm(np.average(self.labels[:n], axis=0, weights=self.weights[:n]), n)

    def bags_to_adjust(self, sampler: Protocol | None, rng: np.random.Generator) -> tuple[Bags, NDArray]:
        """Bags of known proportions, and the example that each entry is: those that are given, else some drawn."""
        if self.bags is not None:
            few = np.sort(rng.permutation(len(self.bags))[:_ADJUSTING_BAGS])
            where = Bags(np.arange(len(self.rows))[:, None], self.entries, self.bags.offsets)[few]
            return self.bags[few], where.index
        codes = self.labels.argmax(1)
        weights = None if (self.weights == 1).all() else self.weights
        classes = range(self.labels.shape[1])
        own = Bags(self.rows.numpy(), labels=codes, classes=classes, weights=weights, weight_kind="survey")
        protocol = sampler if sampler is not None and sampler.draws_from == "rows" else APP()
        drawn = protocol.draw(own, _ADJUSTING_BAGS // 2, rng)
        return drawn, drawn.index


def _zero_layer(examples: _Examples) -> nn.Linear:
    layer = nn.Linear(examples.rows.shape[1], examples.labels.shape[1], dtype=examples.rows.dtype)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return -(weights[:, None] * labels * logits.log_softmax(1)).sum()


def _regress(layer: nn.Linear, rows: Tensor, labels: Tensor, priors: Tensor, weights: Tensor, ridge: float) -> None:
    """Logistic regression, of scores at equal prevalences."""
    solver = torch.optim.LBFGS(
        layer.parameters(), max_iter=_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        value = _cross_entropy(layer(rows) + priors, labels, weights) + 0.5 * ridge * (layer.weight**2).sum()
        value.backward()
        return value

    solver.step(closure)


def _learn(
    module: nn.Module, rows: Tensor, labels: Tensor, priors: Tensor, weights: Tensor, weight_decay: float
) -> None:
    """The same with hidden layers, in a number of epochs that is known before, at a rate that sinks to zero."""
    solver = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=weight_decay)
    module.train()
    n_epochs = max(_EPOCHS, -(-_FEWEST_UPDATES // -(-len(rows) // _BATCH_ROWS)))
    for epoch in range(n_epochs):
        for group in solver.param_groups:
            group["lr"] = _RATE * (1 - epoch / n_epochs)
        for some in torch.randperm(len(rows)).split(_BATCH_ROWS):
            solver.zero_grad()
            share = weights[some] / weights[some].sum()
            _cross_entropy(module(rows[some]) + priors[some], labels[some], share).backward()
            solver.step()


def _adjust(bags_and_rows: tuple[Bags, NDArray], scores: Tensor, pooling: ShrunkLikelihood, loss: Measure) -> Tensor:
    """The factor of all scores and the addends of each class for which, with the pooling's best threshold, the bags'
    mean loss is the lowest.
    """
    bags, rows = bags_and_rows
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


def _logarithm(prevalences: Floats, n_rows: int) -> Floats:
    """Log prevalences, floored at a tenth of a row."""
    return np.log(np.maximum(prevalences, 0.1 / n_rows))
