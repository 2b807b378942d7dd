"""Training a network on the data passed to `fit`.

The steps are: split off validation data, pretrain, run the training loop, and refit on all data if asked to.
"""

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
from histnetq.bags.protocols import SamplingProtocol
from histnetq.metrics import Measure, as_loss
from histnetq.nn import BagNetwork
from histnetq.training.batches import choose_device
from histnetq.training.checkpoint import has_checkpoint
from histnetq.training.fingerprint import describe
from histnetq.training.loop import Run
from histnetq.training.options import LearnedNothing, Training, TrainingInterrupted
from histnetq.training.processes import Processes
from histnetq.training.supervision import Supervision, check_sampler

_CHEAP = 20_000_000  # largest number of values in all rows for a refit that nobody asked for

Make = Callable[[Supervision, Supervision], BagNetwork]


@dataclass(frozen=True)
class Pretraining:
    """An untrained network, and the data and options of its pretraining.

    Attributes
    ----------
    network : BagNetwork
        The network, which is pretrained in place.
    given : Supervision
        Training data.
    sampler : protocol or None
        Protocol that draws bags from labelled rows if there are no bags.
    loss : callable
        Loss to minimise.
    training : Training
        Options of the training that follows.
    seed : int
        Seed of folds and draws.
    """

    network: BagNetwork
    given: Supervision
    sampler: SamplingProtocol | None
    loss: Measure
    training: Training
    seed: int


Start = Callable[[Pretraining], bool]


@dataclass(frozen=True)
class TrainedNetwork:
    """The result of training.

    Attributes
    ----------
    network : BagNetwork
        The network with the weights of its best epoch.
    history : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch : int
        The epoch with the lowest validation loss. Epoch 0 is the network before the training loop.
    validation_loss : float
        The validation loss of the best epoch.
    split : str
        A sentence that describes the validation data.
    interrupted : str
        The moment of an interruption, such as "after epoch 2 of 200"; empty without one.
    learned_nothing : str
        A sentence that warns that the network is no better than one constant estimate, or an empty string.
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


@dataclass(frozen=True)
class _Plan:
    """The data and functions that the first run and the refit share."""

    learned: Supervision
    held: Supervision
    everything: Supervision  # the training data of a refit
    validation: Bags
    sampler: SamplingProtocol | None
    make: Make
    start: Start | None
    seed: int


class Task:
    """Training the network of a quantifier.

    Parameters
    ----------
    quantifier : Quantifier
        The quantifier that trains a network; its parameters have been checked.
    refits : bool
        Whether the network learns from all data in the end, if `Training.refit` is None and this is cheap.
    """

    def __init__(self, quantifier: Any, refits: bool = False) -> None:
        self.refits = refits
        self.name, self.params = type(quantifier).__name__, quantifier.get_params(deep=False)
        self.training: Training = self.params["training"]
        self.label_weight, self.random_state = self.params.get("label_weight", 0.0), self.params["random_state"]

    def train(
        self,
        given: Supervision,
        make: Make,
        validation: Bags | None = None,
        start: Start | None = None,
        alternative: Make | None = None,
    ) -> TrainedNetwork:
        """Train a network: split the data, pretrain, run the training loop, and refit on all data if asked to.

        Parameters
        ----------
        given : Supervision
            All data passed to `fit`.
        make : callable
            Builds a network with random weights from the training data and the held-out data.
        validation : Bags, optional
            Bags that choose the best epoch. By default, a part of the data is held out.
        start : callable, optional
            Pretrains the network in place and returns whether that succeeded.
        alternative : callable, optional
            Builds another network. The one with the lower validation loss after pretraining is trained.

        Returns
        -------
        TrainedNetwork
            The network, its history and a description of the validation data.
        """
        plan = self._plan(given, make, validation, start)
        first, plan = self._better_start(plan, alternative)
        result = first.train()
        network, interrupted = first.network, result["interrupted"]
        learned_nothing = self._judge(result["best_loss"], first.unbeaten(plan.learned.prevalences()))
        if self._should_refit(first, given) and not interrupted:
            try:
                network = self._refitted(plan, result["best_epoch"], result["rates"])
            except KeyboardInterrupt:
                interrupted = "during the refit on all data"
                message = f"training interrupted {interrupted}; the network from before the refit is kept."
                warnings.warn(message, TrainingInterrupted, stacklevel=2)
        return TrainedNetwork(
            network,
            result["history"],
            result["best_epoch"],
            result["best_loss"],
            f"Validated on {plan.held.how}.",
            interrupted,
            learned_nothing,
        )

    def _better_start(self, plan: _Plan, alternative: Make | None) -> tuple[Run, _Plan]:
        """Pretrain a network, and an alternative if there is one; return the better one, and the plan that makes it."""
        first = self._pretrained(plan, plan.learned, self.training)
        # The weights in a checkpoint are of one network, and a run without pretraining cannot be judged in advance.
        if alternative is None or not first.started or self.training.checkpoint is not None:
            return first, plan
        other_plan = dataclasses.replace(plan, make=alternative)
        other = self._pretrained(other_plan, plan.learned, self.training)
        spent = first.spent + other.spent
        if other.started and other.starting_loss() < first.starting_loss():
            first, plan = other, other_plan
        first.spent = spent
        return first, plan

    def _should_refit(self, run: Run, given: Supervision) -> bool:
        """Return whether to train again on all data; by default, if this is cheap for a pretrained network."""
        if self.training.refit is not None:
            return self.training.refit
        limited = self.training.minutes is not None or self.training.checkpoint is not None
        return self.refits and run.started and not limited and given.n_values <= _CHEAP

    def _plan(self, given: Supervision, make: Make, validation: Bags | None, start: Start | None) -> _Plan:
        """Split the data, draw the validation bags, and choose how training bags are drawn."""
        seed = int(Processes.started().agree(int(np.random.default_rng(self.random_state).integers(2**31)))[0])
        sampler = given.choose_sampler(self.params["sampler"])
        learned, held, everything = self._hold_out(given, validation, seed)
        bags = held.validation_bags(sampler, self.training.validation_bags, seed)
        return _Plan(learned, held, everything, bags, learned.choose_sampler(self.params["sampler"]), make, start, seed)

    @property
    def _may_refit(self) -> bool:
        return self.refits if self.training.refit is None else self.training.refit

    def _hold_out(self, given: Supervision, validation: Bags | None, seed: int) -> tuple[Supervision, ...]:
        """Return the training data, the held-out data, and the training data of a refit."""
        if validation is None:
            return *given.split(self.training.validation, seed), given
        bags = given.check_validation(validation)
        held = Supervision(None, bags, how=f"{len(bags)} bags given for it")
        return given, held, given.joined(bags) if self._may_refit else given

    def _pretrained(self, plan: _Plan, part: Supervision, training: Training, rates: NDArray | None = None) -> Run:
        """Build a network, pretrain it on a part of the data, and return the training run that continues from it."""
        loss, device = as_loss(self.params["loss"]), choose_device(training.device)
        began = time.perf_counter()
        with torch.random.fork_rng([]):
            torch.manual_seed(plan.seed)
            network = plan.make(part, plan.held)
            # A resumed run reads its weights from the checkpoint.
            started = has_checkpoint(training.checkpoint) or (
                plan.start is not None
                and plan.start(Pretraining(network, part, plan.sampler, loss, training, plan.seed))
            )
        return Run(
            network=network.to(device),
            draw=part.drawing(plan.sampler, training.bags_per_epoch),
            validation=plan.validation,
            loss=loss,
            options=training,
            seed=plan.seed,
            label_weight=self.label_weight,
            identity=self._identity(part, plan.validation, plan.seed) if training.checkpoint else "",
            started=started,
            rates=rates,
            name=self.name,
            spent=time.perf_counter() - began if started else 0.0,
        )

    def _refitted(self, plan: _Plan, best_epoch: int, rates: NDArray) -> BagNetwork:
        """Train another network on all data, up to the best epoch and with the same learning rates."""
        place = self.training.checkpoint and os.path.join(self.training.checkpoint, f"refit-{best_epoch}")
        training = dataclasses.replace(self.training, checkpoint=place, minutes=None, callbacks=())
        run = self._pretrained(plan, plan.everything, training, rates)
        run.train()
        return run.network

    def _judge(self, loss: float, unbeaten: float | None) -> str:
        """Warn if the network is no better than one estimate for all bags, and return the warning."""
        if unbeaten is None:
            return ""
        message = (
            f"{self.name} learned nothing: its loss on the validation bags is {loss:.4g}, and one estimate for all of "
            f"them has {unbeaten:.4g}; check whether the features separate the classes, or train longer."
        )
        if Processes.started().rank == 0:
            warnings.warn(message, LearnedNothing, stacklevel=4)  # the caller of fit
        return message

    def _identity(self, learned: Supervision, validation: Bags, seed: int) -> str:
        """Return text that is equal for two runs if they can share a checkpoint."""
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number together with training.checkpoint, got None; only a repeatable run "
                "can be resumed."
            )
        others = {k: describe(v) for k, v in self.params.items() if k != "training"}
        data = [part.fingerprint() for part in (learned.rows, learned.bags, validation) if part is not None]
        return json.dumps([self.name, self.training.identity(), others, data, seed], sort_keys=True)
