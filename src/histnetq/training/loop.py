"""The training loop: epochs of drawn bags, a plateau schedule, early stopping, checkpoints and exact resume.

An epoch depends only on the weights, the optimiser's state, the seed and the epoch's number: both random generators are
seeded again with (seed, epoch). An interrupted run that resumes from its last checkpoint therefore ends with exactly
the weights of an uninterrupted run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from histnetq.bags.bags import Bags
from histnetq.bags.checks import take_dense
from histnetq.errors import Option, StructuredError, Way
from histnetq.metrics import Measure, kld
from histnetq.nn import BagNetwork, Mean
from histnetq.nn.gaussians import Gaussians
from histnetq.nn.histograms import Histogram
from histnetq.training.batches import Batch, make_batch, predict_bags
from histnetq.training.checkpoint import has_checkpoint, make_directory, read_checkpoint, write_checkpoint
from histnetq.training.fingerprint import describe
from histnetq.training.options import Training, TrainingInterrupted
from histnetq.training.processes import Processes
from histnetq.training.progress import ProgressLines, report_event

_STEADIER = (
    Way("lower training__lr, set training__clip, or check a custom loss for division by zero", on=("python",)),
    Way("look for extreme values among the features", on=("command", "service")),
    Way(", or choose another ", Option("method"), on=("command", "service")),
)
_COLUMNS = ("epoch", "train_loss", "validation_loss", "lr", "seconds")
_FINE_RATE = 0.1  # factor of the learning rate when pretrained weights are fine-tuned
_MUCH_WORSE = 0.5  # a run returns to its best weights if its loss exceeds the best one by more than this fraction
_FIRST_UPDATES = 10  # updates that count little in the running mean of weights
_COMPARED_ROWS = 256  # rows whose values processes compare
# A network must beat a constant estimate by this fraction of the constant's loss, or by this number of standard errors:
# the validation bags also choose the best epoch, so noise alone beats a constant by a little.
_LEAST_GAIN, _CLEARLY = 0.05, 3.0


class DivergedError(StructuredError, FloatingPointError):
    """A loss that is no longer finite."""


@dataclass
class _Progress:
    """The state of a run, except the weights and the optimiser's state."""

    epoch: int = 0
    lr: float = 0.0
    best_loss: float = float("inf")
    best_epoch: int = 0
    stale: int = 0
    updates: int = 0
    done: bool = False
    spent: float = 0.0  # seconds of pretraining
    fine: bool = False  # whether pretrained weights are fine-tuned, at a low rate and without dropout
    first: list[float] = field(default_factory=list)  # losses of the validation bags with the pretrained weights
    undone: list[int] = field(default_factory=list)  # epochs whose weights were discarded
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})


@dataclass
class Run:
    """One run of the training loop.

    Attributes
    ----------
    network : BagNetwork
        The network, which is trained in place.
    draw : callable
        Draws the training bags of an epoch, with prevalences, from a random generator.
    validation : Bags
        Fixed bags, with prevalences, whose mean loss chooses the best epoch.
    loss : callable
        Returns the loss of each bag from ``p_true, p_pred, sizes``.
    options : Training
        Options of the loop.
    seed : int
        Seed of all random draws.
    label_weight : float
        Weight of the mean cross-entropy of labelled rows, if the network has a classifier.
    identity : str
        Text that a checkpoint must contain for this run to resume it.
    started : bool
        Whether the network is pretrained. Its weights then count as epoch 0, and later weights replace them only if
        they are better by more than one standard error of the difference.
    rates : (n_epochs,), optional
        Learning rates of a refit, one per epoch. The last epoch is then kept, without validation.
    name : str
        Name of the quantifier, for log lines.
    spent : float
        Seconds of pretraining.
    """

    network: BagNetwork
    draw: Callable[[np.random.Generator], Bags]
    validation: Bags
    loss: Measure
    options: Training
    seed: int
    label_weight: float = 0.0
    identity: str = ""
    started: bool = False
    rates: NDArray[np.float64] | None = None
    name: str = "network"
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.processes, self.progress = Processes.started(), _Progress(lr=self.options.lr)
        self.optimizer = _optimizer(self.network, self.options)
        self.n_epochs = self.options.epochs if self.rates is None else len(self.rates)
        self.best: dict[str, Tensor] = {}
        self.mean: dict[str, Tensor] = {}  # the running mean of the weights; empty if they are not averaged

    def train(self) -> dict[str, Any]:
        """Train the network and give it the weights of its best epoch.

        Returns
        -------
        dict
            The `history` (one array per column), `best_epoch` and `best_loss`; the learning `rates` of the epochs that
            led to the best weights; and `interrupted`, such as "after epoch 2 of 200", or an empty string.
        """
        interrupted = ""
        at, device = self.progress, next(self.network.parameters()).device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            self._begin()
            try:
                self._epochs()
            except KeyboardInterrupt:
                # Several processes may have stopped in different epochs, and a refit has no best epoch.
                begun = bool(at.history["epoch"]) or self.started
                if not begun or self.processes.count > 1 or self.rates is not None:
                    raise
                interrupted = f"after epoch {len(at.history['epoch'])} of {self.n_epochs}"
                message = (
                    f"training interrupted {interrupted}; the weights of the best epoch ({at.best_epoch}) are kept."
                )
                warnings.warn(message, TrainingInterrupted, stacklevel=2)
        self.network.load_state_dict(self.best)
        self.network.eval()
        history = {name: np.asarray(values) for name, values in at.history.items()}
        return {
            "history": history,
            "best_epoch": at.best_epoch,
            "best_loss": at.best_loss,
            "interrupted": interrupted,
            "rates": history["lr"][: at.best_epoch][~np.isin(history["epoch"][: at.best_epoch], at.undone)],
        }

    def starting_loss(self) -> float:
        """Return the mean loss of the network on the validation bags."""
        return self.processes.agree(float(self._losses(self._estimate_validation()).mean()))[0]

    def unbeaten(self, mean: NDArray[np.float64]) -> float | None:
        """Return the mean loss of a constant estimate that the network does not clearly beat on the validation bags.

        Parameters
        ----------
        mean : (n_classes,)
            The training mean, the first constant. The second is the mean of the network's estimates, because for losses
            such as RAE some constants are much better than the training mean.

        Returns
        -------
        float or None
            The mean loss of the constant; None if the network beats both.
        """
        estimates = self._estimate_validation()
        own = self._losses(estimates).double().cpu().numpy()
        for constant in (mean, estimates.mean(0)):
            losses = self._losses(np.tile(constant, (len(own), 1))).double().cpu().numpy()
            gains = losses - own
            if gains.mean() <= min(_LEAST_GAIN * losses.mean(), _CLEARLY * gains.std() / len(gains) ** 0.5):
                return float(losses.mean())
        return None

    def _begin(self) -> None:
        """Resume this run from its checkpoint, or take the network's weights as the best so far."""
        at, directory = self.progress, self.options.checkpoint
        if directory is not None:
            make_directory(directory)
            if has_checkpoint(directory):
                self._resume(directory)
        if self.processes.count > 1:
            self.processes.refuse_different(self._digest())
            # A custom encoder may have different weights in each process.
            self.processes.spread(self.network.state_dict().values())
        if at.epoch == 0:
            self.best = _copy_state(self.network)
            self.mean = _copy_state(self.network) if self.options.average > 1 else {}
            at.spent = self.processes.agree(self.spent)[0]
            at.fine = self.started and self.network.head is not None
            if at.fine:
                at.lr *= _FINE_RATE
            if self.started and self.rates is None:  # possibly, no epoch improves on pretrained weights
                losses = self._losses(self._estimate_validation()).tolist()
                loss = self.processes.agree(float(np.mean(losses)))[0]
                if np.isfinite(loss):
                    at.first, at.best_loss = losses, loss

    def _epochs(self) -> None:
        """Train epochs until the run ends, with a progress bar, checkpoints and callbacks."""
        options, first = self.options, self.processes.rank == 0
        shown = first and (sys.stderr.isatty() if options.progress is None else options.progress)
        lines = ProgressLines(self.name, "epoch", self.n_epochs, self.progress.epoch)
        bar = tqdm(total=self.n_epochs, initial=self.progress.epoch, unit="epoch", disable=not shown, leave=False)
        with bar:
            while not self._ends() and (record := self._epoch()):
                bar.update()
                bar.set_postfix(train=f"{record['train_loss']:.4g}", validation=f"{record['validation_loss']:.4g}")
                if first:
                    lines.step(self.progress.epoch, f"loss {record['validation_loss']:.4f}")
                    report_event("epoch", done=self.progress.epoch, total=self.n_epochs, part=self._part_done())
                due = self._ends() or record["epoch"] % options.checkpoint_every == 0
                if options.checkpoint is not None and due and first:
                    self._save(options.checkpoint)
                answers = [callback(record) is True for callback in options.callbacks]
                if self.processes.any(any(answers)):
                    break

    def _ends(self) -> bool:
        """Return whether the run is over."""
        at = self.progress
        return at.done or at.epoch >= self.n_epochs or self._is_late()

    def _is_late(self, seconds: float = 0.0) -> bool:
        """Return whether the time limit is reached, given the seconds since the last epoch."""
        most = self.options.minutes
        if most is None or not (self.progress.history["epoch"] or self.started):  # there are no weights to keep yet
            return False
        return self._spent() + seconds >= 60 * most

    def _spent(self) -> float:
        """Return the seconds of pretraining and of all epochs."""
        return self.progress.spent + sum(self.progress.history["seconds"])

    def _part_done(self) -> float:
        """Return the finished fraction of the epochs, or of the time limit if it is larger."""
        most = self.options.minutes
        spent = 0.0 if most is None else self._spent() / max(60 * most, 1e-9)
        return min(1.0, max(self.progress.epoch / self.n_epochs, spent))

    def _epoch(self) -> dict[str, float]:
        """Train and validate one epoch, and return its record; undo the epoch and return {} if time runs out."""
        at, began = self.progress, time.perf_counter()
        before = at.epoch, at.updates
        at.epoch += 1
        losses = self._steps(began)
        if losses is None:
            at.epoch, at.updates = before
            return {}
        self.processes.spread(self.network.buffers())  # running statistics of layers such as batch norm
        self.processes.spread(self.mean.values())
        record = self._validate(losses, began)
        lost = record["validation_loss"] - at.best_loss
        if self.rates is None and lost > _MUCH_WORSE * abs(at.best_loss) and at.epoch > self.options.warmup:
            self._go_back()
        return record

    def _steps(self, began: float) -> Tensor | None:
        """Return the losses of all updates of an epoch, or None if time runs out."""
        at, n, losses = self.progress, self.options.batch_bags, []
        rng = np.random.default_rng([self.seed, at.epoch])
        torch.manual_seed(int(rng.integers(2**62)) + self.processes.rank)  # different dropout in every process
        bags = self.draw(rng)
        bags = bags[rng.permutation(len(bags))]
        if self.rates is not None:
            at.lr = float(self.rates[at.epoch - 1])
        for group in self.optimizer.param_groups:
            group["lr"] = at.lr * group["pace"]
        self.network.train(not at.fine)
        for start in range(0, len(bags), n):
            losses.append(self._step(bags[start : start + n]))
            if self.options.minutes and self.processes.any(self._is_late(time.perf_counter() - began)):
                return None
        return torch.stack(losses)

    def _validate(self, losses: Tensor, began: float) -> dict[str, float]:
        """Validate the weights, or their running mean, and return the record of the epoch."""
        with ExitStack() as afterwards:
            if self.mean:  # it replaces the last weights while it is validated and kept
                afterwards.callback(self.network.load_state_dict, _copy_state(self.network))
                self.network.load_state_dict(self.mean)
            validation = self._losses(self._estimate_validation()) if self.rates is None else losses
            numbers = float(losses.mean()), float(validation.mean()), time.perf_counter() - began
            trained, validated, seconds = self.processes.agree(*numbers)
            record = {
                "epoch": self.progress.epoch,
                "train_loss": trained,
                "validation_loss": validated,
                "lr": self.progress.lr,
                "seconds": seconds,
            }
            self._note(record, validation)
        return record

    def _step(self, bags: Bags) -> Tensor:
        """Update the weights once with these bags, and return their mean loss."""
        self.optimizer.zero_grad(set_to_none=True)
        micro = self.options.micro_bags or len(bags)
        mine = bags[self.processes.share(len(bags))]
        parameter = next(self.network.parameters())
        labelled = self.label_weight and bags.labels is not None
        n_labelled = float(bags.entry_weights()[bags.labels[bags.index] >= 0].sum()) if labelled else 0.0  # type: ignore[index]
        total = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        for start in range(0, len(mine), micro):
            part = mine[start : start + micro]
            batch = make_batch(part, parameter.device, parameter.dtype)
            value = self._objective(batch, len(part) / len(bags), n_labelled)
            value.backward()
            total += value.detach()
        total = self.processes.add_gradients(self.network.parameters(), total)
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.options.clip)
        self.optimizer.step()
        self.progress.updates += 1
        if self.mean:
            self._average()
        return total

    def _average(self) -> None:
        """Move the running mean towards the weights, more slowly after more updates."""
        pace = max(1 / self.options.average, _FIRST_UPDATES / (_FIRST_UPDATES + self.progress.updates))
        for name, value in self.network.state_dict().items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, pace)
            else:
                self.mean[name].copy_(value)

    def _objective(self, batch: Batch, share: float, n_labelled: float) -> Tensor:
        """Return the contribution of these bags, a fraction `share` of the batch, to the batch's loss."""
        warm, classifier = self.progress.epoch <= self.options.warmup, self.network.classifier
        features = self.network.encode(batch.rows)
        p_pred = self.network.quantify(self.network.pooling(features, batch.offsets, batch.weights, batch.index))
        value: Tensor = (kld if warm else self.loss)(batch.p_true, p_pred, batch.sizes).mean() * share
        if warm and classifier is not None:
            posteriors = classifier(features).softmax(-1)
            means = Mean(posteriors.shape[1])(posteriors, batch.offsets, batch.weights, batch.index)
            value = value + kld(batch.p_true, means, batch.sizes).mean() * share
        if n_labelled and batch.labels is not None and classifier is not None:
            errors = F.cross_entropy(classifier(features), batch.labels, ignore_index=-1, reduction="none")
            weights = torch.ones_like(batch.index) if batch.weights is None else batch.weights
            copies = torch.zeros_like(errors).index_add_(0, batch.index, weights.to(errors.dtype))
            value = value + self.label_weight * (errors * copies).sum() / n_labelled
        return value

    def _estimate_validation(self) -> NDArray[np.float64]:
        """Estimate the validation bags, shared among the processes: (n_bags, n_classes)."""
        bags = self.validation
        mine = bags[self.processes.share(len(bags))]
        part = predict_bags(self.network, mine) if len(mine) else np.empty((0, len(bags.classes)))  # type: ignore[arg-type]
        return self.processes.gather(part, len(bags))

    def _losses(self, estimates: NDArray[np.float64]) -> Tensor:
        """Return the loss of each validation bag for these estimates."""
        like = next(self.network.parameters())  # a custom loss may hold tensors of the network's type and device
        arrays = (self.validation.prevalences, estimates, self.validation.sizes)
        p_true, p_pred, sizes = (torch.as_tensor(a, dtype=like.dtype, device=like.device) for a in arrays)
        return self.loss(p_true, p_pred, sizes)

    def _go_back(self) -> None:
        """Return to the best weights and halve the learning rate, because the last weights are much worse."""
        self.network.load_state_dict(self.best)
        self.mean = _copy_state(self.network) if self.mean else {}
        self.optimizer.state.clear()
        at = self.progress
        at.lr /= 2
        at.undone = sorted({*at.undone, *range(at.best_epoch + 1, at.epoch + 1)})

    def _note(self, record: dict[str, float], losses: Tensor) -> None:
        """Keep the best weights, halve the learning rate on a plateau, and stop on a plateau at the lowest rate."""
        at, loss = self.progress, record["validation_loss"]
        if not (np.isfinite(record["train_loss"]) and np.isfinite(loss)):
            losses_shown = f"training {record['train_loss']}, validation {loss}"
            problem = f"the loss is not finite in epoch {at.epoch} ({losses_shown})"
            raise DivergedError("training", problem=problem, remedy=_STEADIER)
        for name, value in record.items():
            at.history[name].append(value)
        at.stale = at.stale + 1 if at.epoch > self.options.warmup else 0
        if self.rates is not None or (loss < at.best_loss and self._is_clear(losses)):
            at.best_loss, at.best_epoch, at.stale = loss, at.epoch, 0
            self.best = _copy_state(self.network)
        if self.rates is None and at.stale >= self.options.patience:
            at.done = at.lr <= self.options.min_lr
            at.lr, at.stale = max(at.lr / 2, min(self.options.min_lr, at.lr)), 0

    def _is_clear(self, losses: Tensor) -> bool:
        """Return whether the losses are lower than the losses of the pretrained weights by more than chance."""
        if not self.progress.first or len(losses) < 2:
            return True
        gains = np.asarray(self.progress.first) - losses.double().cpu().numpy()
        return bool(gains.mean() > gains.std(ddof=1) / len(gains) ** 0.5)

    def _save(self, directory: str) -> None:
        """Write a checkpoint that `_resume` reads."""
        states = self.optimizer.state_dict()["state"]
        optimizer = {f"{i}/{k}": v for i, state in states.items() for k, v in state.items()}
        tensors = {"network": self.network.state_dict(), "best": self.best, "mean": self.mean, "optimizer": optimizer}
        write_checkpoint(directory, self.identity, dataclasses.asdict(self.progress), tensors)

    def _resume(self, directory: str) -> None:
        """Restore the run from a checkpoint."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        start, layers = dataclasses.asdict(self.progress), self.network.state_dict()
        progress, tensors = read_checkpoint(directory, self.identity, start, layers, parameters)
        device, state = next(self.network.parameters()).device, defaultdict[int, dict[str, Tensor]](dict)
        self.network.load_state_dict(tensors["network"])
        self.best, self.mean = tensors["best"], {k: v.to(device) for k, v in tensors["mean"].items()}
        for name, value in tensors["optimizer"].items():
            i, key = name.split("/")
            state[int(i)][key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        vars(self.progress).update(progress)

    def _digest(self) -> bytes:
        """Return a checksum of the layers, options, seed, progress and bags, which all processes must share."""
        layers = [(name, tuple(tensor.shape)) for name, tensor in self.network.state_dict().items()]
        about = (self.options.identity(), self.options.epochs, self.label_weight, self.seed, self.progress.epoch)
        pair = (self.validation, self.draw(np.random.default_rng(self.seed)))
        bags = [[repr(b), b.index, b.prevalences, take_dense(b.rows, b.index[:_COMPARED_ROWS])] for b in pair]
        return hashlib.sha256(describe([layers, about, bags]).encode()).digest()


def _optimizer(network: BagNetwork, options: Training) -> torch.optim.Optimizer:
    """Build AdamW with weight decay for weight matrices only, and a separate learning rate for bins and Gaussians."""
    bins = {id(p) for m in network.modules() if isinstance(m, Histogram | Gaussians) for p in m.parameters()}
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
