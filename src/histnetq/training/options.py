"""`Training`: the options of the training loop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from histnetq.bags.limits import brief

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
# Options at these values are left out of identities, as in checkpoints from before there were such options.
_ABSENT = (("warmup", 0), ("input_dropout", 0.0), ("average", 1))


class TrainingInterrupted(UserWarning):
    """Training, or a search, was interrupted from the keyboard and keeps the best that it has found so far."""


class LearnedNothing(UserWarning):
    """A network estimates the bags that it was validated on no better than one estimate for all of them does."""


@dataclass(frozen=True)
class Training:
    """How a network is trained. Immutable: ``dataclasses.replace`` and ``set_params(training__lr=…)`` make a copy.

    Parameters
    ----------
    epochs : int, default=200
        Largest number of epochs.
    minutes : float, default=None
        Training ends after so many minutes, those before a resumed checkpoint included, and an epoch that is not over
        then is given up. Only a start, or the first epoch of a network without one, may take longer. None: no limit.
    bags_per_epoch : int, default=None
        Bags drawn for each epoch. None takes as many as there are training bags, at least 200, and 500 for labelled
        rows.
    batch_bags : int, default=20
        Bags per update of the weights.
    micro_bags : int, default=None
        Bags in memory at a time; their gradients are averaged, so that the result is that of the whole batch. None
        takes the whole batch at once.
    average : int, default=1
        The weights that are validated and kept are a running mean over about so many updates; with 1, the last ones.
    lr : float, default=0.001
        Learning rate at the start.
    min_lr : float, default=0.0001
        Lowest learning rate.
    bin_lr : float, default=1.0
        Learning rate of histogram bins and of Gaussians as a multiple of `lr`; 0 keeps them where they are.
    patience : int, default=10
        Epochs without improvement after which the learning rate is halved, or, at the lowest rate, training stops.
    warmup : int, default=0
        Epochs at the start that are trained for the Kullback-Leibler divergence instead of the loss: of the estimates,
        and of a linear classifier's mean probabilities of a bag's rows, by which the encoder learns to tell the classes
        apart. RAE alone has a plateau, where all bags get the same estimate, that is left much faster so.
    weight_decay : float, default=1e-05
        Weight decay of AdamW. It acts on weights only: not on bins, Gaussians, biases and
        norms.
    dropout : float, default=0.1
        Dropout in encoders and heads that are given by sizes.
    input_dropout : float, default=0.0
        Dropout of the rows' features, before an encoder that is given by sizes.
    clip : float, default=None
        Largest norm of the gradient; None leaves gradients as they are.
    validation : float, default=0.3
        Part of the bags, or of the labelled rows, that is held out to choose the best epoch.
    validation_bags : int, default=200
        Bags that are drawn, once, from held-out labelled rows.
    refit : bool, default=False
        After the best epoch is known, train anew up to it with the same learning rates, on what was held out as well
        (and on bags that `fit` got for validation beside others); it takes up to twice as long.
    standardize : bool, default=True
        Bring inputs to mean 0 and variance 1 (sparse: variance only; images: per channel).
    dtype : str, default="float32"
        Type of the weights, "float32" or "float64".
    device : str, default="auto"
        Device such as "cpu" or "cuda"; "auto" takes CUDA where there is one.
    progress : bool, default=None
        Show a progress bar; None shows it on a terminal.
    checkpoint : path, default=None
        Directory for checkpoints; a run that finds its own there continues it.
    checkpoint_every : int, default=1
        Epochs between checkpoints.
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
    refit: bool = False
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
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if type(value).__module__ == "numpy" and hasattr(value, "item"):
                object.__setattr__(self, option.name, value.item())  # numpy's numbers become Python's, which are stored
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
        """Give all options by name, as scikit-learn does.

        Parameters
        ----------
        deep : bool, default=True
            This has no effect, as no option has options of its own.

        Returns
        -------
        dict
            The options and their values.
        """
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def identity(self) -> dict[str, Any]:
        """Give the options that two runs share if and only if they do the same work.

        How long a run is, where it runs and how it is watched is no part of this.

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
    """Refuse a value that is not of the option's type, or that is too low or too high."""
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
