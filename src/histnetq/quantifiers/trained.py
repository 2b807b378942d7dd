"""`TrainedNetwork`: what the quantifiers that are networks share."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from histnetq.data.bags import Bags
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure, as_loss
from histnetq.nn import BagNetwork
from histnetq.training.batches import choose_device
from histnetq.training.fingerprint import describe
from histnetq.training.loop import has_checkpoint, train
from histnetq.training.options import Training, TrainingInterrupted
from histnetq.training.processes import Processes
from histnetq.training.supervision import Supervision

__all__ = ["TrainedNetwork", "are_sizes", "check_sizes"]


class TrainedNetwork(BaseEstimator):
    """Parameters and attributes of a quantifier that trains a `BagNetwork`; see `HistNetQ` for what they mean."""

    loss: str | Measure
    sampler: str | Protocol | None
    label_weight: float = 0.0
    training: Training
    random_state: int | None
    network_: BagNetwork
    history_: dict[str, NDArray]
    best_epoch_: int
    validation_loss_: float

    def _train(
        self,
        given: Supervision,
        make: Callable[[Supervision, Supervision], BagNetwork],
        validation: Bags | None = None,
    ) -> None:
        """Train the network that `make` gives for what is learned from and what is held out."""
        self._check_params()
        seed = int(Processes.started().agree(int(np.random.default_rng(self.random_state).integers(2**31)))[0])
        sampler = given.choose_sampler(self.sampler)
        if validation is None:
            learned, held = given.split(self.training.validation, seed)
            validation, everything = held.validation_bags(sampler, self.training.validation_bags, seed), given
        else:
            validation = given.check_validation(validation)
            learned, held = given, Supervision(None, validation)
            everything = given.joined(validation) if self.training.refit else given

        def work(learned: Supervision, training: Training, **options: Any) -> tuple[BagNetwork, dict[str, Any]]:
            return self._train_once(
                learned, sampler, lambda: make(learned, held), validation, training, seed, **options
            )

        self.network_, result = work(learned, self.training)
        self.history_ = result["history"]
        self.best_epoch_, self.validation_loss_ = result["best_epoch"], result["best_loss"]
        if self.training.refit:
            place = self.training.checkpoint and os.path.join(self.training.checkpoint, f"refit-{self.best_epoch_}")
            training = dataclasses.replace(self.training, checkpoint=place, minutes=None, callbacks=())
            try:
                self.network_, _ = work(everything, training, rates=self.history_["lr"][: self.best_epoch_])
            except KeyboardInterrupt:
                warnings.warn(
                    "training interrupted in its repetition on everything; the first is kept.",
                    TrainingInterrupted,
                    stacklevel=2,
                )

    def _train_once(
        self, learned: Supervision, sampler: Protocol | None, make: Callable[[], BagNetwork], validation: Bags,
        training: Training, seed: int, **options: Any,
    ) -> tuple[BagNetwork, dict[str, Any]]:  # fmt: skip
        loss, device = as_loss(self.loss), choose_device(training.device)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            network = make()
            # A run that goes on has its weights in the checkpoint.
            started = has_checkpoint(training) or self._start(network, learned, sampler, loss, seed)
        network = network.to(device)
        result = train(
            network, learned.drawing(sampler, training.bags_per_epoch), validation, loss, training, seed,
            label_weight=self.label_weight, started=started,
            identity=self._identity(learned, validation, seed) if training.checkpoint else "", **options,
        )  # fmt: skip
        return network, result

    def _start(
        self, network: BagNetwork, learned: Supervision, sampler: Protocol | None, loss: Measure, seed: int
    ) -> bool:
        """Give the network better weights than random ones before training; whether there are any."""
        return False

    def _check_params(self) -> None:
        if not isinstance(self.training, Training):
            raise TypeError(f"training: expected a Training object such as Training(epochs=50), got {self.training!r}.")
        if not isinstance(self.label_weight, Real) or self.label_weight < 0:
            raise ValueError(f"label_weight: expected a number of at least 0, got {self.label_weight!r}.")
        if not (self.random_state is None or (isinstance(self.random_state, Integral) and self.random_state >= 0)):
            raise ValueError(f"random_state: expected None or a whole number of at least 0, got {self.random_state!r}.")

    def _identity(self, learned: Supervision, validation: Bags, seed: int) -> str:
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number beside training.checkpoint, got None; only a repeatable run resumes."
            )
        others = {k: describe(v) for k, v in self.get_params(deep=False).items() if k != "training"}
        data = [part.fingerprint() for part in (learned.rows, learned.bags, validation) if part is not None]
        return json.dumps([type(self).__name__, self.training.identity(), others, data, seed], sort_keys=True)

    def _network_arrays(self) -> dict[str, NDArray]:
        return {name: tensor.cpu().numpy() for name, tensor in self.network_.state_dict().items()}

    def _learned(self) -> dict[str, Any]:
        history = {name: values.tolist() for name, values in self.history_.items()}
        return {"history": history, "best_epoch": self.best_epoch_, "validation_loss": self.validation_loss_}

    def _restore_network(self, network: BagNetwork, arrays: dict[str, NDArray], learned: dict[str, Any]) -> None:
        try:
            network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        except RuntimeError:
            raise ValueError(
                "encoder: the stored weights do not fit this network; pass the encoder that the model was made with."
            ) from None
        try:
            device = choose_device(self.training.device)
        except ValueError:  # trained where there was such a device, loaded where there is none
            device = choose_device("auto")
        self.network_ = network.eval().to(device)
        self.history_ = {name: np.asarray(values) for name, values in learned["history"].items()}
        self.best_epoch_, self.validation_loss_ = learned["best_epoch"], learned["validation_loss"]


def check_sizes(name: str, sizes: Any) -> None:
    if not are_sizes(sizes):
        raise ValueError(f"{name}: expected the sizes of its hidden layers, such as (512,), got {sizes!r}.")


def are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, tuple | list) and all(isinstance(s, int | np.integer) and s > 0 for s in sizes)
