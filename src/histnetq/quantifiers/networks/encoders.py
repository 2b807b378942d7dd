"""The parameters `encoder` and `head` of networks: layer sizes, a module, or a factory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import nn

from histnetq.bags.checks import check_integer
from histnetq.bags.limits import brief
from histnetq.nn import CNN, MLP
from histnetq.nn.encoders import n_outputs
from histnetq.training.options import Training

Encoder = None | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]
DEFAULT_ENCODER = (256, 128)
MOST_UNITS = 1_000_000  # units of one layer
_MOST_LAYERS = 100


def make_encoder(encoder: Encoder, shape: tuple[int, ...], training: Training) -> nn.Module:
    """Build the encoder for rows of this shape from the parameter `encoder` of a network."""
    if isinstance(encoder, nn.Module):
        return copy.deepcopy(encoder)
    if callable(encoder):
        made = copy.deepcopy(encoder(shape))
        if not isinstance(made, nn.Module):
            raise TypeError(f"encoder: expected the factory to return an nn.Module, got {type(made).__name__}.")
        return made
    if encoder is None and len(shape) in (2, 3):
        return CNN(shape, dropout=training.dropout)
    sizes = DEFAULT_ENCODER if encoder is None else encoder
    if not sizes:
        raise ValueError(f"encoder: expected None, layer sizes, an nn.Module or a factory, got {encoder!r}.")
    return MLP(int(np.prod(shape)), sizes, training.dropout, training.input_dropout)


def make_scores(encoder: Encoder, shape: tuple[int, ...], n_classes: int, training: Training) -> nn.Module:
    """Build an encoder that ends with a linear layer of class scores, after hidden layers or a module."""
    hidden: Any = () if encoder is None and len(shape) == 1 else encoder
    if are_sizes(hidden):
        return MLP(int(np.prod(shape)), (*hidden, n_classes), training.dropout, training.input_dropout)
    made = make_encoder(encoder, shape, training)
    return nn.Sequential(made, nn.Linear(n_outputs(made, shape), n_classes))


def check_encoder(encoder: Any) -> None:
    """Refuse anything but None, layer sizes, a module and a factory."""
    if encoder is None or callable(encoder):
        return
    if not are_sizes(encoder):
        raise ValueError(f"encoder: expected None, layer sizes, an nn.Module or a factory, got {brief(encoder)}.")
    _refuse_huge("encoder", encoder)


def check_sizes(name: str, sizes: Any) -> None:
    """Refuse anything but sizes of hidden layers."""
    if not are_sizes(sizes):
        raise ValueError(f"{name}: expected the sizes of its hidden layers, such as (512,), got {brief(sizes)}.")
    _refuse_huge(name, sizes)


def _refuse_huge(name: str, sizes: Sequence[int]) -> None:
    if len(sizes) > _MOST_LAYERS:
        raise ValueError(f"{name}: expected at most {_MOST_LAYERS} layers, got {len(sizes):,}; give fewer.")
    for size in sizes:
        check_integer(name, size, 1, MOST_UNITS)


def are_sizes(sizes: Any) -> bool:
    """Return whether these are layer sizes: a tuple or list of whole numbers above 0."""
    return isinstance(sizes, tuple | list) and all(
        isinstance(s, int | np.integer) and not isinstance(s, bool) and s > 0 for s in sizes
    )
