"""The training loop: epochs of drawn bags, a plateau schedule, early stopping, checkpoints and exact resume.

An epoch is a function of the weights, the optimiser's state, the seed and the epoch's number and of nothing else: both
random generators start anew from (seed, epoch). A run that was cut off anywhere therefore continues from the last
checkpoint to exactly the weights of an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from histnetq.data.bags import Bags
from histnetq.data.checks import take_dense
from histnetq.metrics import Measure, kld
from histnetq.nn import BagNetwork, Mean
from histnetq.nn.histograms import Histogram
from histnetq.training.batches import Batch, make_batch, predict_bags
from histnetq.training.checkpoint import make_directory, read_checkpoint, write_checkpoint
from histnetq.training.options import Training, TrainingInterrupted
from histnetq.training.processes import Processes

__all__ = ["train"]

_FIRST_UPDATES = 10  # that count for little in a running mean of weights
_COMPARED_ROWS = 256  # between processes


@dataclass
class _Progress:
    """Where a run stands: everything but the weights and the optimiser's state."""

    epoch: int = 0
    lr: float = 0.0
    best_loss: float = float("inf")
    best_epoch: int = 0
    stale: int = 0
    updates: int = 0
    done: bool = False
    history: dict[str, list[float]] = field(default_factory=dict)


class _Run:
    def __init__(
        self,
        network: BagNetwork,
        draw: Callable[[np.random.Generator], Bags],
        validation: Bags,
        loss: Measure,
        label_weight: float,
        options: Training,
        seed: int,
        processes: Processes,
        started: bool,
        rates: NDArray[np.float64] | None,
    ) -> None:
        self.network, self.draw, self.validation, self.loss = network, draw, validation, loss
        self.label_weight, self.options, self.seed, self.processes = label_weight, options, seed, processes
        self.started, self.rates = started, rates
        self.optimizer = _optimizer(network, options)
        self.progress = _Progress(lr=options.lr)
        self.mean: dict[str, Tensor] | None
        self.begin()

    def begin(self) -> None:
        """Take the network's weights for those of a run that has not begun."""
        if self.progress.epoch == 0:
            self.best = _copy_state(self.network)
            self.mean = _copy_state(self.network) if self.options.average > 1 else None

    def look(self) -> None:
        """Validate weights that a run starts with, if they are not random: no epoch may be better."""
        if self.started and self.rates is None and self.progress.epoch == 0:
            loss = self.processes.agree(self.validate())[0]
            self.progress.best_loss = loss if np.isfinite(loss) else float("inf")

    def epoch(self) -> dict[str, float]:
        """Train one epoch, validate, and note the result."""
        at, began = self.progress, time.perf_counter()
        at.epoch += 1
        rng = np.random.default_rng([self.seed, at.epoch])
        torch.manual_seed(int(rng.integers(2**62)) + self.processes.rank)  # another dropout in every process
        bags = self.draw(rng)
        bags = bags[rng.permutation(len(bags))]
        if self.rates is not None:
            at.lr = float(self.rates[at.epoch - 1])
        for group in self.optimizer.param_groups:
            group["lr"] = at.lr * group["pace"]
        self.network.train()
        n = self.options.batch_bags
        losses = [self.step(bags[start : start + n]) for start in range(0, len(bags), n)]
        mean_loss = float(torch.stack(losses).mean())
        self.processes.spread(self.network.buffers())  # of layers that keep averages of what they saw
        self.processes.spread((self.mean or {}).values())
        with self.averaged():
            train_loss, validation_loss, seconds = self.processes.agree(
                mean_loss, mean_loss if self.rates is not None else self.validate(), time.perf_counter() - began
            )
            _refuse_divergence(train_loss, validation_loss, at.epoch)
            record = {
                "epoch": at.epoch, "train_loss": train_loss, "validation_loss": validation_loss,
                "lr": at.lr, "seconds": seconds,
            }  # fmt: skip
            self.note(record)
        return record

    def step(self, bags: Bags) -> Tensor:
        """One update of the weights from these bags."""
        self.optimizer.zero_grad(set_to_none=True)
        micro = self.options.micro_bags or len(bags)
        mine = bags[self.processes.share(len(bags))]
        parts = [mine[start : start + micro] for start in range(0, len(mine), micro)]
        parameter = next(self.network.parameters())
        n_labelled = _labelled_weight(bags) if self.label_weight else 0.0
        total = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        for part in parts:
            batch = make_batch(part, parameter.device, parameter.dtype)
            value = self.objective(batch, len(part) / len(bags), n_labelled)
            value.backward()
            total += value.detach()
        total = self.processes.add_gradients(self.network.parameters(), total)
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimizer.step()
        self.average()
        return total

    def average(self) -> None:
        """Move the running mean towards the weights: the slower, the more updates there were."""
        at = self.progress
        at.updates += 1
        if self.mean is None:
            return
        pace = max(1 / self.options.average, _FIRST_UPDATES / (_FIRST_UPDATES + at.updates))
        for name, value in self.network.state_dict().items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, pace)
            else:
                self.mean[name].copy_(value)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The running mean in the place of the last weights."""
        if self.mean is None:
            yield
            return
        last = _copy_state(self.network)
        self.network.load_state_dict(self.mean)
        try:
            yield
        finally:
            self.network.load_state_dict(last)

    def objective(self, batch: Batch, share: float, n_labelled: float) -> Tensor:
        """The part of the batch's loss that comes from these bags, `share` of all."""
        features = self.network.encode(batch.rows)
        p_pred = self.network.quantify(self.network.pooling(features, batch.offsets, batch.weights, batch.index))
        if self.progress.epoch <= self.options.warmup:
            value = kld(batch.p_true, p_pred, batch.sizes).mean() * share
            if self.network.classifier is not None:
                posteriors = self.network.classifier(features).softmax(-1)
                means = Mean(posteriors.shape[1])(posteriors, batch.offsets, batch.weights, batch.index)
                value = value + kld(batch.p_true, means, batch.sizes).mean() * share
        else:
            value = self.loss(batch.p_true, p_pred, batch.sizes).mean() * share
        if n_labelled and batch.labels is not None and self.network.classifier is not None:
            scores = self.network.classifier(features)
            errors = F.cross_entropy(scores, batch.labels, ignore_index=-1, reduction="none")
            copies = torch.zeros_like(errors)
            weights = torch.ones_like(batch.index) if batch.weights is None else batch.weights
            copies.index_add_(0, batch.index, weights.to(errors.dtype))
            value = value + self.label_weight * (errors * copies).sum() / n_labelled
        return value

    def validate(self) -> float:
        like = next(self.network.parameters())  # a custom loss may hold tensors of the network's type and device
        bags = self.validation
        mine = bags[self.processes.share(len(bags))]
        part = predict_bags(self.network, mine) if len(mine) else np.empty((0, len(bags.classes)))  # type: ignore[arg-type]
        arrays = (bags.prevalences, self.processes.gather(part, len(bags)), bags.sizes)
        p_true, p_pred, sizes = (torch.as_tensor(a, dtype=like.dtype, device=like.device) for a in arrays)
        return float(self.loss(p_true, p_pred, sizes).mean())

    def note(self, record: dict[str, float]) -> None:
        """Keep the best weights, lower the learning rate on a plateau, and stop at the end of the last one."""
        at = self.progress
        for name, value in record.items():
            at.history.setdefault(name, []).append(value)
        at.stale = at.stale + 1 if at.epoch > self.options.warmup else 0
        if self.rates is not None or record["validation_loss"] < at.best_loss:
            at.best_loss, at.best_epoch, at.stale = record["validation_loss"], at.epoch, 0
            self.best = _copy_state(self.network)
        if self.rates is None and at.stale >= self.options.patience:
            at.done = at.lr <= self.options.min_lr
            at.lr, at.stale = max(at.lr / 2, min(self.options.min_lr, at.lr)), 0

    def ends(self) -> bool:
        """Whether no further epoch is to be trained."""
        at, most = self.progress, self.options.minutes
        in_time = most is None or sum(at.history.get("seconds", [])) < 60 * most
        most_epochs = self.options.epochs if self.rates is None else len(self.rates)
        return at.done or at.epoch >= most_epochs or (at.epoch > 0 and not in_time)

    def save(self, directory: Path, identity: str) -> None:
        """Write a checkpoint from which `resume` goes on."""
        optimizer = self.optimizer.state_dict()["state"]
        tensors = {
            "network": self.network.state_dict(), "best": self.best, "mean": self.mean or {},
            "optimizer": {f"{i}/{k}": v for i, state in optimizer.items() for k, v in state.items()},
        }  # fmt: skip
        write_checkpoint(directory, identity, dataclasses.asdict(self.progress), tensors)

    def resume(self, directory: Path, identity: str) -> None:
        """Continue from the checkpoint in the directory, if there is one of this very run."""
        found = read_checkpoint(directory, identity)
        if found is None:
            return
        progress, tensors = found
        self.network.load_state_dict(tensors["network"])
        self.best = tensors["best"]
        if self.mean is not None:
            self.mean = {k: v.to(self.mean[k].device) for k, v in tensors["mean"].items()}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors["optimizer"].items():
            i, key = name.split("/")
            state.setdefault(int(i), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.progress = _Progress(**progress)

    def digest(self) -> bytes:
        """What processes that train together must have in common: layers, options, seed, progress and bags."""
        layers = [(name, tuple(tensor.shape)) for name, tensor in self.network.state_dict().items()]
        about = (self.options.identity(), self.options.epochs, self.label_weight, self.seed, self.progress.epoch)
        digest = hashlib.sha256(repr((layers, about)).encode())
        for bags in (self.validation, self.draw(np.random.default_rng(self.seed))):
            digest.update(repr(bags).encode())
            for array in (bags.index, bags.prevalences, take_dense(bags.rows, bags.index[:_COMPARED_ROWS])):
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


def train(
    network: BagNetwork,
    draw: Callable[[np.random.Generator], Bags],
    validation: Bags,
    loss: Measure,
    options: Training,
    seed: int,
    *,
    label_weight: float = 0.0,
    identity: str = "",
    started: bool = False,
    rates: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Train the network in place and leave it with the weights of its best epoch.

    Parameters
    ----------
    draw : generator → Bags
        The training bags of an epoch, with prevalences.
    validation : Bags
        Fixed bags, with prevalences, whose mean loss chooses the best epoch.
    label_weight : float
        Weight of the rows' mean cross-entropy, where rows have labels and the network a classifier.
    identity : str
        What a checkpoint must have been made of to be continued.
    started : bool
        Whether the network's weights may be the best ones as they are: those of epoch 0.
    rates : (n_epochs,), optional
        Learning rates of all epochs, the last of which is taken for the best: nothing is chosen.

    Returns
    -------
    dict with `history` (one array per column), `best_epoch` and `best_loss`.
    """
    directory = None if options.checkpoint is None else Path(options.checkpoint)
    processes = Processes.started()
    run = _Run(network, draw, validation, loss, label_weight, options, seed, processes, started, rates)
    device = next(network.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        if directory is not None:
            make_directory(directory)
            run.resume(directory, identity)
        if processes.count > 1:
            processes.refuse_different(run.digest())
            processes.spread(network.state_dict().values())  # an encoder that was given may have other weights in each
            run.begin()
        run.look()
        try:
            for record in _epochs(run):
                last = run.ends()
                due = last or record["epoch"] % options.checkpoint_every == 0
                if directory is not None and due and processes.is_first:
                    run.save(directory, identity)
                answers = [callback(record) for callback in options.callbacks]
                if processes.any(any(answer is True for answer in answers)):
                    break
        except KeyboardInterrupt:
            # Several processes may have stopped in different epochs, and a repetition has no best one.
            if not run.progress.history or processes.count > 1 or rates is not None:
                raise
            warnings.warn(
                f"training interrupted in epoch {run.progress.epoch}; "
                f"the weights of the best epoch so far ({run.progress.best_epoch}) are kept.",
                TrainingInterrupted,
                stacklevel=2,
            )
    network.load_state_dict(run.best)
    network.eval()
    at = run.progress
    history = {name: np.asarray(values) for name, values in at.history.items()}
    return {"history": history, "best_epoch": at.best_epoch, "best_loss": at.best_loss}


def _epochs(run: _Run) -> Iterator[dict[str, float]]:
    options, at = run.options, run.progress
    hidden = not (run.processes.is_first and (sys.stderr.isatty() if options.progress is None else options.progress))
    total = options.epochs if run.rates is None else len(run.rates)
    with tqdm(total=total, initial=at.epoch, unit="epoch", disable=hidden, leave=False) as bar:
        while not run.ends():
            record = run.epoch()
            bar.update()
            bar.set_postfix(train=f"{record['train_loss']:.4g}", validation=f"{record['validation_loss']:.4g}")
            yield record


def _optimizer(network: BagNetwork, options: Training) -> torch.optim.Optimizer:
    bins = {id(p) for m in network.modules() if isinstance(m, Histogram) for p in m.parameters()}
    parameters = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1 and id(p) not in bins], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1 and id(p) not in bins], "weight_decay": 0.0},
        {"params": [p for p in parameters if id(p) in bins], "weight_decay": 0.0, "pace": options.bin_lr},
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.AdamW([{"pace": 1.0, **g} for g in groups if g["params"]], lr=options.lr, fused=fused)


def _copy_state(network: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in network.state_dict().items()}


def _labelled_weight(bags: Bags) -> float:
    if bags.labels is None:
        return 0.0
    return float(bags.entry_weights()[bags.labels[bags.index] >= 0].sum())


def _refuse_divergence(train_loss: float, validation_loss: float, epoch: int) -> None:
    if not (np.isfinite(train_loss) and np.isfinite(validation_loss)):
        raise FloatingPointError(
            f"training: the loss is not finite in epoch {epoch} (training {train_loss}, validation {validation_loss}); "
            "lower training__lr, set training__clip, or check a custom loss for division by zero."
        )
