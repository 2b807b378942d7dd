"""DeepSets and SetTransformer: networks that summarise the rows of a bag without histograms."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from histnetq.bags.checks import check_choice, check_integer
from histnetq.nn import POOLINGS, Pooling, SetAttention
from histnetq.quantifiers.networks.deep_quantifier import PooledQuantifier
from histnetq.quantifiers.networks.encoders import MOST_UNITS
from histnetq.training.fitting import Start


@dataclass(eq=False, repr=False, kw_only=True)
class _OnFeatures(PooledQuantifier):
    """Base of both networks, which are pretrained if `ridge` is a number."""

    def _start(self) -> Start | None:
        if self.ridge is None:
            return None
        from histnetq.training.pretraining.features_start import start_features

        return partial(start_features, self.ridge)


@dataclass(eq=False, repr=False, kw_only=True)
class DeepSets(_OnFeatures):
    """Quantification by a network on the mean, median or maximum of each feature instead of its histogram.

    Parameters
    ----------
    pooling : {"mean", "median", "max"}, default="mean"
        Summary of each feature over the rows of a bag.
    encoder : None, tuple of int, nn.Module or factory, default=None
        Maps rows to features. None is a small MLP (a CNN for images), and a tuple has the layer sizes of an MLP. A
        module is copied, never trained in place. A factory is called with the shape of a row.
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
    Zaheer et al. (2017), *Deep sets*; Qi et al. (2021), *A framework for deep quantification learning*.

    Examples
    --------
    >>> import numpy as np
    >>> from histnetq import Training
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=400)
    >>> X = rng.normal(y[:, None], 1.0, size=(400, 3))
    >>> DeepSets("max", training=Training(epochs=3), random_state=0).fit(X, y).predict(X).shape
    (2,)
    """

    pooling: str = field(default="mean", kw_only=False)

    def _check_params(self) -> None:
        super()._check_params()
        check_choice("pooling", self.pooling, tuple(POOLINGS))

    def _pooling(self, n_features: int) -> Pooling:
        return POOLINGS[self.pooling](n_features)


@dataclass(eq=False, repr=False, kw_only=True)
class SetTransformer(_OnFeatures):
    """Quantification by a network with attention through inducing points instead of histograms.

    Parameters
    ----------
    width : int, default=256
        Width of the pooled vector; see `histnetq.nn.SetAttention`.
    hidden : int, default=128
        Width of the attention layers.
    n_inducing : int, default=32
        Number of inducing points that rows attend to.
    n_heads : int, default=4
        Number of attention heads, a divisor of `hidden`.
    encoder : None, tuple of int, nn.Module or factory, default=None
        Maps rows to features. None is a small MLP (a CNN for images), and a tuple has the layer sizes of an MLP. A
        module is copied, never trained in place. A factory is called with the shape of a row.
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
    Lee et al. (2019), *Set Transformer*.

    Examples
    --------
    >>> import numpy as np
    >>> from histnetq import Training
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

    def _check_params(self) -> None:
        super()._check_params()
        for name in ("width", "hidden", "n_inducing", "n_heads"):
            check_integer(name, getattr(self, name), 1, MOST_UNITS)

    def _pooling(self, n_features: int) -> Pooling:
        return SetAttention(n_features, self.width, self.hidden, self.n_inducing, self.n_heads)
