"""Quantifiers that are networks: HistNetQ, DeepSets and SetTransformer.

They differ in their pooling layer alone and learn from bags of which only the proportions are known, from labelled
rows, or from both.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from histnetq.data.bags import Bags
from histnetq.data.checks import check_choice, needs_double, require_range
from histnetq.data.protocols import Protocol
from histnetq.metrics import Measure
from histnetq.nn import (
    BINS,
    CNN,
    MLP,
    POOLINGS,
    BagNetwork,
    Cumulative,
    LogOdds,
    MergeablePooling,
    Pooling,
    SetAttention,
    Standardize,
    Unmixing,
)  # fmt: skip
from histnetq.nn.encoders import n_outputs
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.saving import Arrays, Stored
from histnetq.sketches.networks import PooledStates
from histnetq.sketches.sketcher import NoSketcher, Sketcher
from histnetq.training.batches import choose_device, predict_bags
from histnetq.training.fitting import Start, Task, TrainedNetwork
from histnetq.training.options import Training
from histnetq.training.supervision import Supervision

Encoder = None | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]
_DEFAULT_ENCODER = (256, 128)
_FARTHEST = 1e12  # standard deviations from the mean; products of numbers beyond overflow in attention


class StoredNetwork(Stored):
    """The weights of a network, and how it was trained.

    Parameters
    ----------
    prefix : str
        What the names of the arrays begin with, where the model has others.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def arrays(self, model: Any) -> Arrays:
        return {f"{self.prefix}{name}": tensor.cpu().numpy() for name, tensor in model.network_.state_dict().items()}

    def learned(self, model: Any) -> dict[str, Any]:
        return {
            "history": {name: values.tolist() for name, values in model.history_.items()},
            "best_epoch": model.best_epoch_, "validation_loss": model.validation_loss_, "split": model.split_,
            "interrupted": model.interrupted_, "learned_nothing": model.learned_nothing_,
        }  # fmt: skip

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        stored = {k.removeprefix(self.prefix): v for k, v in arrays.items() if k.startswith(self.prefix)}
        with torch.random.fork_rng([]):
            if not callable(getattr(model, "encoder", None)):
                with torch.device("meta"):  # where layers of any size take no memory
                    _require_fitting(model._rebuilt(arrays), stored)
            network = model._rebuilt(arrays)
        _require_fitting(network, stored)
        network.load_state_dict({name: torch.from_numpy(stored[name]) for name in network.state_dict()})
        try:
            device = choose_device(model.training.device)
        except ValueError:  # trained where there was such a device, loaded where there is none
            device = choose_device("auto")
        history = {name: np.asarray(values) for name, values in learned["history"].items()}
        best_epoch, loss = learned["best_epoch"], learned["validation_loss"]
        told = (learned.get(name, "") for name in ("split", "interrupted", "learned_nothing"))
        keep_trained(model, TrainedNetwork(network.eval().to(device), history, best_epoch, loss, *told))


def _require_fitting(network: nn.Module, arrays: Arrays) -> None:
    """Refuse arrays that are not the weights of a network."""
    for name, tensor in network.state_dict().items():
        array = arrays.get(name)  # one number may be stored with a shape
        if array is None or array.shape not in (tuple(tensor.shape), (1,) * (tensor.ndim == 0)):
            raise ValueError(
                f"encoder: the stored weights do not fit this network ({name}); pass the encoder that the model was "
                "made with."
            )


def keep_trained(model: Any, trained: TrainedNetwork) -> None:
    """Keep what training gave as the attributes of a quantifier."""
    model.network_, model.history_, model.split_ = trained.network, trained.history, trained.split
    model.best_epoch_, model.validation_loss_ = trained.best_epoch, trained.validation_loss
    model.interrupted_, model.learned_nothing_ = trained.interrupted, trained.learned_nothing


@dataclass(eq=False, repr=False, kw_only=True)
class DeepQuantifier(Quantifier):
    """Base of the networks; see `HistNetQ` for the parameters."""

    encoder: Encoder = None
    loss: str | Measure = "ae"
    sampler: str | Protocol | None = "auto"
    label_weight: float = 0.0
    training: Training = Training()  # noqa: RUF009 - immutable
    random_state: int | None = None

    stored: ClassVar[tuple[Stored, ...]] = (StoredNetwork(),)

    def fit(self, X: Any, y: Any = None, *, bags: Bags | None = None, validation: Bags | None = None) -> DeepQuantifier:
        """Learn from bags, from labelled rows, or from both.

        Parameters
        ----------
        X : Bags, or array of rows
            Bags with prevalences, whose rows may be labelled; or the labelled rows as an array, data frame or sparse
            matrix.
        y : array, default=None
            With bags: their prevalences ``(n_bags, n_classes)``, if they do not carry them. With rows: their labels.
        bags : Bags, default=None
            Bags with prevalences beside labelled rows.
        validation : Bags, default=None
            Bags with prevalences that choose the best epoch; None holds out some of the bags or rows.

        Returns
        -------
        DeepQuantifier
            The fitted quantifier itself.
        """
        given = Supervision.of(X, y, bags)
        if not given.input_shape:
            raise TypeError("rows: networks expect numbers, got texts; embed or vectorise them first.")

        def make(learned: Supervision, held: Supervision) -> BagNetwork:
            statistics = learned.statistics() if self.training.standardize else None
            for part in (given.rows, given.bags):
                if part is not None:
                    require_range(part, *_reach(statistics, given.input_shape))
            return self._network(given.input_shape, len(given.classes), statistics)

        self._check_params()
        keep_trained(self, Task(self).train(given, make, validation, self._start()))
        known = given.classes, given.input_shape, given.feature_names, given.prevalences()
        self._learned_from(*known, needs_double(given.pool))
        return self

    def _check_params(self) -> None:
        """Refuse wrong parameters before any work is done."""

    def _start(self) -> Start | None:
        """Give what finds better weights than random ones before training, if there is any."""
        return None

    def _network(
        self, shape: tuple[int, ...], n_classes: int, statistics: tuple[NDArray, NDArray] | None
    ) -> BagNetwork:
        """Make the network for rows of this shape, with random weights."""
        raise NotImplementedError

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        """Make the network that these arrays are the weights of."""
        statistics = (arrays["prepare.mean"], arrays["prepare.scale"]) if self.training.standardize else None
        return self._network(self.input_shape_, len(self.classes_), statistics)

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return predict_bags(self.network_, bags)

    def _range(self) -> tuple[NDArray, NDArray]:
        prepare, statistics = self.network_.prepare, None
        if isinstance(prepare, Standardize):
            statistics = tuple(prepare.get_buffer(name).cpu().double().numpy() for name in ("mean", "scale"))
        return _reach(statistics, self.input_shape_)

    def _sketcher(self) -> Sketcher:
        if isinstance(self.network_.pooling, MergeablePooling):
            return PooledStates(self.network_)
        pooling = f" with pooling {self.pooling!r}" if hasattr(self, "pooling") else ""
        return NoSketcher(
            f"{type(self).__name__}{pooling} needs a whole bag at once, parts of it do not add up; "
            "use HistNetQ, or DeepSets with pooling 'mean' or 'max'."
        )


@dataclass(eq=False, repr=False, kw_only=True)
class _PooledQuantifier(DeepQuantifier):
    """Base of the networks that are an encoder, a pooling and a head."""

    head: Any = (512,)
    ridge: Any = None

    def _check_params(self) -> None:
        check_ridge(self.ridge)

    def _start(self) -> Start | None:
        if self.ridge is None:
            return None
        from histnetq.quantifiers.features_start import start_features

        return partial(start_features, self.ridge, self.training)

    def _pooling(self, n_features: int) -> Pooling:
        """Make the layer that makes the difference."""
        raise NotImplementedError

    def _head(self, width: int, n_classes: int) -> nn.Module:
        """Make what maps a pooled bag to scores of the classes."""
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


@dataclass(eq=False, repr=False, kw_only=True)
class HistNetQ(_PooledQuantifier):
    """Quantification by a network on differentiable histograms.

    Every row is encoded to features; each bag becomes one histogram per feature; a head maps the histograms to
    prevalences. By default the features are the log-odds of the classes, which the encoder learns from the rows'
    labels, known or implied by proportions; the head finds the mixture of the classes' own histograms that a bag's
    are, and rehearses on bags drawn for it; then all is trained end to end for the chosen error. With the sizes of a
    head, the network is the paper's: any features, a softmax, and training end to end from random weights.

    Parameters
    ----------
    bins : {"hard", "soft", "rbf", "sigmoid"}, default="hard"
        Kind of histogram; see `histnetq.nn`.
    n_bins : int, default=16
        Bins per feature.
    encoder : None, tuple of int, nn.Module or factory, default=None
        What turns rows into features. None is a small MLP (a CNN for images), a tuple the layer sizes of an MLP (before
        a head that unmixes, hidden layers before that of the classes); a module is copied, never trained in place; a
        factory is called with the shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Where training bags come from. "auto" is `Mixer` for bags, `APP` for labelled rows, both for both. None trains
        on the given bags alone.
    label_weight : float, default=0.0
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training, default=Training()
        Epochs, learning rate, device and so on.
    random_state : int, default=None
        Seed of weights, splits and draws; None takes another one each time.
    head : "unmix" or tuple of int, default="unmix"
        What maps histograms to prevalences: the mixture that they are, or the paper's hidden layers of these sizes.
    cumulative : bool, default=False
        Whether a head of hidden layers reads cumulative histograms: it learns from many weak features (texts of many
        classes) in a fraction of the epochs so, and from a few good ones not as well.
    ridge : "auto", float or None, default="auto"
        Penalty of the logistic regressions by which labels are found that proportions imply, and which scores without
        hidden layers come from. None starts from random weights, as do fewer than 100 different rows. "auto" is 0.01
        before a head that unmixes, and None before the paper's hidden layers.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    network_ : BagNetwork
        The trained network, with the weights of the best epoch.
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
        The epoch of the lowest validation loss.
    validation_loss_ : float
        The loss of that epoch.
    split_ : str
        What the network was validated on, in words.
    interrupted_ : str
        Where training was interrupted from the keyboard, such as "after epoch 2 of 200"; empty if it was not.
    learned_nothing_ : str
        A sentence that tells so if the network is no better than one estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

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

    bins: str = field(default="hard", kw_only=False)
    n_bins: int = field(default=16, kw_only=False)
    head: Sequence[int] | str = "unmix"
    cumulative: bool = False
    ridge: float | str | None = "auto"

    def _check_params(self) -> None:
        if self.ridge != "auto":
            check_ridge(self.ridge)
        if isinstance(self.head, str):
            check_choice("head", self.head, ("unmix",))

    def _start(self) -> Start | None:
        if self.head != "unmix":
            return None if self.ridge == "auto" else super()._start()
        if self.ridge is None:
            return None
        from histnetq.quantifiers.histnetq_start import start_histograms

        return partial(start_histograms, 0.01 if self.ridge == "auto" else self.ridge, self.training)

    def _network(
        self, shape: tuple[int, ...], n_classes: int, statistics: tuple[NDArray, NDArray] | None
    ) -> BagNetwork:
        if self.head != "unmix":
            return super()._network(shape, n_classes, statistics)
        log_odds = LogOdds(n_classes)
        hidden = _DEFAULT_ENCODER if self.encoder is None and len(shape) == 1 else self.encoder
        network = BagNetwork(
            nn.Sequential(make_scores(hidden, shape, n_classes, self.training), log_odds),
            self._pooling(log_odds.n_features), Unmixing(log_odds.n_features, self.n_bins, n_classes), n_classes,
            prepare=make_standardize(statistics), classify=self.label_weight > 0 or self.training.warmup > 0,
        )  # fmt: skip
        return network.to(getattr(torch, self.training.dtype))

    def _pooling(self, n_features: int) -> Pooling:
        return BINS[check_choice("bins", self.bins, tuple(BINS))](n_features, self.n_bins)

    def _head(self, width: int, n_classes: int) -> nn.Module:
        head = super()._head(width, n_classes)
        return nn.Sequential(Cumulative(self.n_bins), head) if self.cumulative else head


@dataclass(eq=False, repr=False, kw_only=True)
class DeepSets(_PooledQuantifier):
    """Quantification by a network on the mean, median or maximum of each feature instead of its histogram.

    Parameters
    ----------
    pooling : {"mean", "median", "max"}, default="mean"
        What a bag keeps of each feature.
    encoder : None, tuple of int, nn.Module or factory, default=None
        What turns rows into features. None is a small MLP (a CNN for images), a tuple the layer sizes of an MLP; a
        module is copied, never trained in place; a factory is called with the shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Where training bags come from. "auto" is `Mixer` for bags, `APP` for labelled rows, both for both. None trains
        on the given bags alone.
    label_weight : float, default=0.0
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training, default=Training()
        Epochs, learning rate, device and so on.
    random_state : int, default=None
        Seed of weights, splits and draws; None takes another one each time.
    head : tuple of int, default=(512,)
        Hidden layers between the pooled bag and the prevalences.
    ridge : float or None, default=None
        With a number, such as 0.01, the encoder first learns the labels of rows, known or implied by proportions, and
        the layers after it rehearse on drawn bags; the best epoch may be 0, this start. `ridge` is the penalty of the
        logistic regressions by which labels are found that proportions imply. None starts from random weights, as do
        fewer than 100 different rows.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    network_ : BagNetwork
        The trained network, with the weights of the best epoch.
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
        The epoch of the lowest validation loss.
    validation_loss_ : float
        The loss of that epoch.
    split_ : str
        What the network was validated on, in words.
    interrupted_ : str
        Where training was interrupted from the keyboard, such as "after epoch 2 of 200"; empty if it was not.
    learned_nothing_ : str
        A sentence that tells so if the network is no better than one estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

    References
    ----------
    Zaheer et al. (2017), *Deep sets*; Qi et al. (2021), *A framework for deep quantification learning*.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(y[:, None], 1.0, size=(400, 3))
    >>> DeepSets("max", training=Training(epochs=3), random_state=0).fit(X, y).predict(X).shape
    (2,)
    """

    pooling: str = field(default="mean", kw_only=False)

    def _pooling(self, n_features: int) -> Pooling:
        return POOLINGS[check_choice("pooling", self.pooling, tuple(POOLINGS))](n_features)


@dataclass(eq=False, repr=False, kw_only=True)
class SetTransformer(_PooledQuantifier):
    """Quantification by a network with attention through inducing points instead of histograms.

    Parameters
    ----------
    width : int, default=256
        Width of the pooled vector; see `histnetq.nn.SetAttention`.
    hidden : int, default=128
        Width of the layers between.
    n_inducing : int, default=32
        Inducing points that all rows attend to.
    n_heads : int, default=4
        Heads of attention, which divide the widths among them.
    encoder : None, tuple of int, nn.Module or factory, default=None
        What turns rows into features. None is a small MLP (a CNN for images), a tuple the layer sizes of an MLP; a
        module is copied, never trained in place; a factory is called with the shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Where training bags come from. "auto" is `Mixer` for bags, `APP` for labelled rows, both for both. None trains
        on the given bags alone.
    label_weight : float, default=0.0
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training, default=Training()
        Epochs, learning rate, device and so on.
    random_state : int, default=None
        Seed of weights, splits and draws; None takes another one each time.
    head : tuple of int, default=(512,)
        Hidden layers between the pooled bag and the prevalences.
    ridge : float or None, default=None
        With a number, such as 0.01, the encoder first learns the labels of rows, known or implied by proportions, and
        the layers after it rehearse on drawn bags; the best epoch may be 0, this start. `ridge` is the penalty of the
        logistic regressions by which labels are found that proportions imply. None starts from random weights, as do
        fewer than 100 different rows.

    Attributes
    ----------
    classes_ : (n_classes,)
        Names of the classes, in the order of the columns of estimates.
    network_ : BagNetwork
        The trained network, with the weights of the best epoch.
    history_ : dict of arrays
        Per epoch: `epoch`, `train_loss`, `validation_loss`, `lr`, `seconds`.
    best_epoch_ : int
        The epoch of the lowest validation loss.
    validation_loss_ : float
        The loss of that epoch.
    split_ : str
        What the network was validated on, in words.
    interrupted_ : str
        Where training was interrupted from the keyboard, such as "after epoch 2 of 200"; empty if it was not.
    learned_nothing_ : str
        A sentence that tells so if the network is no better than one estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

    References
    ----------
    Lee et al. (2019), *Set Transformer*.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=200)
    >>> X = rng.normal(y[:, None], 1.0, size=(200, 3))
    >>> few = Training(epochs=1, bags_per_epoch=20, validation_bags=10)
    >>> SetTransformer(8, 8, 2, 2, training=few, random_state=0).fit(X, y).predict(X).shape
    (2,)
    """

    width: int = field(default=256, kw_only=False)
    hidden: int = field(default=128, kw_only=False)
    n_inducing: int = field(default=32, kw_only=False)
    n_heads: int = field(default=4, kw_only=False)

    def _pooling(self, n_features: int) -> Pooling:
        return SetAttention(n_features, self.width, self.hidden, self.n_inducing, self.n_heads)


def make_encoder(encoder: Encoder, shape: tuple[int, ...], training: Training) -> nn.Module:
    """Make what the parameter `encoder` of a network means for rows of this shape."""
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


def make_scores(encoder: Encoder, shape: tuple[int, ...], n_classes: int, training: Training) -> nn.Module:
    """Make an encoder that ends with a linear layer of class scores, after hidden layers of these sizes or a module."""
    hidden: Any = () if encoder is None and len(shape) == 1 else encoder
    if are_sizes(hidden):
        return MLP(int(np.prod(shape)), (*hidden, n_classes), training.dropout, training.input_dropout)
    made = make_encoder(encoder, shape, training)
    return nn.Sequential(made, nn.Linear(n_outputs(made, shape), n_classes))


def check_ridge(ridge: Any) -> None:
    """Refuse what is no penalty of a logistic regression."""
    given = isinstance(ridge, Real) and not isinstance(ridge, bool)
    if ridge is not None and not (given and 0 < ridge < np.inf):
        raise ValueError(f"ridge: expected a number above 0, or None, got {ridge!r}.")


def make_standardize(statistics: tuple[NDArray, NDArray] | None) -> Standardize | None:
    """Make what brings rows of this mean and scale to 0 and 1; None without them."""
    return None if statistics is None else Standardize(*map(torch.as_tensor, statistics))


def _reach(statistics: tuple[NDArray, ...] | None, shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Lowest and highest of each number in a row, flat, that is not too far from the mean to be computed with."""
    mean, scale = (np.zeros(1), np.ones(1)) if statistics is None else statistics
    largest = float(np.finfo(np.float32).max)
    ends = (np.clip(mean + side * _FARTHEST * scale, -largest, largest) for side in (-1, 1))
    low, high = (np.broadcast_to(end, shape).ravel() for end in ends)
    return low, high


def check_sizes(name: str, sizes: Any) -> None:
    """Refuse what are no sizes of hidden layers."""
    if not are_sizes(sizes):
        raise ValueError(f"{name}: expected the sizes of its hidden layers, such as (512,), got {sizes!r}.")


def are_sizes(sizes: Any) -> bool:
    """Tell whether these are sizes of layers: some whole numbers above 0."""
    return isinstance(sizes, tuple | list) and all(isinstance(s, int | np.integer) and s > 0 for s in sizes)
