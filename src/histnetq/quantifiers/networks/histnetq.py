"""HistNetQ: a network on differentiable histograms."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from torch import nn

from histnetq.bags.checks import check_choice, check_flag, check_integer
from histnetq.bags.limits import MOST_BINS
from histnetq.nn import BINS, BagNetwork, Cumulative, LogOdds, Pooling, Unmixing
from histnetq.persistence.saving import Arrays
from histnetq.quantifiers.networks.deep_quantifier import PooledQuantifier
from histnetq.quantifiers.networks.encoders import DEFAULT_ENCODER, make_scores
from histnetq.training.fitting import Start


@dataclass(eq=False, repr=False, kw_only=True)
class HistNetQ(PooledQuantifier):
    """Quantification by a network on differentiable histograms.

    Every row is encoded to features, each bag becomes one histogram per feature, and a head maps the histograms to
    prevalences. By default, the features are log-odds of the classes. The encoder learns them from the labels of rows,
    which are known or implied by proportions. The head expresses a bag's histograms as a mixture of the class
    histograms, and learns on simulated bags. Then the whole network is trained end to end for the chosen loss. If
    `head` has layer sizes, the network is the one in the paper: any features, a softmax, and training end to end from
    random weights.

    Parameters
    ----------
    bins : {"hard", "soft", "rbf", "sigmoid"}, default="hard"
        Kind of histogram; see `histnetq.nn`.
    n_bins : int, default=16
        Number of bins per feature.
    encoder : None, tuple of int, nn.Module or factory, default=None
        Maps rows to features. None is a small MLP (a CNN for images), and a tuple has the layer sizes of an MLP; with
        ``head="unmix"``, a layer of class scores follows. With None, this layer alone is used if its pretrained network
        has the lower loss on the validation bags. A module is copied, never trained in place. A factory is called with
        the shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Protocol that draws the training bags. "auto" is `Mixer` for bags, `APP` for labelled rows, and `Combined` for
        both. None trains on the given bags only.
    label_weight : float, default=0.0
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training, default=Training()
        Epochs, learning rate, device and other options.
    random_state : int, default=None
        Seed of weights, splits and draws; None draws a new seed each time.
    ridge : float or None, default=0.01
        Penalty of the logistic regressions that recover unknown labels of rows from the proportions of the bags. If the
        encoder has no hidden layers, it is also such a regression. Training starts from random weights with None, and
        if fewer than 100 rows are distinct, unless these occur often and in more bags than there are distinct rows.
    head : "unmix" or tuple of int, default="unmix"
        Maps histograms to prevalences: "unmix" finds the mixture of class histograms, and a tuple has the sizes of
        hidden layers, as in the paper.
    cumulative : bool, default=False
        Whether a head of hidden layers reads cumulative histograms. It then learns from many weak features (texts of
        many classes) in fewer epochs, but learns less well from a few strong features.

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
        Description of the validation data.
    interrupted_ : str
        The moment of a keyboard interruption of training, such as "after epoch 2 of 200"; empty without one.
    learned_nothing_ : str
        Warning that the network is no better than one constant estimate for all bags; empty if it is better.
    train_prevalences_ : (n_classes,)
        Prevalences of the classes in training.

    References
    ----------
    Pérez-Mon, Moreo, del Coz & González, *Quantification using permutation-invariant networks based on histograms*.

    Examples
    --------
    >>> import numpy as np
    >>> from histnetq import Training
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(y[:, None], 1.0, size=(400, 3))
    >>> q = HistNetQ(n_bins=8, training=Training(epochs=3), random_state=0).fit(X, y)
    >>> q.predict(X).shape
    (2,)
    """

    refits: ClassVar[bool] = True

    bins: str = field(default="hard", kw_only=False)
    n_bins: int = field(default=16, kw_only=False)
    head: Sequence[int] | str = "unmix"
    cumulative: bool = False
    ridge: float | None = 0.01

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("bins", self.bins, tuple(BINS))
        check_integer("n_bins", self.n_bins, 1, MOST_BINS)
        check_flag("cumulative", self.cumulative)

    def _check_head(self) -> None:
        if isinstance(self.head, str):
            check_choice("head", self.head, ("unmix",))
        else:
            super()._check_head()

    def _start(self) -> Start | None:
        if self.ridge is None or self.head != "unmix":
            return None
        from histnetq.training.pretraining.histnetq_start import start_histograms

        return partial(start_histograms, self.ridge)

    def _alternative(self, shape: tuple[int, ...]) -> HistNetQ | None:
        if self.encoder is not None or self._start() is None or len(shape) != 1:
            return None
        return self._without_hidden_layers()

    def _without_hidden_layers(self) -> HistNetQ:
        other = copy.copy(self)
        other.encoder = ()
        return other

    def _rebuilt(self, arrays: Arrays) -> BagNetwork:
        layers = [name for name, array in arrays.items() if name.startswith("encoder.0.") and array.ndim == 2]
        chosen = self.encoder is None and self.head == "unmix" and len(self.input_shape_) == 1 and len(layers) == 1
        return PooledQuantifier._rebuilt(self._without_hidden_layers() if chosen else self, arrays)

    def _encoder(self, shape: tuple[int, ...], n_classes: int) -> nn.Module:
        if self.head != "unmix":
            return super()._encoder(shape, n_classes)
        hidden = DEFAULT_ENCODER if self.encoder is None and len(shape) == 1 else self.encoder
        return nn.Sequential(make_scores(hidden, shape, n_classes, self.training), LogOdds(n_classes))

    def _pooling(self, n_features: int) -> Pooling:
        return BINS[self.bins](n_features, self.n_bins)

    def _head(self, width: int, n_classes: int) -> nn.Module:
        if self.head == "unmix":
            return Unmixing(width // self.n_bins, self.n_bins, n_classes)
        head = super()._head(width, n_classes)
        return nn.Sequential(Cumulative(self.n_bins), head) if self.cumulative else head
