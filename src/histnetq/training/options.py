"""`Training`: the options of the training loop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Number, Real
from typing import Any

__all__ = ["Training", "TrainingInterrupted"]

_WHOLE = (
    "epochs", "bags_per_epoch", "batch_bags", "micro_bags", "average", "patience", "validation_bags",
    "checkpoint_every",
)  # fmt: skip
_NUMBERS = (
    "minutes", "lr", "min_lr", "bin_lr", "weight_decay", "dropout", "input_dropout", "clip", "validation",
)  # fmt: skip
_NOT_PART_OF_THE_RESULT = (
    "epochs", "minutes", "refit", "progress", "checkpoint", "checkpoint_every", "callbacks", "device",
)  # fmt: skip
# Not there in checkpoints that were made before there was such an option.
_ABSENT = (("warmup", 0), ("input_dropout", 0.0), ("average", 1))


class TrainingInterrupted(UserWarning):
    """Training was interrupted from the keyboard and keeps the best weights that it has found so far."""


@dataclass(frozen=True)
class Training:
    """How a network is trained. Immutable: ``dataclasses.replace`` and ``set_params(training__lr=…)`` make a copy.

    Parameters
    ----------
    epochs : int
        At most so many.
    minutes : float, optional
        No epoch begins after so many minutes of training, those before a resumed checkpoint included.
    bags_per_epoch : int, optional
        Bags drawn for each epoch. Default: as many as there are training bags, at least 200; 500 for labelled rows.
    batch_bags : int
        Bags per update of the weights.
    micro_bags : int, optional
        Bags in memory at a time; their gradients are averaged, so that the result is that of the whole batch.
    average : int
        The weights that are validated and kept are a running mean over about so many updates; with 1, the last ones.
    lr, min_lr : float
        Learning rate at the start, and the lowest one.
    bin_lr : float
        Learning rate of histogram bins as a multiple of `lr`; 0 keeps them where they are.
    patience : int
        Epochs without improvement after which the learning rate is halved, or, at the lowest rate, training stops.
    warmup : int
        Epochs at the start that are trained for the Kullback-Leibler divergence instead of the loss: of the estimates,
        and of a linear classifier's mean probabilities of a bag's rows, by which the encoder learns to tell the classes
        apart. RAE alone has a plateau, where all bags get the same estimate, that is left much faster so.
    weight_decay : float
        Of AdamW, on weights only: not on bins, biases and norms.
    dropout : float
        In encoders and heads that are given by sizes.
    input_dropout : float
        Of the rows' features, before an encoder that is given by sizes.
    clip : float, optional
        Largest norm of the gradient.
    validation : float
        Part of the bags, or of the labelled rows, held out to choose the best epoch.
    validation_bags : int
        Bags drawn, once, from held-out labelled rows.
    refit : bool
        After the best epoch is known, train anew up to it with the same learning rates, on what was held out as well
        (and on bags that `fit` got for validation beside others); it takes up to twice as long.
    standardize : bool
        Bring inputs to mean 0 and variance 1 (sparse: variance only; images: per channel).
    dtype, device : str
        Such as "float32" and "auto", "cpu", "cuda".
    progress : bool, optional
        Show a progress bar. Default: on a terminal.
    checkpoint : path, optional
        Directory for checkpoints; a run that finds its own there continues it.
    checkpoint_every : int
        Epochs between checkpoints.
    callbacks : tuple of callables
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
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", os.fspath(self.checkpoint))
        for f in dataclasses.fields(self):  # numpy's numbers become Python's, which can be stored
            value = getattr(self, f.name)
            if isinstance(value, Number) and hasattr(value, "item"):
                object.__setattr__(self, f.name, value.item())
        for name in _NUMBERS:
            value = getattr(self, name)
            if not (isinstance(value, Real) or (name in ("clip", "minutes") and value is None)):
                raise TypeError(f"training: expected {name} to be a number, got {value!r}.")
        for name in _WHOLE:
            value = getattr(self, name)
            optional = name in ("bags_per_epoch", "micro_bags") and value is None
            if not optional and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
                raise ValueError(f"training: expected {name} to be a whole number of at least 1, got {value!r}.")
        if isinstance(self.warmup, bool) or not isinstance(self.warmup, Integral) or self.warmup < 0:
            raise ValueError(f"training: expected warmup to be a whole number of at least 0, got {self.warmup!r}.")
        for name in ("minutes", "min_lr", "bin_lr", "weight_decay", "clip"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"training: expected {name} to be at least 0, got {value!r}.")
        dropouts = (self.dropout, self.input_dropout)
        if not self.lr > 0 or not all(0 <= rate < 1 for rate in dropouts) or not 0 < self.validation < 1:
            raise ValueError(
                "training: expected lr > 0, 0 ≤ dropout and input_dropout < 1 and 0 < validation < 1, "
                f"got lr={self.lr!r}, dropout={self.dropout!r}, input_dropout={self.input_dropout!r}, "
                f"validation={self.validation!r}."
            )
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"training: expected dtype 'float32' or 'float64', got {self.dtype!r}.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def identity(self) -> dict[str, Any]:
        """The options that two runs share iff they do the same work, however long and wherever they run."""
        others = {name: value for name, value in self.get_params().items() if name not in _NOT_PART_OF_THE_RESULT}
        return {name: value for name, value in others.items() if (name, value) not in _ABSENT}

    def __sklearn_clone__(self) -> Training:
        return self

    def __repr__(self) -> str:
        changed = (f for f in dataclasses.fields(self) if getattr(self, f.name) != f.default)
        return f"Training({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"
