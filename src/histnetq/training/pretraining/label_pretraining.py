"""Pretraining of an encoder as a classifier of rows, with labels that are known or recovered from proportions.

A network trained only to estimate its training bags memorises these bags. Here the encoder learns the labels of rows
instead. Unknown labels are recovered from the proportions of the bags (`label_recovery`) in a few turns. At first,
the labels of a row are the proportions of its bags. In each turn, a logistic regression is fitted to the labels and
predicts the rows by cross-validation. The predictions, adjusted to agree with the proportions of the bags, are the
labels of the next turn. Then the encoder learns the last labels.

The layers after the encoder must be trained on rows that the encoder was not trained on, because the scores of training
rows are overconfident. If there are few rows, all are scored by cross-validation with copies of the encoder. If there
are many rows, or the encoder is slow to train, some bags are held out, and no copies of their rows are trained on.
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
from histnetq.training.pretraining.training_rows import Floats, Ints, TrainingRows

_FEWEST_ROWS = 100  # smallest number of distinct rows
_MOST_IN_FOLDS = 30_000  # largest number of rows scored by cross-validation; some of more rows are held out
_HELD_OUT, _MOST_HELD_OUT = 0.2, 0.35  # held-out fraction of bags or rows, and its maximum for rows that bags share
_FOLDS = 5
_TURNS = 3
_SHARPENING_BAGS, _FACTORS = 100, tuple(2.0 ** (k / 2) for k in range(-2, 13))
_STEPS = 100  # largest number of solver steps of a logistic regression, which continues from the previous one
_REGRESSED = 60_000  # largest number of rows that a logistic regression is fitted to
# An encoder with hidden layers sees about this many rows, in a number of epochs within these limits.
_FEWEST_EPOCHS, _MOST_EPOCHS, _VISITS = 3, 25, 600_000
_FEWEST_UPDATES, _BATCH_ROWS = 600, 128
_RATE, _USUAL_UPDATES, _FASTEST = 1e-3, 2000, 3.0  # fewer updates than usual have a rate up to 3 times as high
# Number of rows that the scores of a class are worth in `class_shares`, by whether labels are implied.
_BORROWED = {False: 100.0, True: 1000.0}
_SCORED_AT_ONCE = 1 << 13  # rows


@dataclass(frozen=True)
class ScoredRows:
    """Rows scored by an encoder that was not trained on them.

    Attributes
    ----------
    rows : (n_scored,)
        Increasing numbers of the rows in `TrainingRows`.
    scores : Tensor of shape (n_scored, n_classes)
        Log-likelihoods of the classes, up to a constant per row.
    bags : (n_bags,)
        Numbers of the bags whose rows are all scored.
    categorical : bool
        Whether there are few distinct rows, which all have been learned from.
    """

    rows: Ints
    scores: Tensor
    bags: Ints
    categorical: bool = False


def learn_scores(
    encoder: nn.Module,
    training_rows: TrainingRows,
    ridge: float,
    weight_decay: float,
    rng: np.random.Generator,
    in_folds: bool = True,
) -> ScoredRows | None:
    """Train an encoder on the labels of the rows, in place, and score rows that it was not trained on.

    Parameters
    ----------
    encoder : nn.Module
        An encoder that ends with a linear layer of class scores.
    training_rows : TrainingRows
        Rows and labels; implied labels are updated.
    ridge : float
        Penalty of logistic regressions: ``ridge / 2`` times the sum of squared weights is added to the mean loss.
    weight_decay : float
        Weight decay of AdamW, for an encoder with hidden layers.
    rng : Generator
        Source of folds and draws.
    in_folds : bool
        Whether rows may be scored by cross-validation; otherwise the encoder itself scores held-out rows.

    Returns
    -------
    ScoredRows or None
        None if there are too few distinct rows; the encoder is then not trained.
    """
    groups = training_rows.groups()
    n_groups = int(groups.max()) + 1
    if n_groups < _FEWEST_ROWS:
        return _learn_categories(encoder, training_rows, groups, ridge, weight_decay, rng)
    folds = rng.permutation(np.arange(n_groups) % _FOLDS)[groups]
    linear = _Learner(_zero_layer(training_rows), partial(_regress, ridge=ridge), rng)
    if training_rows.has_implied_labels:
        _recover_all(linear, training_rows, folds, rng)
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    alone = type(encoder) is MLP and len(layers) == 1
    learner = linear if alone else _Learner(encoder, partial(_learn, weight_decay=weight_decay), rng)
    few = in_folds and type(encoder) is MLP and len(folds) <= _MOST_IN_FOLDS
    held = None if few else _hold_out(training_rows, groups, rng)
    if held is None and not in_folds:  # bags share rows: hold out one fold of the rows, and no whole bags
        held = np.flatnonzero(folds == 0), np.empty(0, np.int64), np.flatnonzero(folds != 0)
    scored = learner.fit_and_score(training_rows, folds, held)
    if training_rows.has_implied_labels and len(scored.bags):
        _recover_scored(training_rows, scored)
    if alone:
        layers[0].load_state_dict(linear.module.state_dict())
    return scored


def _learn_categories(
    encoder: nn.Module,
    training_rows: TrainingRows,
    groups: Ints,
    ridge: float,
    weight_decay: float,
    rng: np.random.Generator,
) -> ScoredRows | None:
    """Train an encoder on few distinct rows, such as combinations of categories, without cross-validation.

    All rows of a new bag are known, so their scores need not be those of unknown rows. But each distinct row must occur
    many times, in more bags than there are distinct rows, because its labels would be learned by heart otherwise.
    """
    if not training_rows.has_many_of(groups):
        return None
    if training_rows.has_implied_labels:
        training_rows.recover_groups(groups)
    layers = [layer for layer in encoder.modules() if isinstance(layer, nn.Linear)]
    alone, every_row = type(encoder) is MLP and len(layers) == 1, np.arange(len(groups))
    linear = _Learner(_zero_layer(training_rows), partial(_regress, ridge=ridge), rng)
    learner = linear if alone else _Learner(encoder, partial(_learn, weight_decay=weight_decay), rng)
    learner.fit(learner.module, training_rows, every_row)
    if alone:
        layers[0].load_state_dict(linear.module.state_dict())
    scores = apply_in_batches(encoder, training_rows.rows, every_row)
    return ScoredRows(every_row, scores, training_rows.every_bag(), categorical=True)


def _recover_all(linear: _Learner, training_rows: TrainingRows, folds: Ints, rng: np.random.Generator) -> None:
    """Recover the labels of all bags with the cross-validated scores of a logistic regression, in turns."""
    for turn in range(_TURNS):
        scores = linear.scores_across(training_rows, folds, known_only=turn == 0)[: training_rows.n_recovered].double()
        training_rows.recover(_sharpened(scores, training_rows, rng).numpy(), training_rows.every_bag())


def _recover_scored(training_rows: TrainingRows, scored: ScoredRows) -> None:
    """Recover the labels of the scored bags with the scores of the encoder itself."""
    scores = np.zeros((training_rows.n_recovered, training_rows.n_classes))
    here = scored.rows[scored.rows < training_rows.n_recovered]
    scores[here] = scored.scores[: len(here)].double().numpy()
    training_rows.recover(scores, scored.bags)


def _sharpened(scores: Tensor, training_rows: TrainingRows, rng: np.random.Generator) -> Tensor:
    """Multiply scores by the factor that gives the best maximum-likelihood estimates of some bags.

    The first implied labels are the same for all rows of a bag, so scores learned from them are right but far too flat.
    If the mean of the bags is a better estimate with every factor, the scores are noise and are not multiplied.
    """
    assert training_rows.bags is not None
    every, among = training_rows.every_bag(), np.arange(len(scores))
    bags, rows = training_rows.bags_among(every, among, None, _SHARPENING_BAGS, rng)
    sized = bags.sized_weights()
    used, index = (torch.from_numpy(a) for a in used_rows(rows, len(scores)))
    mine, offsets, p_true = scores[used], torch.from_numpy(bags.offsets), torch.as_tensor(bags.prevalences)
    weights = None if sized is None else torch.from_numpy(sized)
    errors = [float((maximise(mine * f, offsets, weights, index) - p_true).abs().mean()) for f in _FACTORS]
    best = int(np.argmin(errors))
    return scores * _FACTORS[best] if errors[best] < float((p_true - p_true.mean(0)).abs().mean()) else scores


def _hold_out(training_rows: TrainingRows, groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints] | None:
    """Return held-out rows, their bags and the remaining rows; None if bags share too many rows to hold some out."""
    n, n_rows = training_rows.n_recovered, len(training_rows.rows)
    held = np.zeros(n_rows, bool)
    labelled = n + rng.permutation(n_rows - n)
    held[labelled[: round(_HELD_OUT * len(labelled))]] = True
    bags = np.empty(0, np.int64)
    if training_rows.bags is not None:
        order = rng.permutation(len(training_rows.bags))
        bags = np.sort(order[: max(1, round(_HELD_OUT * len(order)))])
        held[np.flatnonzero(training_rows.members[bags].getnnz(0))] = True
    equal = np.isin(groups, groups[held])
    if equal.mean() > _MOST_HELD_OUT or not (~equal).any():
        return None
    return np.flatnonzero(held), bags, np.flatnonzero(~equal)


class _Learner:
    """A module, a copy of it for each fold, and the function that trains them further at every call."""

    def __init__(self, module: nn.Module, learn: Callable[..., None], rng: np.random.Generator) -> None:
        self.module, self.learn, self.rng = module, learn, rng
        self.copies: list[nn.Module] = []

    def fit(self, module: nn.Module, training_rows: TrainingRows, among: Ints, known_only: bool = False) -> None:
        """Train the module on the labels of these rows; a logistic regression uses a random part of very many rows.

        With `known_only`, only known labels are used if they cover all classes: the first implied labels say little.
        """
        known = training_rows.known()[among]
        if known_only and len(np.unique(training_rows.labels[among[known]].argmax(1))) == training_rows.n_classes:
            among, known = among[known], known[known]
        if isinstance(module, nn.Linear) and len(among) > _REGRESSED:
            order = np.lexsort((self.rng.random(len(among)), ~known))
            among = np.sort(among[order[:_REGRESSED]])
        self.learn(module, *training_rows.part(among))

    def scores_across(self, training_rows: TrainingRows, folds: Ints, known_only: bool = False) -> Tensor:
        """Return cross-validated scores of all rows: (n_rows, n_classes)."""
        self.copies = self.copies or [copy.deepcopy(self.module) for _ in range(_FOLDS)]
        scores = torch.empty(training_rows.labels.shape, dtype=training_rows.rows.dtype)
        for fold, module in enumerate(self.copies):
            self.fit(module, training_rows, np.flatnonzero(folds != fold), known_only)
            held = np.flatnonzero(folds == fold)
            scores[torch.from_numpy(held)] = apply_in_batches(module, training_rows.rows, held)
        return scores

    def fit_and_score(
        self, training_rows: TrainingRows, folds: Ints, held: tuple[Ints, Ints, Ints] | None
    ) -> ScoredRows:
        """Train on all rows and score them by cross-validation, or train on some and score the held-out rows."""
        if held is None:
            scores, every_row = self.scores_across(training_rows, folds), np.arange(len(folds))
            self.fit(self.module, training_rows, every_row)
            return ScoredRows(every_row, scores, training_rows.every_bag())
        rows, bags, learned = held
        self.fit(self.module, training_rows, learned)
        return ScoredRows(rows, apply_in_batches(self.module, training_rows.rows, rows), bags)


@torch.no_grad()
def apply_in_batches(module: nn.Module, rows: Tensor, among: Ints) -> Tensor:
    """Return the outputs of a module for some rows: (len(among), n_outputs)."""
    module.eval()
    linear = isinstance(module, nn.Linear)
    parts = (rows[some] for some in torch.from_numpy(among).split(_SCORED_AT_ONCE))
    return torch.cat([module(part.flatten(1) if linear else part) for part in parts])


def _zero_layer(training_rows: TrainingRows) -> nn.Linear:
    layer = nn.Linear(training_rows.rows[0].numel(), training_rows.n_classes, dtype=training_rows.rows.dtype)
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    return -(weights[:, None] * labels * logits.log_softmax(1)).sum()


def _regress(layer: nn.Linear, rows: Tensor, labels: Tensor, priors: Tensor, weights: Tensor, ridge: float) -> None:
    """Fit a logistic regression whose scores are independent of the prevalences."""
    options = {"tolerance_grad": 1e-6, "line_search_fn": "strong_wolfe"}
    solver = torch.optim.LBFGS(layer.parameters(), max_iter=_STEPS, **options)  # type: ignore[arg-type]
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
    """Train a module with hidden layers for a fixed number of epochs, at a learning rate that decreases to zero."""
    solver = torch.optim.AdamW(module.parameters(), lr=_RATE, weight_decay=weight_decay, fused=True)
    module.train()
    n_epochs = min(max(_VISITS // len(rows), _FEWEST_EPOCHS), _MOST_EPOCHS)
    n_batches = -(-len(rows) // _BATCH_ROWS)  # of equal sizes, because batch norm needs more than one row
    n_epochs = max(n_epochs, -(-_FEWEST_UPDATES // n_batches))
    rate = _RATE * min(max(_USUAL_UPDATES / (n_epochs * n_batches), 1.0), _FASTEST)
    # Dense layers on 128 rows are small: up to 256 × 1024, two threads took 1.2 to 1.6 times as long as one.
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
    """Return whether a module is an `MLP`, with or without a layer of class scores after it."""
    return type(module[0] if type(module) is nn.Sequential else module) is MLP


def class_shares(training_rows: TrainingRows, scored: ScoredRows) -> Floats:
    """Return the distribution of each class over the scored rows: (n_scored, n_classes), columns sum to one.

    It combines labels, known or recovered, with scores, which are smoother if there are few labels. The scores count as
    much as a fixed number of rows per class, which is larger if labels are only implied by proportions.
    """
    weights = training_rows.weights[scored.rows][:, None]
    labels = training_rows.labels[scored.rows] * weights
    likely = weights * softmax(scored.scores.double().numpy() + training_rows.priors[scored.rows], axis=1)
    counts, borrowed = labels.sum(0), _BORROWED[training_rows.has_implied_labels]
    shares: Floats = labels + likely * (borrowed / np.maximum(likely.sum(0), 1e-9))
    return shares / (counts + borrowed)
