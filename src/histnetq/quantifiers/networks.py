"""Quantifiers that are networks: HistNetQ, DeepSets and SetTransformer.

They differ in their pooling layer alone and learn from bags of which only the proportions are known, from labelled
rows, or from both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import (
    CNN,
    MLP,
    BagNetwork,
    Cumulative,
    HardHistogram,
    Max,
    Mean,
    Median,
    MergeablePooling,
    Pooling,
    RBFHistogram,
    SetAttention,
    SigmoidHistogram,
    SoftHistogram,
    Standardize,
)
from histnetq.nn.encoders import n_outputs
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.trained import TrainedNetwork, are_sizes, check_sizes
from histnetq.training.batches import bag_states, predict_bags, predict_states
from histnetq.training.fingerprint import describe
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

__all__ = ["DeepQuantifier", "DeepSets", "Encoder", "HistNetQ", "SetTransformer", "make_encoder", "make_standardize"]

Encoder = None | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]

_BINS: dict[str, Callable[[int, int], Pooling]] = {
    "hard": HardHistogram,
    "soft": SoftHistogram,
    "rbf": RBFHistogram,
    "sigmoid": SigmoidHistogram,
}
_POOLINGS: dict[str, Callable[[int], Pooling]] = {"mean": Mean, "median": Median, "max": Max}
_DEFAULT_ENCODER = (256, 128)


class DeepQuantifier(TrainedNetwork, Quantifier):
    """Base of the networks; see `HistNetQ` for the common parameters."""

    encoder: Encoder
    head: Sequence[int]

    def fit(self, X: Any, y: Any = None, *, bags: Bags | None = None, validation: Bags | None = None) -> DeepQuantifier:
        """Learn from bags, from labelled rows, or from both.

        Parameters
        ----------
        X : Bags, or rows
            Bags with prevalences; or the labelled rows as an array, data frame or sparse matrix.
        y : optional
            With bags: their prevalences ``(n_bags, n_classes)``, if they do not carry them. With rows: their labels.
        bags : Bags, optional
            Bags with prevalences beside labelled rows.
        validation : Bags, optional
            Bags with prevalences that choose the best epoch. Default: some of the bags or rows are held out.
        """
        given = Supervision.of(X, y, bags)
        if not given.input_shape:
            raise TypeError("rows: networks expect numbers, got texts; embed or vectorise them first.")

        def make(learned: Supervision, held: Supervision) -> BagNetwork:
            statistics = learned.statistics() if self.training.standardize else None
            return self._network(given.input_shape, len(given.classes), statistics)

        self._train(given, make, validation)
        self._forget_calibration()
        self.classes_, self.input_shape_, self.feature_names_ = given.classes, given.input_shape, given.feature_names
        self.train_prevalences_ = given.prevalences()
        return self

    def _pooling(self, n_features: int) -> Pooling:
        """The layer that makes the difference."""
        raise NotImplementedError

    def _head(self, width: int, n_classes: int) -> nn.Module:
        """What maps a pooled bag to scores of the classes."""
        return MLP(width, (*self.head, n_classes), self.training.dropout)

    def _network(
        self, shape: tuple[int, ...], n_classes: int, statistics: tuple[NDArray, NDArray] | None
    ) -> BagNetwork:
        check_sizes("head", self.head)
        encoder = make_encoder(self.encoder, shape, self.training)
        pooling = self._pooling(n_outputs(encoder, shape))
        network = BagNetwork(
            encoder, pooling, self._head(pooling.width, n_classes), n_classes,
            prepare=make_standardize(statistics), classify=self.label_weight > 0 or self.training.warmup > 0,
        )  # fmt: skip
        return network.to(getattr(torch, self.training.dtype))

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return predict_bags(self.network_, bags)

    @property
    def sketch_kind(self) -> str | None:
        return "exact" if isinstance(self.network_.pooling, MergeablePooling) else None

    def _why_no_sketch(self) -> str:
        return (
            f"{type(self.network_.pooling).__name__} pooling needs a whole bag at once, parts of it do not add up; "
            "use HistNetQ, or DeepSets with pooling 'mean' or 'max'."
        )

    def _state(self, bags: Bags) -> NDArray:
        return bag_states(self.network_, bags)

    def _from_state(self, values: NDArray, totals: NDArray) -> NDArray[np.float64]:
        return predict_states(self.network_, values, totals)

    def _state_identity(self) -> str:
        network = self.network_
        return describe([network.prepare, network.encoder, network.pooling])

    def _state_merge(self) -> str:
        return "max" if isinstance(self.network_.pooling, Max) else "sum"

    def _weights(self) -> dict[str, NDArray]:
        return self._network_arrays()

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        statistics = (weights["prepare.mean"], weights["prepare.scale"]) if self.training.standardize else None
        with torch.random.fork_rng([]):
            network = self._network(self.input_shape_, len(self.classes_), statistics)
        self._restore_network(network, weights, learned)


class HistNetQ(DeepQuantifier):
    """Quantification by a network on differentiable histograms.

    Every row is encoded to features; each bag becomes one histogram per feature; a head maps the histograms to
    prevalences. Trained end to end for the chosen error on bags whose proportions are known.

    Parameters
    ----------
    bins : "hard", "soft", "rbf" or "sigmoid"
        Kind of histogram; see `histnetq.nn`.
    n_bins : int
        Bins per feature.
    encoder : None, tuple of int, nn.Module or factory
        On rows: None is a small MLP (a CNN for images), a tuple the layer sizes of an MLP; a module is copied, never
        trained in place; a factory is called with the shape of a row.
    head : tuple of int
        Hidden layers between histograms and prevalences.
    cumulative : bool
        Whether the head reads cumulative histograms: it learns from many weak features (texts of many classes) in a
        fraction of the epochs so, and from a few good ones not as well.
    loss : str or callable
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol
        Where training bags come from. "auto": `Mixer` for bags, `APP` for labelled rows, both for both. None: the
        given bags alone.
    label_weight : float
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training
        Epochs, learning rate, device and so on.
    random_state : int, optional

    Attributes
    ----------
    classes_ : (n_classes,)
    network_ : BagNetwork
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
    validation_loss_ : float
        Of the best epoch, whose weights are kept.

    References
    ----------
    Pérez-Mon, Moreo, del Coz & González, *Quantification using permutation-invariant networks based on histograms*.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(y[:, None], 1.0, size=(400, 3))
    >>> q = HistNetQ(n_bins=8, training=Training(epochs=3), random_state=0).fit(X, y)
    >>> q.predict(X).shape
    (2,)
    """

    def __init__(
        self,
        bins: str = "hard",
        n_bins: int = 32,
        *,
        encoder: Encoder = None,
        head: Sequence[int] = (512,),
        cumulative: bool = False,
        loss: str | Measure = "rae",
        sampler: str | Protocol | None = "auto",
        label_weight: float = 0.0,
        training: Training = Training(),  # noqa: B008 - immutable
        random_state: int | None = None,
    ) -> None:
        self.bins = bins
        self.n_bins = n_bins
        self.encoder = encoder
        self.head = head
        self.cumulative = cumulative
        self.loss = loss
        self.sampler = sampler
        self.label_weight = label_weight
        self.training = training
        self.random_state = random_state

    def _pooling(self, n_features: int) -> Pooling:
        return _BINS[check_choice("bins", self.bins, tuple(_BINS))](n_features, self.n_bins)

    def _head(self, width: int, n_classes: int) -> nn.Module:
        head = super()._head(width, n_classes)
        return nn.Sequential(Cumulative(self.n_bins), head) if self.cumulative else head


class DeepSets(DeepQuantifier):
    """The same network with the mean, median or maximum of each feature instead of its histogram.

    Parameters
    ----------
    pooling : "mean", "median" or "max"
    encoder, head, loss, sampler, label_weight, training, random_state
        As in `HistNetQ`.

    References
    ----------
    Zaheer et al. (2017), *Deep sets*; Qi et al. (2021), *A framework for deep quantification learning*.
    """

    def __init__(
        self,
        pooling: str = "mean",
        *,
        encoder: Encoder = None,
        head: Sequence[int] = (512,),
        loss: str | Measure = "rae",
        sampler: str | Protocol | None = "auto",
        label_weight: float = 0.0,
        training: Training = Training(),  # noqa: B008 - immutable
        random_state: int | None = None,
    ) -> None:
        self.pooling = pooling
        self.encoder = encoder
        self.head = head
        self.loss = loss
        self.sampler = sampler
        self.label_weight = label_weight
        self.training = training
        self.random_state = random_state

    def _pooling(self, n_features: int) -> Pooling:
        return _POOLINGS[check_choice("pooling", self.pooling, tuple(_POOLINGS))](n_features)


class SetTransformer(DeepQuantifier):
    """The same network with attention through inducing points instead of histograms.

    Parameters
    ----------
    width, hidden, n_inducing, n_heads : int
        Of `histnetq.nn.SetAttention`.
    encoder, head, loss, sampler, label_weight, training, random_state
        As in `HistNetQ`.

    References
    ----------
    Lee et al. (2019), *Set Transformer*.
    """

    def __init__(
        self,
        width: int = 256,
        hidden: int = 128,
        n_inducing: int = 32,
        n_heads: int = 4,
        *,
        encoder: Encoder = None,
        head: Sequence[int] = (512,),
        loss: str | Measure = "rae",
        sampler: str | Protocol | None = "auto",
        label_weight: float = 0.0,
        training: Training = Training(),  # noqa: B008 - immutable
        random_state: int | None = None,
    ) -> None:
        self.width = width
        self.hidden = hidden
        self.n_inducing = n_inducing
        self.n_heads = n_heads
        self.encoder = encoder
        self.head = head
        self.loss = loss
        self.sampler = sampler
        self.label_weight = label_weight
        self.training = training
        self.random_state = random_state

    def _pooling(self, n_features: int) -> Pooling:
        return SetAttention(n_features, self.width, self.hidden, self.n_inducing, self.n_heads)


def make_encoder(encoder: Encoder, shape: tuple[int, ...], training: Training) -> nn.Module:
    """What the parameter `encoder` of a network means for rows of this shape."""
    if isinstance(encoder, nn.Module):
        return copy.deepcopy(encoder)
    if callable(encoder):
        made = copy.deepcopy(encoder(shape))
        if not isinstance(made, nn.Module):
            raise TypeError(f"encoder: expected the factory to return an nn.Module, got {type(made).__name__}.")
        return made
    if encoder is None and len(shape) in (2, 3):
        return CNN(shape, dropout=training.dropout)
    sizes = _DEFAULT_ENCODER if encoder is None else encoder
    if not are_sizes(sizes) or not sizes:
        raise ValueError(f"encoder: expected None, layer sizes, an nn.Module or a factory, got {encoder!r}.")
    return MLP(int(np.prod(shape)), sizes, training.dropout, training.input_dropout)


def make_standardize(statistics: tuple[NDArray, NDArray] | None) -> Standardize | None:
    """What brings rows of this mean and scale to 0 and 1; None without them."""
    return None if statistics is None else Standardize(*map(torch.as_tensor, statistics))
