"""The trained network of a quantifier, as attributes and in a model directory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from histnetq.persistence.saving import Arrays, Stored
from histnetq.training.batches import choose_device
from histnetq.training.fitting import TrainedNetwork

_LONGEST_SENTENCE = 10_000  # characters


class StoredNetwork(Stored):
    """The weights and the training history of a network; names of its arrays begin with `prefix`."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def arrays(self, model: Any) -> Arrays:
        return {f"{self.prefix}{name}": tensor.cpu().numpy() for name, tensor in model.network_.state_dict().items()}

    def learned(self, model: Any) -> dict[str, Any]:
        return {
            "history": {name: values.tolist() for name, values in model.history_.items()},
            # A run that was interrupted in its first epoch has no loss: JSON has no infinity.
            "best_epoch": model.best_epoch_, "split": model.split_,
            "validation_loss": model.validation_loss_ if math.isfinite(model.validation_loss_) else None,
            "interrupted": model.interrupted_, "learned_nothing": model.learned_nothing_,
        }  # fmt: skip

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        stored = {k.removeprefix(self.prefix): v for k, v in arrays.items() if k.startswith(self.prefix)}
        with torch.random.fork_rng([]):
            if not callable(getattr(model, "encoder", None)):
                with torch.device("meta"):  # layers of any size take no memory here
                    _require_fitting(model._rebuilt(arrays), stored)
            network = model._rebuilt(arrays)
        _require_fitting(network, stored)
        network.load_state_dict({name: torch.from_numpy(stored[name]) for name in network.state_dict()})
        try:
            device = choose_device(model.training.device)
        except ValueError:  # the device of the training does not exist here
            device = choose_device("auto")
        keep_trained(model, TrainedNetwork(network.eval().to(device), *_checked_course(learned)))


def _checked_course(learned: dict[str, Any]) -> tuple[Any, ...]:
    """Check and return the history, the best epoch, its loss and the sentences about training."""
    history, numbers = learned["history"], (int, float)
    best_epoch, loss = learned["best_epoch"], learned["validation_loss"]
    sentences = [learned.get(name, "") for name in ("split", "interrupted", "learned_nothing")]
    listed = all(isinstance(v, list) and all(type(n) in numbers for n in v) for v in history.values())
    if not listed or len({len(values) for values in history.values()}) > 1:
        raise ValueError("path: the history of training is not one number per epoch; save the model again.")
    if type(best_epoch) is not int or best_epoch < 0 or type(loss) not in (*numbers, type(None)):
        raise ValueError("path: the best epoch or its loss is not a number; save the model again.")
    if not all(isinstance(text, str) and len(text) <= _LONGEST_SENTENCE for text in sentences):
        raise ValueError("path: a sentence about training is not a short text; save the model again.")
    arrays = {name: np.asarray(values) for name, values in history.items()}
    return arrays, best_epoch, math.inf if loss is None else float(loss), *sentences


def _require_fitting(network: nn.Module, arrays: Arrays) -> None:
    """Refuse arrays that are not the weights of a network."""
    for name, tensor in network.state_dict().items():
        array = arrays.get(name)  # a single number may have the shape (1,)
        if array is None or array.shape not in (tuple(tensor.shape), (1,) * (tensor.ndim == 0)):
            raise ValueError(
                f"encoder: the stored weights do not fit this network ({name}); pass the encoder that the model was "
                "made with."
            )


def keep_trained(model: Any, trained: TrainedNetwork) -> None:
    """Set the results of training as attributes of a quantifier."""
    model.network_, model.history_, model.split_ = trained.network, trained.history, trained.split
    model.best_epoch_, model.validation_loss_ = trained.best_epoch, trained.validation_loss
    model.interrupted_, model.learned_nothing_ = trained.interrupted, trained.learned_nothing
