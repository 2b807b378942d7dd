"""A rehearsal: what follows an encoder learns on bags that are drawn for it, while the encoder stays as it is.

Rows that the encoder has not learned from are encoded once and for all. Tens of thousands of bags are drawn from them,
class by class, at prevalences like those of training, so that their labels are exact. On these the layers after the
encoder learn to have a low loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from histnetq.bags.bags import Bags
from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.simplex import apportion, count_labels
from histnetq.training.options import Training
from histnetq.training.pretraining.examples import Examples, Floats, Ints

_ENOUGH_ROWS, _MOST_COPIES, _BLUR = 50_000, 20, 0.6  # rows are copied to about so many; widths they are moved by
# Updates in a rehearsal: fewer where labels are implied, as a head then learns their errors too; and at most so many
# for each epoch that may follow.
_STEPS, _STEPS_PER_EPOCH = {False: 1000, True: 500}, 20
_BAGS, _ENTRIES = 100, 200_000  # drawn for an update: so many bags, if they have no more entries
_DRAWN_ROWS = 50_000  # of each class, at least
_CLIP = 1.0
# Prevalences of bags that are drawn are those of a bag, or of two, mixed by a Beta distribution with this parameter,
# and are multiplied by log-normal numbers of this deviation: a head learns a few hundred of them by heart otherwise.
_ENDS, _JITTER = 0.3, 0.5

Estimates = tuple[Tensor, Tensor, Tensor]  # true prevalences, estimated ones, sizes of the bags


def blur(
    features: Tensor, shares: Floats, rng: np.random.Generator, spread: float | Tensor = 1.0
) -> tuple[Tensor, Floats]:
    """Give copies of few rows, moved a little at random, so that these very rows are not learned by heart.

    Parameters
    ----------
    features : Tensor of shape (n_rows, n_features)
        Features of rows.
    shares : (n_rows, n_classes)
        How the rows of each class are distributed over these.
    rng : Generator
        Source of the noise.
    spread : float or Tensor of shape (n_features,)
        How wide the features are spread.
    """
    n_copies = int(np.clip(_ENOUGH_ROWS // len(features), 1, _MOST_COPIES))
    # As wide as kernels of density estimates: the fewer rows a class has, the wider.
    width = _BLUR * float((np.square(shares).sum(0) ** 0.2).mean()) * spread
    blurred = features.repeat(n_copies, 1)
    blurred += width * torch.from_numpy(rng.standard_normal(tuple(blurred.shape))).to(features.dtype)
    return blurred, np.tile(shares, (n_copies, 1)) / n_copies


class Rehearsal:
    """Bags of judged rows, drawn class by class, at prevalences and of sizes like those of training.

    Parameters
    ----------
    shares : (n_rows, n_classes)
        How the rows of each class are distributed over the judged ones.
    bags : Bags
        Bags like those of training, with prevalences.
    protocol : protocol, optional
        How bags are drawn from labelled rows; by default they are drawn like these bags.
    rng : Generator
        Source of the rows that are drawn.
    n_bags, n_entries : int
        Bags that are drawn at a time, if they have no more entries.
    """

    def __init__(
        self, shares: Floats, bags: Bags, protocol: Protocol | None, rng: np.random.Generator,
        n_bags: int = _BAGS, n_entries: int = _ENTRIES,
    ) -> None:  # fmt: skip
        # Of each class, many rows drawn by their shares once and for all, of which each bag takes some.
        self.rows = np.stack(
            [_draw_rows(np.cumsum(column), max(_DRAWN_ROWS, 2 * len(shares)), rng) for column in shares.T]
        )
        self.bags, self.protocol, n_classes = bags, protocol, shares.shape[1]
        self.n_bags, self.n_entries = n_bags, n_entries
        # A row of each class, as common as the class is in bags of the protocol: some draw rows and not classes.
        usual = np.maximum(bags.prevalences.mean(0), 1e-9)  # type: ignore[union-attr]
        self.classes = Bags(
            np.arange(n_classes)[:, None], labels=np.arange(n_classes), classes=range(n_classes), weights=usual,
            weight_kind="survey",
        )  # fmt: skip

    def __call__(self, estimate: Callable[[Tensor, Tensor], Tensor], rng: np.random.Generator) -> Estimates:
        """Draw some bags, and estimate their prevalences from their offsets and the numbers of their rows."""
        counts = self._counts(rng)
        sizes = counts.sum(1)
        n_bags, n_classes = counts.shape
        codes = np.repeat(np.tile(np.arange(n_classes), n_bags), counts.ravel())
        rows = self.rows[codes, rng.integers(self.rows.shape[1], size=len(codes))]
        p_pred = estimate(torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)])), torch.from_numpy(rows))
        p_true, sizes_ = (torch.as_tensor(a, dtype=p_pred.dtype) for a in (counts / sizes[:, None], sizes))
        return p_true, p_pred, sizes_

    def _counts(self, rng: np.random.Generator) -> Ints:
        """(n_bags, n_classes): rows of each class in each bag."""
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


def rehearsal_steps(examples: Examples, training: Training) -> int:
    """Say how many updates a rehearsal has: a short training has a short one."""
    return min(_STEPS[examples.unknown], _STEPS_PER_EPOCH * training.epochs)


def rehearse(
    rates: list[tuple[list[nn.Parameter], float]], practise: Callable[[], Estimates], loss: Measure, n_steps: int
) -> None:
    """Train layers on drawn bags, at rates that sink to zero.

    Parameters
    ----------
    rates : list of (list of parameters, float)
        What is learned, and the learning rates at the beginning.
    practise : callable
        Draws bags and estimates them.
    loss : callable
        What estimates are to be good for.
    n_steps : int
        Updates of the weights.
    """
    groups = [{"params": parameters, "first": rate} for parameters, rate in rates if parameters]
    solver = torch.optim.Adam(groups)
    for step in range(n_steps):
        for group in solver.param_groups:
            group["lr"] = group["first"] * (1 - step / n_steps)
        solver.zero_grad()
        loss(*practise()).mean().backward()
        nn.utils.clip_grad_norm_([p for parameters, _ in rates for p in parameters], _CLIP)
        solver.step()
