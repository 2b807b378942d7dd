"""Quantifiers that are networks: HistNetQ, DeepSets and SetTransformer.

They differ in their pooling layer alone and learn from bags of which only the proportions are known, from labelled
rows, or from both.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from histnetq.bags import Bags
from histnetq.base import Quantifier
from histnetq.checks import check_choice, take_dense
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
from histnetq.protocols import APP, Combined, Mixer, Protocol
from histnetq.training import Training, train, training_identity

__all__ = ["DeepQuantifier", "DeepSets", "HistNetQ", "SetTransformer"]

Encoder = None | Sequence[int] | nn.Module | Callable[[tuple[int, ...]], nn.Module]

_BINS: dict[str, type[Pooling]] = {
    "hard": HardHistogram,
    "soft": SoftHistogram,
    "rbf": RBFHistogram,
    "sigmoid": SigmoidHistogram,
}
_POOLINGS: dict[str, Callable[[int], Pooling]] = {"mean": Mean, "median": Median, "max": Max}
_DEFAULT_ENCODER = (256, 128)
_CHUNK = 1 << 24  # numbers looked at together when standardising


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
        loss = as_loss(self.loss)
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        rows_seed, bags_seed, draw_seed, weights_seed = np.random.SeedSequence(seed).generate_state(4).tolist()
        labelled, given = _supervision(X, y, bags)
        source = given if given is not None else labelled
        assert source is not None and source.classes is not None
        sampler = self._sampler(labelled, given)
        train_rows, held_rows = (None, None) if labelled is None else _split_rows(labelled, self.training, rows_seed)
        train_bags, held_bags = (None, None) if given is None else given.split(1 - self.training.validation, bags_seed)
        draw = self._drawing(sampler, train_rows, train_bags)
        if held_bags is None:
            assert held_rows is not None
            by = sampler if sampler is not None and sampler.draws_from == "rows" else APP()
            held_bags = by.draw(held_rows, self.training.validation_bags, draw_seed)
        self.classes_ = source.classes
        self.input_shape_ = tuple(source.rows.shape[1:])
        self.feature_names_ = source.feature_names
        pool = [part for part in (train_rows, train_bags) if part is not None]
        with torch.random.fork_rng([]):
            torch.manual_seed(weights_seed)
            network = self._network(_statistics(pool) if self.training.standardize else None)
        result = train(
            network, draw, held_bags, loss, self.training, seed,
            label_weight=self.label_weight, identity=self._identity(held_bags, pool, seed),
        )  # fmt: skip
        self.network_, self.history_ = network, result["history"]
        self.best_epoch_, self.validation_loss_ = result["best_epoch"], result["best_loss"]
        return self

    def _pooling(self, n_features: int) -> Pooling:
        """The layer that makes the difference."""
        raise NotImplementedError

    def _network(self, statistics: tuple[Tensor, Tensor] | None) -> BagNetwork:
        shape = self.input_shape_
        encoder = _make_encoder(self.encoder, shape, self.training.dropout)
        prepare = None if statistics is None else Standardize(*statistics)
        network = BagNetwork(
            encoder, self._pooling(n_outputs(encoder, shape)), tuple(self.head), len(self.classes_),
            prepare=prepare, dropout=self.training.dropout, classify=self.label_weight > 0,
        )  # fmt: skip
        return network.to(choose_device(self.training.device), getattr(torch, self.training.dtype))

    def _sampler(self, labelled: Bags | None, given: Bags | None) -> Protocol | None:
        if self.sampler == "auto":
            if labelled is None:
                return Mixer()
            return APP() if given is None else Combined()
        if self.sampler is None:
            if given is None:
                raise ValueError("sampler: None trains on given bags alone, but fit got labelled rows; use APP().")
            return None
        if not hasattr(self.sampler, "draw"):
            raise ValueError(f"sampler: expected 'auto', None or a protocol such as Mixer(), got {self.sampler!r}.")
        needs = self.sampler.draws_from
        lacks = {"bags": given is None, "both": given is None or labelled is None}.get(needs, False)
        if lacks:
            raise ValueError(
                f"sampler: {type(self.sampler).__name__} draws from {needs} (rows and bags for 'both'), which fit did not "
                "get; use sampler='auto'."
            )
        return self.sampler

    def _drawing(
        self, sampler: Protocol | None, rows: Bags | None, bags: Bags | None
    ) -> Callable[[np.random.Generator], Bags]:
        if sampler is None:
            assert bags is not None
            alone = bags
            return lambda rng: alone
        source: Any = {"bags": bags, "both": (rows, bags)}.get(sampler.draws_from, bags if rows is None else rows)
        n_bags = self.training.bags_per_epoch or (500 if bags is None else max(len(bags), 200))
        return lambda rng: sampler.draw(source, n_bags, rng)

    def _identity(self, held: Bags, pool: Sequence[Bags], seed: int) -> str:
        if self.training.checkpoint is None:
            return ""
        if self.random_state is None:
            raise ValueError(
                "random_state: expected a number with training.checkpoint, got None; a resumed run repeats it."
            )
        digest = hashlib.sha256()
        for bags in (held, *pool):
            digest.update(bags.index.tobytes() + bags.offsets.tobytes())
            if bags.prevalences is not None:
                digest.update(bags.prevalences.tobytes())
            digest.update(take_dense(bags.rows, bags.index[:1]).tobytes())
        others = {k: str(v) for k, v in self.get_params(deep=False).items() if k != "training"}
        return training_identity(self.training, type(self).__name__, sorted(others.items()), digest.hexdigest(), seed)

    def _predict(self, bags: Bags) -> NDArray[np.float64]:
        return predict_bags(self.network_, bags)

    def _weights(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _learned(self) -> dict[str, Any]:
        history = {name: values.tolist() for name, values in self.history_.items()}
        return {"history": history, "best_epoch": self.best_epoch_, "validation_loss": self.validation_loss_}

    def _restore(self, tensors: dict[str, Tensor], learned: dict[str, Any]) -> None:
        statistics = None
        if self.training.standardize:
            statistics = (tensors["prepare.mean"], tensors["prepare.scale"])
        network = self._network(statistics)
        try:
            network.load_state_dict(tensors)
        except RuntimeError:
            raise ValueError(
                "encoder: the stored weights do not fit this network; pass the encoder that the model was made with."
            ) from None
        self.network_ = network.eval()
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
        return _BINS[check_choice("bins", self.bins, tuple(_BINS))](n_features, self.n_bins)  # type: ignore[call-arg, arg-type]


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


def _supervision(X: Any, y: Any, bags: Bags | None) -> tuple[Bags | None, Bags | None]:
    """What `fit` was given, as labelled rows and bags with prevalences; both on one pool with the same classes."""
    if isinstance(X, Bags):
        if bags is not None:
            raise TypeError(
                "bags: expected only beside labelled rows, fit(X, y, bags=…), got Bags twice; use Bags.concat."
            )
        return None, _with_known_prevalences(X if y is None else X.with_prevalences(y))
    if y is None:
        raise TypeError(
            "y: expected a label for each row of X, got None; pass Bags with prevalences to learn without labels."
        )
    labelled = Bags.from_labels(X, y, classes=None if bags is None else _union(y, bags))
    if bags is None:
        return labelled, None
    both = Bags.concat([labelled, _with_known_prevalences(bags)])
    return both[:1], both[1:]


def _union(y: Any, bags: Bags) -> list[Any]:
    if bags.classes is None:
        raise ValueError(
            "bags: expected bags with prevalences, got none; pass prevalences= and classes= when making them."
        )
    return list(dict.fromkeys([*bags.classes.tolist(), *np.unique(np.asarray(y)).tolist()]))


def _with_known_prevalences(bags: Bags) -> Bags:
    if bags.prevalences is not None:
        return bags
    if bags.labels is not None:
        return bags.with_prevalences(bags.label_prevalences())
    raise ValueError("bags: expected the proportions of each bag, got none; pass them as fit(bags, prevalences).")


def _split_rows(labelled: Bags, training: Training, seed: int) -> tuple[Bags, Bags]:
    """Split labelled rows within each class, so that bags drawn for training and validation share no row."""
    assert labelled.labels is not None
    rows = labelled.index
    labels = labelled.labels[rows]
    order = np.lexsort((np.random.default_rng(seed).random(len(rows)), labels))
    counts = np.bincount(labels)
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = rank < np.floor(training.validation * counts + 0.5)[labels[order]]
    held &= (counts > 1)[labels[order]]
    if not held.any():
        raise ValueError(
            f"y: expected at least 2 rows of some class to hold out {training.validation:.0%} for validation, "
            f"got {len(rows)} rows; add rows."
        )
    parts = [np.sort(rows[order[mask]]) for mask in (~held, held)]
    return tuple(labelled.select(slice(None), part, np.array([0, len(part)]), None) for part in parts)  # type: ignore[return-value]


def _make_encoder(encoder: Encoder, shape: tuple[int, ...], dropout: float) -> nn.Module:
    if isinstance(encoder, nn.Module):
        return copy.deepcopy(encoder)
    if callable(encoder):
        made = encoder(shape)
        if not isinstance(made, nn.Module):
            raise TypeError(f"encoder: expected the factory to return an nn.Module, got {type(made).__name__}.")
        return made
    if encoder is None and len(shape) in (2, 3):
        return CNN(shape, dropout=dropout)
    sizes = _DEFAULT_ENCODER if encoder is None else tuple(encoder)
    if not sizes or not all(isinstance(s, int | np.integer) and s > 0 for s in sizes):
        raise ValueError(f"encoder: expected None, layer sizes, an nn.Module or a factory, got {encoder!r}.")
    return MLP(int(np.prod(shape)), sizes, dropout)


def _statistics(parts: Sequence[Bags]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature (of each channel of images) over the rows used for training.

    Sparse rows are not centred: their mean is given as 0 and their scale is the root mean square.
    """
    pool = parts[0].rows
    used = np.unique(np.concatenate([p.index for p in parts]))
    channels = pool.shape[1:] if len(pool.shape) == 2 else pool.shape[1:-2]
    sums, squares, n = np.zeros(channels), np.zeros(channels), 0
    step = max(1, _CHUNK // max(1, int(np.prod(pool.shape[1:]))))
    shift = None
    for start in range(0, len(used), step):
        x = take_dense(pool, used[start : start + step]).astype(np.float64)
        axes = (0,) if x.ndim == 2 else (0, x.ndim - 2, x.ndim - 1)
        # About the first chunk's mean: a sum of squares about 0 loses the digits of features far from 0.
        if shift is None:
            shift = np.zeros(channels) if hasattr(pool, "tocsr") else x.mean(axes)
        x -= shift if x.ndim == 2 else shift[..., None, None]
        sums, squares, n = sums + x.sum(axes), squares + (x**2).sum(axes), n + x.size // max(1, sums.size)
    centred = not hasattr(pool, "tocsr")
    offset = sums / n if centred else np.zeros(channels)
    scale = np.sqrt(np.maximum(squares / n - offset**2, 0))
    scale[scale <= 1e-7 * (1 + np.abs(shift + offset))] = 1.0
    mean = shift + offset
    if len(pool.shape) > 2:
        mean, scale = mean[..., None, None], scale[..., None, None]
    return torch.from_numpy(np.asarray(mean)), torch.from_numpy(np.asarray(scale))
