"""`Training`: the options of the training loop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from histnetq.bags.limits import brief
from histnetq.tables.places import is_address, local_path

_IN_A_RANGE = ("lr", "dropout", "input_dropout", "validation")
_MOST: dict[str, float] = {
    "epochs": 1_000_000, "minutes": 1e7, "bags_per_epoch": 10_000_000, "batch_bags": 1_000_000, "micro_bags": 1_000_000,
    "average": 1_000_000, "lr": 1e3, "min_lr": 1e3, "bin_lr": 1e6, "patience": 1_000_000, "warmup": 1_000_000,
    "weight_decay": 1e3, "clip": 1e12, "validation_bags": 10_000_000, "checkpoint_every": 1_000_000,
}  # fmt: skip
_LONGEST = {"device": 100, "checkpoint": 4096}  # characters
_NOT_PART_OF_THE_RESULT = (
    "epochs", "minutes", "refit", "progress", "checkpoint", "checkpoint_every", "callbacks", "device",
)  # fmt: skip
# Options with these values are not in identities, so that they equal the identities in checkpoints of earlier versions.
_ABSENT = (("warmup", 0), ("input_dropout", 0.0), ("average", 1))


class TrainingInterrupted(UserWarning):
    """Warning that training, or a search, was interrupted from the keyboard and keeps its best result so far."""


class LearnedNothing(UserWarning):
    """Warning that a network is no better on the validation bags than one constant estimate."""


@dataclass(frozen=True)
class Training:
    """Options of the training of a network.

    Objects are immutable: ``dataclasses.replace`` and ``set_params(training__lr=…)`` make a copy.

    Parameters
    ----------
    epochs : int, default=200
        Largest number of epochs.
    minutes : float, default=None
        Time limit, including the time before a resumed checkpoint. An unfinished epoch is discarded. Only pretraining,
        or the first epoch without pretraining, may take longer. None means no limit.
    bags_per_epoch : int, default=None
        Number of bags drawn for each epoch. None draws as many as there are training bags, at least 200, and 500 from
        labelled rows.
    batch_bags : int, default=20
        Number of bags per update of the weights.
    micro_bags : int, default=None
        Number of bags in memory at a time. Gradients are averaged, so that the result does not depend on it. None uses
        the whole batch at once.
    average : int, default=1
        The validated weights are a running mean over about this number of updates; 1 uses the last weights.
    lr : float, default=0.001
        Initial learning rate.
    min_lr : float, default=0.0001
        Lowest learning rate.
    bin_lr : float, default=1.0
        Learning rate of histogram bins and Gaussians, as a multiple of `lr`; 0 does not train them.
    patience : int, default=10
        Number of epochs without improvement after which the learning rate is halved, or training stops if the rate is
        the lowest.
    warmup : int, default=0
        Number of first epochs that minimise the Kullback-Leibler divergence instead of the loss, of the estimates and
        of the mean probabilities of a linear classifier of rows, so that the encoder learns to separate the classes.
        RAE has a plateau where all bags get the same estimate, and a warm-up leaves it much faster.
    weight_decay : float, default=1e-05
        Weight decay of AdamW. It acts on weight matrices only, not on bins, Gaussians, biases and norms.
    dropout : float, default=0.1
        Dropout in encoders and heads that are given by layer sizes.
    input_dropout : float, default=0.0
        Dropout of the features of rows, before an encoder that is given by layer sizes.
    clip : float, default=None
        Largest norm of the gradient; None does not clip gradients.
    validation : float, default=0.3
        Fraction of the bags, or of the labelled rows, that is held out to choose the best epoch.
    validation_bags : int, default=200
        Number of validation bags drawn, once, from held-out labelled rows.
    refit : bool, default=None
        After the best epoch is known, train again up to this epoch with the same learning rates on all data, including
        the held-out data and bags given for validation. This takes up to twice as long. None does so for a pretrained
        `HistNetQ` on at most 20 million values, without `minutes` and `checkpoint`.
    standardize : bool, default=True
        Standardise inputs to mean 0 and variance 1 (sparse rows: variance only; images: per channel).
    dtype : str, default="float32"
        Type of the weights, "float32" or "float64".
    device : str, default="auto"
        Device such as "cpu" or "cuda"; "auto" is CUDA if it is available.
    progress : bool, default=None
        Show a progress bar; None shows it on a terminal.
    checkpoint : path, default=None
        Directory for checkpoints; a run resumes its own checkpoint from there.
    checkpoint_every : int, default=1
        Number of epochs between checkpoints.
    callbacks : tuple of callables, default=()
        Each is called with the epoch's record, a dict; training stops if one returns True.

    Examples
    --------
    >>> dataclasses.replace(Training(), lr=0.01).lr
    0.01
    """

    epochs: int = 200
    minutes: float | None = None
    bags_per_epoch: int | None = None
    batch_bags: int = 20
    micro_bags: int | None = None
    average: int = 1
    lr: float = 1e-3
    min_lr: float = 1e-4
    bin_lr: float = 1.0
    patience: int = 10
    warmup: int = 0
    weight_decay: float = 1e-5
    dropout: float = 0.1
    input_dropout: float = 0.0
    clip: float | None = None
    validation: float = 0.3
    validation_bags: int = 200
    refit: bool | None = None
    standardize: bool = True
    dtype: str = "float32"
    device: str = "auto"
    progress: bool | None = None
    checkpoint: str | None = None
    checkpoint_every: int = 1
    callbacks: tuple[Callable[[dict[str, float]], Any], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.checkpoint, os.PathLike):
            object.__setattr__(self, "checkpoint", os.fspath(self.checkpoint))
        if is_address(self.checkpoint):
            local_path(str(self.checkpoint), "checkpoint")
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if type(value).__module__ == "numpy" and hasattr(value, "item"):
                object.__setattr__(self, option.name, value.item())  # numbers of numpy cannot be stored as JSON
            _check_option(option, getattr(self, option.name))
        if not (self.lr > 0 and 0 <= self.dropout < 1 and 0 <= self.input_dropout < 1 and 0 < self.validation < 1):
            got = ", ".join(f"{name}={getattr(self, name)!r}" for name in _IN_A_RANGE)
            raise ValueError(
                f"training: expected lr > 0, 0 ≤ dropout and input_dropout < 1 and 0 < validation < 1, got {got}."
            )
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"training: expected dtype 'float32' or 'float64', got {brief(self.dtype)}.")
        if not isinstance(self.callbacks, tuple | list) or not all(map(callable, self.callbacks)):
            raise TypeError(f"training: expected callbacks to be a tuple of functions, got {brief(self.callbacks)}.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all options by name, as in scikit-learn.

        Parameters
        ----------
        deep : bool, default=True
            Has no effect, because no option has parameters.

        Returns
        -------
        dict
            The options and their values.
        """
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def identity(self) -> dict[str, Any]:
        """Return the options that must be equal for two runs to have equal results.

        The length of a run, its device and its progress bar are not among them.

        Returns
        -------
        dict
            The options and their values.

        Examples
        --------
        >>> Training(epochs=5).identity() == Training(epochs=50, device="cpu").identity()
        True
        >>> Training(lr=0.1).identity() == Training(lr=0.2).identity()
        False
        """
        others = {name: value for name, value in self.get_params().items() if name not in _NOT_PART_OF_THE_RESULT}
        return {name: value for name, value in others.items() if (name, value) not in _ABSENT}

    def __sklearn_clone__(self) -> Training:
        return self

    def __repr__(self) -> str:
        changed = (f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default)
        return f"Training({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"


def _check_option(option: dataclasses.Field[Any], value: Any) -> None:
    """Refuse a value with a wrong type, or that is too low or too high."""
    name, kind, lowest = option.name, str(option.type).partition(" ")[0], int(option.name != "warmup")
    if value is None and option.default is None:
        return
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < lowest):
        raise ValueError(f"training: expected {name} to be a whole number of at least {lowest}, got {brief(value)}.")
    if kind == "float" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"training: expected {name} to be a number, got {brief(value)}.")
    if kind == "float" and name not in _IN_A_RANGE and not value >= 0:
        raise ValueError(f"training: expected {name} to be at least 0, got {value!r}.")
    if kind == "bool" and not isinstance(value, bool):
        raise TypeError(f"training: expected {name} to be True or False, got {brief(value)}.")
    if kind == "str" and not (isinstance(value, str) and len(value) <= _LONGEST.get(name, len(value))):
        raise TypeError(f"training: expected {name} to be a short text, got {brief(value)}.")
    if name in _MOST and value > _MOST[name]:
        raise ValueError(f"training: expected {name} to be at most {_MOST[name]:,.0f}, got {brief(value)}; lower it.")
