"""Quantifiers that are networks: HistNetQ, DeepSets and SetTransformer.

They differ in their pooling layer alone and learn from bags of which only the proportions are known, from labelled
rows, or from both.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from histnetq.bags import Bags
from histnetq.base import Quantifier
from histnetq.checks import check_choice
from histnetq.inference import choose_device, predict_bags
from histnetq.metrics import Measure, as_loss
from histnetq.nn import (
    CNN,
    MLP,
    BagNetwork,
    HardHistogram,
    Max,
    Mean,
    Median,
    Pooling,
    RBFHistogram,
    SetAttention,
    SigmoidHistogram,
    SoftHistogram,
    Standardize,
)
from histnetq.nn.encoders import n_outputs
from histnetq.options import Training
from histnetq.protocols import Protocol
from histnetq.supervision import Supervision
from histnetq.training import train

__all__ = ["DeepQuantifier", "DeepSets", "HistNetQ", "SetTransformer"]

Encoder = None | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]

_BINS: dict[str, Callable[[int, int], Pooling]] = {
    "hard": HardHistogram,
    "soft": SoftHistogram,
    "rbf": RBFHistogram,
    "sigmoid": SigmoidHistogram,
}
_POOLINGS: dict[str, Callable[[int], Pooling]] = {"mean": Mean, "median": Median, "max": Max}
_DEFAULT_ENCODER = (256, 128)


class DeepQuantifier(Quantifier):
    """Base of the networks; see `HistNetQ` for the common parameters."""

    encoder: Encoder
    head: Sequence[int]
    loss: str | Measure
    sampler: str | Protocol | None
    label_weight: float
    training: Training
    random_state: int | None

    def fit(self, X: Any, y: Any = None, *, bags: Bags | None = None) -> DeepQuantifier:
        """Learn from bags, from labelled rows, or from both.

        Parameters
        ----------
        X : Bags, or rows
            Bags with prevalences; or the labelled rows as an array, data frame or sparse matrix.
        y : optional
            With bags: their prevalences ``(n_bags, n_classes)``, if they do not carry them. With rows: their labels.
        bags : Bags, optional
            Bags with prevalences beside labelled rows.
        """
        self._check_params()
        loss = as_loss(self.loss)
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        given = Supervision.of(X, y, bags)
        sampler = given.choose_sampler(self.sampler)
        learned, held = given.split(self.training.validation, seed)
        validation = held.validation_bags(sampler, self.training.validation_bags, seed)
        draw = learned.drawing(sampler, self.training.bags_per_epoch)
        statistics = learned.statistics() if self.training.standardize else None
        device = choose_device(self.training.device)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            network = self._network(given.input_shape, len(given.classes), statistics).to(device)
        identity = self._identity(learned, validation, seed) if self.training.checkpoint else ""
        result = train(
            network, draw, validation, loss, self.training, seed, label_weight=self.label_weight, identity=identity
        )
        self.classes_, self.input_shape_, self.feature_names_ = given.classes, given.input_shape, given.feature_names
        self.network_, self.history_ = network, result["history"]
        self.best_epoch_, self.validation_loss_ = result["best_epoch"], result["best_loss"]
        return self

    def _check_params(self) -> None:
        if not isinstance(self.training, Training):
            raise TypeError(f"training: expected a Training object such as Training(epochs=50), got {self.training!r}.")
        if not isinstance(self.label_weight, Real) or self.label_weight < 0:
            raise ValueError(f"label_weight: expected a number of at least 0, got {self.label_weight!r}.")
        if not (self.random_state is None or (isinstance(self.random_state, Integral) and self.random_state >= 0)):
            raise ValueError(f"random_state: expected None or a whole number of at least 0, got {self.random_state!r}.")

    def _pooling(self, n_features: int) -> Pooling:
        """The layer that makes the difference."""
        raise NotImplementedError

    def _network(
        self, shape: tuple[int, ...], n_classes: int, statistics: tuple[NDArray, NDArray] | None
    ) -> BagNetwork:
        if not _are_sizes(self.head):
            raise ValueError(f"head: expected the sizes of its hidden layers, such as (512,), got {self.head!r}.")
        encoder = _make_encoder(self.encoder, shape, self.training.dropout)
        prepare = None if statistics is None else Standardize(*map(torch.as_tensor, statistics))
        network = BagNetwork(
            encoder, self._pooling(n_outputs(encoder, shape)), tuple(self.head), n_classes,
            prepare=prepare, dropout=self.training.dropout, classify=self.label_weight > 0,
        )  # fmt: skip
        return network.to(getattr(torch, self.training.dtype))

    def _identity(self, learned: Supervision, validation: Bags, seed: int) -> str:
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number beside training.checkpoint, got None; only a repeatable run resumes."
            )
        others = {k: _described(v) for k, v in self.get_params(deep=False).items() if k != "training"}
        data = [part.fingerprint() for part in (learned.rows, learned.bags, validation) if part is not None]
        return json.dumps([type(self).__name__, self.training.identity(), others, data, seed], sort_keys=True)

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return predict_bags(self.network_, bags)

    def _weights(self) -> dict[str, NDArray]:
        return {name: tensor.cpu().numpy() for name, tensor in self.network_.state_dict().items()}

    def _learned(self) -> dict[str, Any]:
        history = {name: values.tolist() for name, values in self.history_.items()}
        return {"history": history, "best_epoch": self.best_epoch_, "validation_loss": self.validation_loss_}

    def _restore(self, weights: dict[str, NDArray], learned: dict[str, Any]) -> None:
        statistics = (weights["prepare.mean"], weights["prepare.scale"]) if self.training.standardize else None
        with torch.random.fork_rng([]):
            network = self._network(self.input_shape_, len(self.classes_), statistics)
        try:
            network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
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
        self.loss = loss
        self.sampler = sampler
        self.label_weight = label_weight
        self.training = training
        self.random_state = random_state

    def _pooling(self, n_features: int) -> Pooling:
        return _BINS[check_choice("bins", self.bins, tuple(_BINS))](n_features, self.n_bins)


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


def _make_encoder(encoder: Encoder, shape: tuple[int, ...], dropout: float) -> nn.Module:
    if isinstance(encoder, nn.Module):
        return copy.deepcopy(encoder)
    if callable(encoder):
        made = copy.deepcopy(encoder(shape))
        if not isinstance(made, nn.Module):
            raise TypeError(f"encoder: expected the factory to return an nn.Module, got {type(made).__name__}.")
        return made
    if encoder is None and len(shape) in (2, 3):
        return CNN(shape, dropout=dropout)
    sizes = _DEFAULT_ENCODER if encoder is None else encoder
    if not _are_sizes(sizes) or not sizes:
        raise ValueError(f"encoder: expected None, layer sizes, an nn.Module or a factory, got {encoder!r}.")
    return MLP(int(np.prod(shape)), sizes, dropout)


def _are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, tuple | list) and all(isinstance(s, int | np.integer) and s > 0 for s in sizes)


def _described(value: Any) -> str:
    """Text of a parameter that is the same in another process: no addresses, and a checksum of a module's weights."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))
    if hasattr(value, "__code__"):
        inside = [cell.cell_contents for cell in value.__closure__ or ()]
        text += repr((value.__code__.co_code, value.__code__.co_names, value.__code__.co_consts, inside))
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", text)
    elif hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
        text += re.sub(r" at 0x[0-9a-fA-F]+", "", repr(sorted(vars(value).items(), key=str)))
    if isinstance(value, nn.Module):
        weights = b"".join(t.detach().cpu().numpy().tobytes() for t in value.state_dict().values())
        text += hashlib.sha256(weights).hexdigest()
    return text
