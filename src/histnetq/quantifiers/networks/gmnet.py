"""GMNet: a network on likelihoods under learned Gaussians."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from histnetq.bags.checks import check_integer
from histnetq.nn import BagNetwork, Gaussians, Pooling, Standardize
from histnetq.quantifiers.networks.deep_quantifier import PooledQuantifier
from histnetq.quantifiers.networks.encoders import DEFAULT_ENCODER, MOST_UNITS, make_scores
from histnetq.training.fitting import Start


@dataclass(eq=False, repr=False, kw_only=True)
class GMNet(PooledQuantifier):
    """Quantification by a network on likelihoods under learned Gaussians instead of histograms.

    Every row is encoded and projected into several blocks of a few dimensions. Each block has its own Gaussians. A bag
    is described by the mean likelihood of its rows under each Gaussian, and a head maps these likelihoods to
    prevalences. A histogram describes one feature at a time, and a Gaussian all dimensions of a block together.

    Parameters
    ----------
    n_blocks : int, default=9
        Number of projections of a row.
    n_gaussians : int, default=30
        Gaussians of each block; see `histnetq.nn.Gaussians`.
    n_dims : int, default=5
        Dimensions of each block.
    encoder : None, tuple of int, nn.Module or factory, default=None
        Layers before the projections into blocks. None is a small MLP (a CNN for images), and a tuple has the sizes of
        hidden layers. A module is copied, never trained in place. A factory is called with the shape of a row.
    loss : str or callable, default="ae"
        A name from `histnetq.metrics`, or any differentiable ``(p_true, p_pred)`` or ``(p_true, p_pred, sizes)``.
    sampler : "auto", None or protocol, default="auto"
        Protocol that draws the training bags. "auto" is `Mixer` for bags, `APP` for labelled rows, and `Combined` for
        both. None trains on the given bags only.
    label_weight : float, default=0.0
        Weight of an auxiliary classification loss on rows whose labels are known.
    training : Training, default=Training()
        Epochs, learning rate, device and other options; its `dropout` acts in the head only.
    random_state : int, default=None
        Seed of weights, splits and draws; None draws a new seed each time.
    ridge : float or None, default=None
        With a number, such as 0.01, the network is pretrained: the encoder learns the labels of rows, and the layers
        after it learn on simulated bags. Training keeps the pretrained weights, as epoch 0, unless an epoch improves
        them. Unknown labels are recovered from the proportions of the bags by logistic regressions, and the number is
        their penalty. With None, or if fewer than 100 rows are distinct, training starts from random weights.
    head : tuple of int, default=(512,)
        Hidden layers between the pooled bag and the prevalences.

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
    Pérez-Mon, del Coz & González, *GMNet*, a network for quantification by Gaussian layers, after HistNetQ.

    Examples
    --------
    >>> import numpy as np
    >>> from histnetq import Training
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(y[:, None], 1.0, size=(400, 3))
    >>> GMNet(2, 5, 2, training=Training(epochs=3), random_state=0).fit(X, y).predict(X).shape
    (2,)
    """

    n_blocks: int = field(default=9, kw_only=False)
    n_gaussians: int = field(default=30, kw_only=False)
    n_dims: int = field(default=5, kw_only=False)

    def _check_params(self) -> None:
        super()._check_params()
        for name in ("n_blocks", "n_gaussians", "n_dims"):
            check_integer(name, getattr(self, name), 1, MOST_UNITS)

    def _start(self) -> Start | None:
        from histnetq.training.pretraining.gmnet_start import start_gaussians

        return partial(start_gaussians, self.ridge)

    def _network(self, shape: tuple[int, ...], n_classes: int, prepare: Standardize | None) -> BagNetwork:
        hidden = DEFAULT_ENCODER if self.encoder is None and len(shape) == 1 else self.encoder
        pooling = self._pooling(self.n_blocks * self.n_dims)
        # Dropout before the Gaussians would spread training rows wider than the rows of bags to estimate.
        whole = dataclasses.replace(self.training, dropout=0.0)
        return self._assemble(make_scores(hidden, shape, pooling.n_features, whole), pooling, n_classes, prepare)

    def _pooling(self, n_features: int) -> Pooling:
        return Gaussians(n_features, self.n_blocks, self.n_gaussians)

    def _head(self, width: int, n_classes: int) -> nn.Module:
        return nn.Sequential(Standardize(torch.zeros(width), torch.ones(width)), super()._head(width, n_classes))
