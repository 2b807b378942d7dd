"""An encoder's class scores, learned from labelled rows and from bags, by the labels that proportions imply.

Training a network's estimates to be right on its training bags makes it learn these bags by heart. Here the scores are
those of a classifier: of the labels where they are known, and otherwise of those that the proportions of the bags imply
(`label_recovery`). Both take turns: a logistic regression says how likely the classes of a row are that it has not
seen (it is fitted to the other folds), the proportions correct that, the regression is fitted anew. Then the encoder
learns the labels.

What comes after the scores must be learned from rows that the encoder has not seen, whose scores are as good as those
of new ones. Of few rows, all are scored by copies of the encoder that learn from other folds. Of many rows, and for an
encoder that is slow to train, some are kept apart: whole bags, and all rows that are the same as one of theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from histnetq.bags.checks import used_rows
from histnetq.kernels.threads import one_thread
from histnetq.nn import MLP
from histnetq.nn.likelihood import maximise
from histnetq.training.pretraining.examples import Examples, Floats, Ints

_FEWEST_ROWS = 100  # that differ, to divide into folds
_MOST_IN_FOLDS = 30_000  # rows; of more, some are kept apart
_APART, _MOST_APART = 0.2, 0.35  # of the bags or rows, and of the rows if bags share them
_FOLDS = 5
_TURNS = 3
_SHARPENING_BAGS, _FACTORS = 100, tuple(2.0 ** (k / 2) for k in range(-2, 13))
_STEPS = 100  # of a logistic regression; the next one goes on from there
_REGRESSED = 60_000  # rows at most that a logistic regression is fitted to
_FEWEST_EPOCHS, _MOST_EPOCHS, _VISITS = 3, 25, 600_000  # of hidden layers: so many visits of rows, in whole epochs
_FEWEST_UPDATES, _BATCH_ROWS = 600, 128
_RATE, _USUAL_UPDATES, _FASTEST = 1e-3, 2000, 3.0  # in fewer updates, the rate is up to so many times as high
_BORROWED = {False: 100.0, True: 1000.0}  # rows of a class that scores are worth beside known and implied labels
_SCORED_AT_ONCE = 1 << 13  # rows


@dataclass(frozen=True)
class JudgedRows:
    """Rows with scores by an encoder that has not learned from them.

    Attributes
    ----------
    rows : (n_judged,)
        Numbers of the examples, rising.
    scores : Tensor of shape (n_judged, n_classes)
        Log-likelihoods of the classes, up to a constant of the row.
    bags : (n_bags,)
        Numbers of the bags whose rows are all among these.
    """

    rows: Ints
    scores: Tensor
    bags: Ints


def learn_scores(
    encoder: nn.Module,
    examples: Examples,
    ridge: float,
    weight_decay: float,
    rng: np.random.Generator,
    in_folds: bool = True,
) -> JudgedRows | None:
    """Teach an encoder the labels of the rows, in place, and judge rows by what has not learned from them.

    Parameters
    ----------
    encoder : nn.Module
        It ends with a linear layer of class scores.
    examples : Examples
        Rows with labels, of which those that bags imply are found.
    ridge : float
        Penalty of logistic regressions: half of it times the sum of squared weights, beside the mean loss of a row.
    weight_decay : float
        Weight decay of AdamW, for an encoder with hidden layers.
    rng : Generator
        Source of folds and draws.
    in_folds : bool
        Whether rows may be judged by copies of the encoder; otherwise it judges rows itself that are kept apart.

    Returns
    -------
    JudgedRows or None
        None if too few rows differ, and nothing is learned.
    """
    groups = examples.groups()
    n_groups = int(groups.max()) + 1
    if n_groups < _FEWEST_ROWS:
        return None
    folds = rng.permutation(np.arange(n_groups) % _FOLDS)[groups]
    regress = partial(_regress, ridge=ridge)
    linear = _Learner(_zero_layer(examples), regress, rng)
    n, every_bag = examples.n_recovered, np.arange(0 if examples.bags is None else len(examples.bags))
    for turn in range(_TURNS if examples.unknown else 0):
        scores = linear.scores_across(examples, folds, known_only=turn == 0)[:n].double()
        examples.recover(_sharpened(scores, examples, rng).numpy(), every_bag)
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    alone = type(encoder) is MLP and len(layers) == 1
    learner = linear if alone else _Learner(encoder, partial(_learn, weight_decay=weight_decay), rng)
    few = in_folds and type(encoder) is MLP and len(folds) <= _MOST_IN_FOLDS
    apart = None if few else _keep_apart(examples, groups, rng)
    if apart is None and not in_folds:  # bags share rows: one fold of these, and no whole bags
        apart = np.flatnonzero(folds == 0), np.empty(0, np.int64), np.flatnonzero(folds != 0)
    if apart is None:
        scores = learner.scores_across(examples, folds)
        judged = JudgedRows(np.arange(len(folds)), scores, every_bag)
        learner.fit(learner.module, examples, np.arange(len(folds)))
    else:
        mine, bags, learned = apart
        learner.fit(learner.module, examples, learned)
        judged = JudgedRows(mine, encode_examples(learner.module, examples.rows, mine), bags)
    if examples.unknown and len(judged.bags):  # at last by the encoder itself
        known = np.zeros((n, examples.n_classes))
        here = judged.rows[judged.rows < n]
        known[here] = judged.scores[: len(here)].double().numpy()
        examples.recover(known, judged.bags)
    if alone:
        layers[0].load_state_dict(linear.module.state_dict())
    return judged


def _sharpened(scores: Tensor, examples: Examples, rng: np.random.Generator) -> Tensor:
    """Multiply scores by the factor under which maximum likelihood finds the proportions of some bags the best.

    Labels that proportions imply at first are all alike, and scores learned from them are right but far too flat.
    Scores by which the bags' mean is the better estimate under every factor are noise, and are left as they are.
    """
    assert examples.bags is not None
    every = np.arange(len(examples.bags))
    bags, rows = examples.bags_of(every, np.arange(len(scores)), None, _SHARPENING_BAGS, rng)
    sized = bags.sized_weights()
    used, index = (torch.from_numpy(a) for a in used_rows(rows, len(scores)))
    mine, offsets, p_true = scores[used], torch.from_numpy(bags.offsets), torch.as_tensor(bags.prevalences)
    weights = None if sized is None else torch.from_numpy(sized)
    errors = [float((maximise(mine * f, offsets, weights, index) - p_true).abs().mean()) for f in _FACTORS]
    best = int(np.argmin(errors))
    return scores * _FACTORS[best] if errors[best] < float((p_true - p_true.mean(0)).abs().mean()) else scores


def _keep_apart(examples: Examples, groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints] | None:
    """Give rows to judge, the bags they are of, and rows to learn from; None if bags share too many rows for that."""
    n, n_rows = examples.n_recovered, len(examples.rows)
    apart = np.zeros(n_rows, bool)
    labelled = n + rng.permutation(n_rows - n)
    apart[labelled[: round(_APART * len(labelled))]] = True
    bags = np.empty(0, np.int64)
    if examples.bags is not None:
        order = rng.permutation(len(examples.bags))
        bags = np.sort(order[: max(1, round(_APART * len(order)))])
        apart[np.flatnonzero(examples.members[bags].getnnz(0))] = True
    alike = np.isin(groups, groups[apart])
    if alike.mean() > _MOST_APART or not (~alike).any():
        return None
    return np.flatnonzero(apart), bags, np.flatnonzero(~alike)


class _Learner:
    """A module, copies of it for all folds, and how they learn; a module that has learned goes on from there."""

    def __init__(self, module: nn.Module, learn: Callable[..., None], rng: np.random.Generator) -> None:
        self.module, self.learn, self.rng = module, learn, rng
        self.copies: list[nn.Module] = []

    def fit(self, module: nn.Module, examples: Examples, among: Ints, known_only: bool = False) -> None:
        """Teach the module the labels of these rows; a logistic regression takes some of very many.

        Labels that proportions imply before there are any scores say little: known ones come first.
        """
        known = examples.known()[among]
        if known_only and len(np.unique(examples.labels[among[known]].argmax(1))) == examples.n_classes:
            among, known = among[known], known[known]
        if isinstance(module, nn.Linear) and len(among) > _REGRESSED:
            order = np.lexsort((self.rng.random(len(among)), ~known))
            among = np.sort(among[order[:_REGRESSED]])
        self.learn(module, *examples.part(among))

    def scores_across(self, examples: Examples, folds: Ints, known_only: bool = False) -> Tensor:
        """(n_rows, n_classes): of each row by the copy that has learned from the other folds."""
        self.copies = self.copies or [copy.deepcopy(self.module) for _ in range(_FOLDS)]
        scores = torch.empty(examples.labels.shape, dtype=examples.rows.dtype)
        for fold, module in enumerate(self.copies):
            self.fit(module, examples, np.flatnonzero(folds != fold), known_only)
            others = np.flatnonzero(folds == fold)
            scores[torch.from_numpy(others)] = encode_examples(module, examples.rows, others)
        return scores


@torch.no_grad()
def encode_examples(module: nn.Module, rows: Tensor, among: Ints) -> Tensor:
    """Give what a module makes of some rows: (len(among), n_outputs)."""
    module.eval()
    linear = isinstance(module, nn.Linear)
    parts = (rows[some] for some in torch.from_numpy(among).split(_SCORED_AT_ONCE))
    return torch.cat([module(part.flatten(1) if linear else part) for part in parts])


def _zero_layer(examples: Examples) -> nn.Linear:
    layer = nn.Linear(examples.rows[0].numel(), examples.n_classes, dtype=examples.rows.dtype)
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
    rows = rows.flatten(1)

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
    solver = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=weight_decay, fused=True)
    module.train()
    n_epochs = min(max(_VISITS // len(rows), _FEWEST_EPOCHS), _MOST_EPOCHS)
    n_batches = -(-len(rows) // _BATCH_ROWS)  # of equal sizes: of a single row, some layers learn nothing
    n_epochs = max(n_epochs, -(-_FEWEST_UPDATES // n_batches))
    rate = _RATE * min(max(_USUAL_UPDATES / (n_epochs * n_batches), 1.0), _FASTEST)
    # Dense layers of 128 rows are small: up to 256 × 1024, two threads took 1.2 to 1.6 times as long as one.
    with one_thread() if _is_dense(module) else nullcontext():
        for epoch in range(n_epochs):
            for group in solver.param_groups:
                group["lr"] = rate * (1 - epoch / n_epochs)
            for some in torch.randperm(len(rows)).tensor_split(n_batches):
                solver.zero_grad()
                share = weights[some] / weights[some].sum()
                _cross_entropy(module(rows[some]) + priors[some], labels[some], share).backward()
                solver.step()


def _is_dense(module: nn.Module) -> bool:
    """Tell whether a module is an `MLP`, with or without a layer of class scores behind it."""
    return type(module[0] if type(module) is nn.Sequential else module) is MLP


def class_shares(examples: Examples, judged: JudgedRows) -> Floats:
    """Say how the rows of each class are distributed over the judged ones.

    Labels say it, known or recovered, and so do the scores, which are smooth where labels are few: they weigh as much
    as some borrowed rows of the class, and as more of them where labels are but implied by proportions.

    Parameters
    ----------
    examples : Examples
        All rows, with their labels.
    judged : JudgedRows
        Some of them, with scores.

    Returns
    -------
    (n_judged, n_classes)
        Probabilities that sum to one in each column.
    """
    weights = examples.weights[judged.rows][:, None]
    labels = examples.labels[judged.rows] * weights
    likely = weights * softmax(judged.scores.double().numpy() + examples.priors[judged.rows], axis=1)
    counts, borrowed = labels.sum(0), _BORROWED[examples.unknown]
    shares: Floats = labels + likely * (borrowed / np.maximum(likely.sum(0), 1e-9))
    return shares / (counts + borrowed)
