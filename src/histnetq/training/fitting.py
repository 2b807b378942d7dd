"""A network, trained on what `fit` was given: the split, the start, the loop, and the repetition on everything."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histnetq.data.bags import Bags
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure, as_loss
from histnetq.nn import BagNetwork
from histnetq.training.batches import choose_device
from histnetq.training.checkpoint import has_checkpoint
from histnetq.training.fingerprint import describe
from histnetq.training.loop import train
from histnetq.training.options import Training, TrainingInterrupted
from histnetq.training.processes import Processes
from histnetq.training.supervision import Supervision

__all__ = ["Task", "TrainedNetwork"]

Start = Callable[[BagNetwork, Supervision, Protocol | None, Measure, int], bool]


@dataclass(frozen=True)
class TrainedNetwork:
    """What training gives.

    Attributes
    ----------
    network : BagNetwork
        With the weights of the best epoch.
    history : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch : int
        The epoch of the lowest validation loss; 0 is the start.
    validation_loss : float
        The loss of that epoch.
    split : str
        What it was validated on, in words.
    """

    network: BagNetwork
    history: dict[str, NDArray]
    best_epoch: int
    validation_loss: float
    split: str


@dataclass(frozen=True)
class Task:
    """What a network is trained for; the fields are parameters of a quantifier.

    Attributes
    ----------
    name : str
        Name of the quantifier.
    params : dict
        All parameters of the quantifier, which a checkpoint must agree with.
    """

    name: str
    params: Mapping[str, Any]

    @classmethod
    def of(cls, quantifier: Any) -> Task:
        """Check the parameters of a quantifier that trains a network, and take them."""
        task = cls(type(quantifier).__name__, quantifier.get_params(deep=False))
        if not isinstance(task.training, Training):
            raise TypeError(f"training: expected a Training object such as Training(epochs=50), got {task.training!r}.")
        if not isinstance(task.label_weight, Real) or task.label_weight < 0:
            raise ValueError(f"label_weight: expected a number of at least 0, got {task.label_weight!r}.")
        seed = task.random_state
        if not (seed is None or (isinstance(seed, Integral) and seed >= 0)):
            raise ValueError(f"random_state: expected None or a whole number of at least 0, got {seed!r}.")
        return task

    @property
    def training(self) -> Training:
        """Options of the loop."""
        return self.params["training"]

    @property
    def label_weight(self) -> float:
        """Weight of the rows' cross-entropy."""
        return self.params.get("label_weight", 0.0)

    @property
    def random_state(self) -> int | None:
        """Seed of everything that is drawn."""
        return self.params["random_state"]

    def train(
        self,
        given: Supervision,
        make: Callable[[Supervision, Supervision], BagNetwork],
        validation: Bags | None = None,
        start: Start | None = None,
    ) -> TrainedNetwork:
        """Train the network that `make` gives for what is learned from and what is held out.

        Parameters
        ----------
        given : Supervision
            All that `fit` was given.
        make : callable
            Makes the network, with weights that are random.
        validation : Bags, optional
            Bags that choose the best epoch; default: some of what is given is held out.
        start : callable, optional
            Gives the network better weights than random ones, and tells whether there are any.
        """
        seed = int(Processes.started().agree(int(np.random.default_rng(self.random_state).integers(2**31)))[0])
        sampler = given.choose_sampler(self.params["sampler"])
        if validation is None:
            learned, held = given.split(self.training.validation, seed)
            validation, everything = held.validation_bags(sampler, self.training.validation_bags, seed), given
            sampler = learned.choose_sampler(self.params["sampler"])
        else:
            validation = given.check_validation(validation)
            learned, held = given, Supervision(None, validation, how=f"{len(validation)} bags given for it")
            everything = given.joined(validation) if self.training.refit else given

        def work(part: Supervision, training: Training, **options: Any) -> tuple[BagNetwork, dict[str, Any]]:
            return self._train_once(
                part, sampler, lambda: make(part, held), start, validation, training, seed, **options
            )

        network, result = work(learned, self.training)
        best_epoch, history = result["best_epoch"], result["history"]
        if self.training.refit:
            place = self.training.checkpoint and os.path.join(self.training.checkpoint, f"refit-{best_epoch}")
            training = dataclasses.replace(self.training, checkpoint=place, minutes=None, callbacks=())
            try:
                network, _ = work(everything, training, rates=history["lr"][:best_epoch])
            except KeyboardInterrupt:
                told = "training interrupted in its repetition on everything; the first is kept."
                warnings.warn(told, TrainingInterrupted, stacklevel=2)
        return TrainedNetwork(network, history, best_epoch, result["best_loss"], f"Validated on {held.how}.")

    def _train_once(
        self, learned: Supervision, sampler: Protocol | None, make: Callable[[], BagNetwork], start: Start | None,
        validation: Bags, training: Training, seed: int, **options: Any,
    ) -> tuple[BagNetwork, dict[str, Any]]:  # fmt: skip
        loss, device = as_loss(self.params["loss"]), choose_device(training.device)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            network = make()
            # A run that goes on has its weights in the checkpoint.
            started = has_checkpoint(training) or (start is not None and start(network, learned, sampler, loss, seed))
        network = network.to(device)
        result = train(
            network, learned.drawing(sampler, training.bags_per_epoch), validation, loss, training, seed,
            label_weight=self.label_weight, started=started,
            identity=self._identity(learned, validation, seed) if training.checkpoint else "", **options,
        )  # fmt: skip
        return network, result

    def _identity(self, learned: Supervision, validation: Bags, seed: int) -> str:
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number beside training.checkpoint, got None; only a repeatable run resumes."
            )
        others = {k: describe(v) for k, v in self.params.items() if k != "training"}
        data = [part.fingerprint() for part in (learned.rows, learned.bags, validation) if part is not None]
        return json.dumps([self.name, self.training.identity(), others, data, seed], sort_keys=True)
