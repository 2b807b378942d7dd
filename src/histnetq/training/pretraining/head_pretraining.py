"""Pretraining of the layers after a frozen encoder, on simulated bags.

Rows that the encoder was not trained on are encoded once. Tens of thousands of bags are drawn from them, class by
class, at prevalences like the training prevalences, so that the prevalences of the drawn bags are exact. The layers
after the encoder learn to minimise the loss on these bags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import SamplingProtocol
from histnetq.metrics import Measure
from histnetq.simplex import apportion, count_labels
from histnetq.training.options import Training
from histnetq.training.pretraining.training_rows import Floats, Ints, TrainingRows

# Rows are copied until there are about this many, at most this many times, and moved by noise of this relative width.
_ENOUGH_ROWS, _MOST_COPIES, _BLUR = 50_000, 20, 0.6
# Number of updates, by whether labels are implied (a head then learns their errors too), and its maximum per epoch of
# the training that follows.
_STEPS, _STEPS_PER_EPOCH = {False: 1000, True: 500}, 20
_BAGS, _ENTRIES = 100, 200_000  # largest numbers of bags and of entries in an update
_DRAWN_ROWS = 50_000  # smallest number of rows drawn of each class
_CLIP = 1.0  # largest norm of the gradient
# The prevalences of a simulated bag are the prevalences of one training bag, or of two mixed with a weight from this
# Beta distribution, times log-normal noise of this width. Otherwise the head would memorise the training bags.
_ENDS, _JITTER = 0.3, 0.5


def blur(
    features: Tensor, shares: Floats, rng: np.random.Generator, spread: float | Tensor = 1.0
) -> tuple[Tensor, Floats]:
    """Copy rows and add noise if there are few, so that the head does not memorise them; return features and shares.

    `features` is (n_rows, n_features), `shares` is (n_rows, n_classes) from `class_shares`, and `spread` is the
    standard deviation of the features, a number or (n_features,).
    """
    n_copies = int(np.clip(_ENOUGH_ROWS // len(features), 1, _MOST_COPIES))
    # The noise is as wide as the kernels of a density estimate: wider if a class has fewer rows.
    width = _BLUR * float((np.square(shares).sum(0) ** 0.2).mean()) * spread
    blurred = features.repeat(n_copies, 1)
    blurred += width * torch.from_numpy(rng.standard_normal(tuple(blurred.shape))).to(features.dtype)
    return blurred, np.tile(shares, (n_copies, 1)) / n_copies


class SimulatedBags:
    """Bags of scored rows, drawn class by class, with prevalences and sizes similar to the training bags.

    Parameters
    ----------
    shares : (n_rows, n_classes)
        Distribution of each class over the scored rows.
    bags : Bags
        Training bags, with prevalences.
    protocol : protocol, optional
        Protocol that draws the prevalences. By default, they vary the prevalences of `bags`.
    rng : Generator
        Source of the rows.
    n_bags, n_entries : int
        Largest numbers of bags and of entries drawn at a time.
    """

    def __init__(
        self,
        shares: Floats,
        bags: Bags,
        protocol: SamplingProtocol | None,
        rng: np.random.Generator,
        n_bags: int = _BAGS,
        n_entries: int = _ENTRIES,
    ) -> None:
        # Many rows of each class are drawn by their shares once; every bag takes some of these.
        self.rows = np.stack(
            [_draw_rows(np.cumsum(column), max(_DRAWN_ROWS, 2 * len(shares)), rng) for column in shares.T]
        )
        self.bags, self.protocol, n_classes = bags, protocol, shares.shape[1]
        self.n_bags, self.n_entries = n_bags, n_entries
        # One row per class, weighted by the mean prevalence, because some protocols draw rows instead of classes.
        usual = np.maximum(bags.prevalences.mean(0), 1e-9)  # type: ignore[union-attr]
        self.classes = Bags(
            np.arange(n_classes)[:, None],
            labels=np.arange(n_classes),
            classes=range(n_classes),
            weights=usual,
            weight_kind="survey",
        )

    def __call__(self, estimate: Callable[[Tensor, Tensor], Tensor], rng: np.random.Generator) -> tuple[Tensor, ...]:
        """Draw bags, call ``estimate(offsets, rows)``, and return p_true, p_pred and the sizes of the bags.

        Bag *i* has the row numbers ``rows[offsets[i]:offsets[i + 1]]``.
        """
        counts = self._counts(rng)
        sizes = counts.sum(1)
        n_bags, n_classes = counts.shape
        codes = np.repeat(np.tile(np.arange(n_classes), n_bags), counts.ravel())
        rows = self.rows[codes, rng.integers(self.rows.shape[1], size=len(codes))]
        p_pred = estimate(torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])), torch.from_numpy(rows))
        p_true, sizes_ = (torch.as_tensor(a, dtype=p_pred.dtype) for a in (counts / sizes[:, None], sizes))
        return p_true, p_pred, sizes_

    def _counts(self, rng: np.random.Generator) -> Ints:
        """Draw the number of rows of each class in each bag: (n_bags, n_classes)."""
        n = self.n_bags
        if self.protocol is not None:
            drawn = self.protocol.draw(self.classes, n, rng)
            found = count_labels(drawn.index, drawn.bag_of_entry, len(drawn), len(self.classes.index), None)
            counts = found.astype(np.int64)
        else:
            known: Any = self.bags.prevalences
            a, b = rng.integers(len(known), size=(2, n))
            part = np.where(rng.random(n) < 0.5, 1.0, rng.beta(_ENDS, _ENDS, n))[:, None]
            mixed = (part * known[a] + (1 - part) * known[b]) * np.exp(_JITTER * rng.standard_normal(known[a].shape))
            sizes = np.clip(np.round(self.bags.sizes[a]), 1, self.n_entries).astype(np.int64)
            counts = apportion(mixed / mixed.sum(1, keepdims=True), sizes)
        fits = np.cumsum(counts.sum(1)) <= self.n_entries
        fits[0] = True
        return counts[fits]


def _draw_rows(below: Floats, n: int, rng: np.random.Generator) -> Ints:
    """Draw rows by their cumulative shares."""
    found = np.searchsorted(below, rng.random(n) * below[-1], side="right")
    return np.minimum(found, len(below) - 1)


def pretraining_steps(training_rows: TrainingRows, training: Training) -> int:
    """Return the number of updates; a short training has a short pretraining."""
    return min(_STEPS[training_rows.has_implied_labels], _STEPS_PER_EPOCH * training.epochs)


def pretrain_head(
    rates: list[tuple[list[nn.Parameter], float]],
    estimate_batch: Callable[[], tuple[Tensor, ...]],
    loss: Measure,
    n_steps: int,
) -> None:
    """Train parameters on simulated bags; `rates` pairs parameters with learning rates, which decrease to zero."""
    groups = [{"params": parameters, "first": rate} for parameters, rate in rates if parameters]
    solver = torch.optim.Adam(groups)
    for step in range(n_steps):
        for group in solver.param_groups:
            group["lr"] = group["first"] * (1 - step / n_steps)
        solver.zero_grad()
        loss(*estimate_batch()).mean().backward()
        nn.utils.clip_grad_norm_([p for parameters, _ in rates for p in parameters], _CLIP)
        solver.step()
