"""A network, trained on what `fit` was given: the split, the start, the loop, and the repetition on everything."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.bags.checks import check_number, check_seed
from histnetq.bags.limits import brief
from histnetq.bags.protocols import Protocol
from histnetq.metrics import Measure, as_loss
from histnetq.nn import BagNetwork
from histnetq.training.batches import choose_device
from histnetq.training.checkpoint import has_checkpoint
from histnetq.training.fingerprint import describe
from histnetq.training.loop import Run
from histnetq.training.options import LearnedNothing, Training, TrainingInterrupted
from histnetq.training.processes import Processes
from histnetq.training.supervision import Supervision, check_sampler

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
    interrupted : str
        Where training was interrupted, such as "after epoch 2 of 200"; empty if it was not.
    learned_nothing : str
        A sentence that tells so if the estimates of the validation bags are no better than one estimate for all.
    """

    network: BagNetwork
    history: dict[str, NDArray]
    best_epoch: int
    validation_loss: float
    split: str
    interrupted: str = ""
    learned_nothing: str = ""


def check_task(quantifier: Any) -> None:
    """Refuse wrong values of the parameters that all quantifiers with a network share."""
    params = quantifier.get_params(deep=False)
    if not isinstance(params["training"], Training):
        got = brief(params["training"])
        raise TypeError(f"training: expected a Training object such as Training(epochs=50), got {got}.")
    check_number("label_weight", params.get("label_weight", 0.0), 0, 1e6)
    check_seed(params["random_state"])
    check_sampler(params["sampler"])
    as_loss(params["loss"])


class Task:
    """What a network is trained for.

    Parameters
    ----------
    quantifier : Quantifier
        Quantifier that trains a network, whose parameters have been checked.
    """

    def __init__(self, quantifier: Any) -> None:
        self.name, self.params = type(quantifier).__name__, quantifier.get_params(deep=False)
        self.training: Training = self.params["training"]
        self.label_weight, self.random_state = self.params.get("label_weight", 0.0), self.params["random_state"]

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
            Bags that choose the best epoch; by default, some of what is given is held out.
        start : callable, optional
            Gives the network better weights than random ones, and tells whether there are any.

        Returns
        -------
        TrainedNetwork
            The network, its history and what it was validated on.
        """
        seed = int(Processes.started().agree(int(np.random.default_rng(self.random_state).integers(2**31)))[0])
        wanted = self.params["sampler"]
        sampler = given.choose_sampler(wanted)
        learned, held, everything = self._hold_out(given, validation, seed)
        chooses = held.validation_bags(sampler, self.training.validation_bags, seed)
        sampler = learned.choose_sampler(wanted)

        def run(part: Supervision, training: Training, rates: NDArray | None = None) -> Run:
            loss, device = as_loss(self.params["loss"]), choose_device(training.device)
            began = time.perf_counter()
            with torch.random.fork_rng([]):
                torch.manual_seed(seed)
                network = make(part, held)
                # A run that goes on has its weights in the checkpoint.
                started = has_checkpoint(training.checkpoint) or (
                    start is not None and start(network, part, sampler, loss, seed)
                )
            network, draw = network.to(device), part.drawing(sampler, training.bags_per_epoch)
            identity = self._identity(part, chooses, seed) if training.checkpoint else ""
            return Run(
                network, draw, chooses, loss, training, seed, self.label_weight, identity, started, rates, self.name,
                time.perf_counter() - began if started else 0.0,
            )  # fmt: skip

        first = run(learned, self.training)
        result = first.train()
        best_epoch, history, network = result["best_epoch"], result["history"], first.network
        interrupted = result["interrupted"]
        nothing = self._judge(result["best_loss"], first.unbeaten(learned.prevalences()))
        if self.training.refit and not interrupted:
            place = self.training.checkpoint and os.path.join(self.training.checkpoint, f"refit-{best_epoch}")
            training = dataclasses.replace(self.training, checkpoint=place, minutes=None, callbacks=())
            try:
                again = run(everything, training, result["rates"])
                again.train()
                network = again.network
            except KeyboardInterrupt:
                interrupted = "in its repetition on everything"
                told = f"training interrupted {interrupted}; the first is kept."
                warnings.warn(told, TrainingInterrupted, stacklevel=2)
        return TrainedNetwork(
            network, history, best_epoch, result["best_loss"], f"Validated on {held.how}.", interrupted, nothing
        )

    def _judge(self, loss: float, unbeaten: float | None) -> str:
        """Warn, and tell in a sentence, that the network is no better than one estimate for all bags."""
        if unbeaten is None:
            return ""
        told = (
            f"{self.name} learned nothing: its loss on the validation bags is {loss:.4g}, and one estimate for all of "
            f"them has {unbeaten:.4g}; see whether the features tell the classes apart, or train longer."
        )
        if Processes.started().rank == 0:
            warnings.warn(told, LearnedNothing, stacklevel=4)  # the caller of fit
        return told

    def _hold_out(self, given: Supervision, validation: Bags | None, seed: int) -> tuple[Supervision, ...]:
        """Give what is learned from, what is held out, and what a repetition on everything learns from."""
        if validation is None:
            return *given.split(self.training.validation, seed), given
        bags = given.check_validation(validation)
        held = Supervision(None, bags, how=f"{len(bags)} bags given for it")
        return given, held, given.joined(bags) if self.training.refit else given

    def _identity(self, learned: Supervision, validation: Bags, seed: int) -> str:
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number beside training.checkpoint, got None; only a repeatable run resumes."
            )
        others = {k: describe(v) for k, v in self.params.items() if k != "training"}
        data = [part.fingerprint() for part in (learned.rows, learned.bags, validation) if part is not None]
        return json.dumps([self.name, self.training.identity(), others, data, seed], sort_keys=True)
