"""Linear class scores from labelled rows and from bags, by logistic regression on labels recovered from proportions.

Training a network's estimates to be right on its training bags makes it learn these bags by heart. Here the scores are
those of a logistic regression: of the labels where they are known, and otherwise of those that the proportions of the
bags imply (`histnetq.recovery`). Both take turns: the regression says how likely the classes of a row are that it has
not seen (it is fitted to the other folds), the proportions correct that, the regression is fitted anew. Scores across
folds, which are as good on training bags as on others, at last tell by which factor to sharpen or to flatten all
scores for the loss to be the lowest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from histnetq.bags import Bags
from histnetq.checks import take_dense, used_rows
from histnetq.metrics import Measure
from histnetq.nn import Likelihood
from histnetq.protocols import APP, Protocol
from histnetq.recovery import memberships, recover_labels
from histnetq.supervision import Supervision

__all__ = ["LinearScores", "learn_linear_scores"]

_FEWEST_ROWS = 100  # to divide into folds
_MOST_NUMBERS = 1 << 27  # in the rows that scores are learned from; of more, some bags and rows are drawn
_FOLDS = 5
_TURNS = 2
_STEPS = 100  # of a regression; the next one goes on from there
_ADJUSTING_BAGS = 1000
_ADJUSTING_STEPS = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearScores:
    """Scores ``rows @ weight.T + bias``: weight (n_classes, n_features), bias (n_classes,)."""

    weight: Tensor
    bias: Tensor


def learn_linear_scores(
    given: Supervision,
    sampler: Protocol | None,
    prepare: Callable[[Tensor], Tensor],
    pooling: Likelihood,
    loss: Measure,
    ridge: float,
    seed: int,
) -> LinearScores | None:
    """Scores, of rows after `prepare`, by which the pooling's estimates have a low loss; None if rows are too few.

    Parameters
    ----------
    given : Supervision
        Rows are vectors.
    sampler : protocol, optional
        How bags are drawn from labelled rows, where there are no bags.
    prepare : (n_rows, n_features) → (n_rows, n_features)
    ridge : float
        Penalty of a regression: half of it times the sum of squared weights, beside the mean loss of a row.
    """
    rng = np.random.default_rng(seed)
    examples = _Examples.of(given, prepare, rng)
    if len(examples.rows) < _FEWEST_ROWS:
        return None
    folds = rng.permutation(np.arange(len(examples.rows)) % _FOLDS)
    fits: list[Tensor | None] = [None] * (_FOLDS + 1)  # the last is that of all rows

    def regress(fold: int) -> Tensor:
        fit = fits[fold] = examples.regress(np.flatnonzero(folds != fold), ridge, fits[fold])
        return fit

    def across() -> Tensor:
        scores = torch.empty(examples.labels.shape, dtype=examples.rows.dtype)
        for fold in range(_FOLDS):
            others = torch.from_numpy(np.flatnonzero(folds == fold))
            scores[others] = _scores(examples.rows[others], regress(fold))
        return scores

    for _ in range(_TURNS if examples.bags is not None else 0):
        examples.recover(across())
    change = _adjust(examples.bags_to_adjust(sampler, rng), across(), pooling, loss)
    final = regress(_FOLDS) * change[0]
    return LinearScores(final[:-1].T.contiguous(), final[-1] + change[1:])


class _Examples:
    """Rows of bags, then labelled ones, each once, with the labels they are taken to have."""

    def __init__(self, rows: Tensor, n_labelled: int, labels: Floats, bags: Bags | None, entries: NDArray) -> None:
        self.rows, self.labels, self.bags, self.entries = rows, labels, bags, entries
        self.weights = np.ones(len(rows))
        self.priors = np.zeros_like(labels)  # logarithms of the prevalences among bags' and among labelled rows
        n = self.n_recovered = len(rows) - n_labelled
        if bags is not None:
            assert bags.prevalences is not None
            self.members = memberships(bags, entries, n)
            self.weights[:n] = np.asarray(self.members.sum(0))[0] / np.bincount(entries, minlength=n)
            self.priors[:n] = _logarithm(bags.prevalences.mean(0), n)
            self.recover(torch.zeros(labels.shape))
        if n_labelled:
            self.priors[n:] = _logarithm(labels[n:].mean(0), n_labelled)

    @classmethod
    def of(cls, given: Supervision, prepare: Callable[[Tensor], Tensor], rng: np.random.Generator) -> _Examples:
        most = _MOST_NUMBERS // max(1, int(np.prod(given.input_shape)))
        bags, rows = given.bags, given.rows
        if bags is not None:
            order = rng.permutation(len(bags))
            bags = bags[np.sort(order[: max(1, int(np.searchsorted(np.cumsum(np.diff(bags.offsets)[order]), most)))])]
        used, entries = (np.empty(0, np.int64),) * 2
        if bags is not None:
            used, entries = used_rows(bags.index, bags.rows.shape[0])
        known = np.empty(0, np.int64) if rows is None else rng.permutation(rows.index)[:most]
        pool = (bags if rows is None else rows).rows  # type: ignore[union-attr]
        chosen = np.concatenate([used, known])
        inputs = prepare(torch.from_numpy(np.ascontiguousarray(take_dense(pool, chosen)))).float().flatten(1)
        labels = np.zeros((len(chosen), len(given.classes)))
        if rows is not None:
            assert rows.labels is not None
            labels[np.arange(len(used), len(chosen)), rows.labels[known]] = 1
        return cls(inputs.detach(), len(known), labels, bags, entries)

    def regress(self, among: NDArray[np.int64], ridge: float, start: Tensor | None) -> Tensor:
        """Weights and, in the last row, biases of the regression on some of the rows: (n_features + 1, n_classes)."""
        labels, priors, weights = (
            torch.as_tensor(a[among], dtype=self.rows.dtype) for a in (self.labels, self.priors, self.weights)
        )
        return _regress(self.rows[torch.from_numpy(among)], labels, priors, weights / weights.sum(), ridge, start)

    def recover(self, scores: Tensor) -> None:
        """Labels of the bags' rows, given scores that were learned from other rows."""
        n = self.n_recovered
        assert self.bags is not None
        assert self.bags.prevalences is not None
        logits = scores[:n].double().numpy() + self.priors[:n]
        self.labels[:n] = recover_labels(self.members, self.bags.prevalences, logits)
        # A class that few rows have may be common in bags that share these: its rows count once each.
        self.priors[:n] = _logarithm(np.average(self.labels[:n], axis=0, weights=self.weights[:n]), n)

    def bags_to_adjust(self, sampler: Protocol | None, rng: np.random.Generator) -> tuple[Bags, NDArray]:
        """Bags of known proportions, and the example that each entry is: those that are given, else some drawn."""
        if self.bags is not None:
            few = np.sort(rng.permutation(len(self.bags))[:_ADJUSTING_BAGS])
            where = Bags(np.arange(len(self.rows))[:, None], self.entries, self.bags.offsets)[few]
            return self.bags[few], where.index
        codes = self.labels.argmax(1)
        own = Bags(np.zeros((len(codes), 1)), labels=codes, classes=range(self.labels.shape[1]))
        protocol = sampler if sampler is not None and sampler.draws_from == "rows" else APP()
        drawn = protocol.draw(own, _ADJUSTING_BAGS // 2, rng)
        return drawn, drawn.index


def _scores(rows: Tensor, fit: Tensor) -> Tensor:
    return torch.addmm(fit[-1], rows, fit[:-1])


def _regress(
    rows: Tensor, labels: Tensor, priors: Tensor, weights: Tensor, ridge: float, start: Tensor | None
) -> Tensor:
    shape = rows.shape[1] + 1, labels.shape[1]
    fit = (torch.zeros(shape, dtype=rows.dtype) if start is None else start.clone()).requires_grad_()
    solver = torch.optim.LBFGS([fit], max_iter=_STEPS, tolerance_grad=1e-6, line_search_fn="strong_wolfe")
    targets = labels * weights[:, None]

    def closure() -> Tensor:
        solver.zero_grad()
        logits = _scores(rows, fit) + priors
        value = (weights * logits.logsumexp(1)).sum() - (targets * logits).sum() + 0.5 * ridge * (fit[:-1] ** 2).sum()
        value.backward()
        return value

    solver.step(closure)
    return fit.detach()


def _adjust(bags_and_rows: tuple[Bags, NDArray], scores: Tensor, pooling: Likelihood, loss: Measure) -> Tensor:
    """The factor of all scores and the addends of each class for which the bags' mean loss is the lowest."""
    bags, rows = bags_and_rows
    used, index = (torch.from_numpy(a) for a in used_rows(rows, len(scores)))
    offsets, mine = torch.from_numpy(bags.offsets), scores[used]
    weights = None if bags.weights is None else torch.from_numpy(bags.weights)
    p_true, sizes = (torch.as_tensor(a, dtype=scores.dtype) for a in (bags.prevalences, bags.sizes))
    change = torch.zeros(1 + scores.shape[1], dtype=scores.dtype, requires_grad=True)
    solver = torch.optim.LBFGS([change], max_iter=_ADJUSTING_STEPS, line_search_fn="strong_wolfe")
    best = float("inf"), change.detach().clone()

    def closure() -> Tensor:
        nonlocal best
        solver.zero_grad()
        p_pred = pooling(mine * change[0].exp() + change[1:], offsets, weights, index)
        value = loss(p_true, p_pred, sizes).mean()
        value.backward()
        if float(value.detach()) < best[0]:
            best = float(value.detach()), change.detach().clone()
        return value

    solver.step(closure)
    return torch.cat([best[1][:1].exp(), best[1][1:]])


def _logarithm(prevalences: Floats, n_rows: int) -> Floats:
    """Of a class that is absent, that of less than one row."""
    return np.log(np.maximum(prevalences, 0.1 / n_rows))
