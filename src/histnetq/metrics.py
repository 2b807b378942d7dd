"""Errors of estimated prevalences, one value per bag, for numpy arrays and torch tensors.

Every measure is a function ``(p_true, p_pred, sizes) → (n_bags,)`` of prevalences ``(n_bags, n_classes)`` and bag
sizes ``(n_bags,)``. A training loss is the mean of one of them. The smoothed measures replace each prevalence *p* by
``(p + ε) / (n_classes · ε + 1)`` with ``ε = 1 / (2 · size)`` of each bag's own size.

References
----------
Sebastiani (2020), *Evaluation measures for quantification: an axiomatic approach*.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from histnetq.ordinal_metrics import macro_nmd, nmd

__all__ = [
    "MEASURES", "CostSensitiveAE", "ae", "as_loss", "csmf_accuracy", "kld", "macro_nmd", "nae", "nkld", "nmd", "nrae",
    "rae", "se",
]  # fmt: skip

Array = Any
Measure = Callable[..., Array]


def ae(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Absolute error: the mean over classes of ``|p_true − p_pred|``.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which this measure ignores.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> ae(np.array([[0.5, 0.5]]), np.array([[0.7, 0.3]]))
    array([0.2])
    """
    return abs(p_true - p_pred).mean(-1)


def nae(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Absolute error divided by the largest one possible for ``p_true``, so that the worst estimate scores 1.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which this measure ignores.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> nae(np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    array([1., 1.])
    """
    worst = 2 * (1 - _namespace(p_true).amin(p_true, -1)) / p_true.shape[-1]
    return ae(p_true, p_pred) / worst


def csmf_accuracy(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """CSMF accuracy, used for estimates of the mix of causes of death: ``1 − nae``, so that higher is better.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which this measure ignores.

    Returns
    -------
    (n_bags,)
        The accuracy of each bag, 1 for estimates without error and 0 for the worst ones.

    References
    ----------
    Murray et al. (2011), *Robust metrics for assessing the performance of different verbal autopsy cause assignment
    methods in validation studies*.

    Examples
    --------
    >>> csmf_accuracy(np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[0.5, 0.5], [1.0, 0.0]]))
    array([1., 0.])
    """
    p_true, p_pred = np.asarray(p_true), np.asarray(p_pred)
    for name, p in (("p_true", p_true), ("p_pred", p_pred)):
        table = p.dtype.kind in "fiu" and p.ndim == 2 and p.shape[1] > 1 and p.shape == p_true.shape
        if not table or not ((p >= 0).all() and (abs(p.sum(1) - 1) < 1e-3).all()):
            got = "others" if table else f"shape {p.shape}"
            raise ValueError(
                f"{name}: expected rows of shares that sum to 1, of at least 2 classes and as many bags in both, got "
                f"{got}; give one row per bag and one column per class."
            )
    return 1 - nae(p_true, p_pred)


def rae(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Relative absolute error, smoothed: the mean over classes of ``|δ(p_true) − δ(p_pred)| / δ(p_true)``.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which determine the smoothing; required.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> rae(np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]]), sizes=np.array([1]))
    array([0.25])
    """
    t, e = _smooth("rae", p_true, p_pred, sizes)
    return (abs(t - e) / t).mean(-1)


def nrae(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Relative absolute error, smoothed, divided by the largest one that any estimate of the smoothed truth could have.

    A smoothed estimate keeps ``ε`` in every class, so the worst one scores a little below 1, and 1 as sizes grow.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which determine the smoothing; required.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> nrae(np.array([[0.5, 0.5]]), np.array([[1.0, 0.0]]), sizes=np.array([100])).round(3)
    array([0.99])
    """
    t, e = _smooth("nrae", p_true, p_pred, sizes)
    n_classes = p_true.shape[-1]
    least = _namespace(t).amin(t, -1)
    worst = (n_classes - 1 + (1 - least) / least) / n_classes
    return (abs(t - e) / t).mean(-1) / worst


def se(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Squared error: the mean over classes of ``(p_true − p_pred)²``; its mean over bags is the MSE.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which this measure ignores.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> se(np.array([[0.5, 0.5]]), np.array([[0.7, 0.3]]))
    array([0.04])
    """
    return ((p_true - p_pred) ** 2).mean(-1)


def kld(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Kullback-Leibler divergence of the estimate from the truth, smoothed.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which determine the smoothing; required.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> kld(np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]]), sizes=np.array([100])).round(3)
    array([0.141])
    """
    t, e = _smooth("kld", p_true, p_pred, sizes)
    return (t * _namespace(t).log(t / e)).sum(-1)


def nkld(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """KLD mapped to [0, 1) by ``2·e^KLD / (1 + e^KLD) − 1``, which is ``tanh(KLD / 2)``.

    Parameters
    ----------
    p_true : (n_bags, n_classes)
        The true prevalences.
    p_pred : (n_bags, n_classes)
        The estimated prevalences.
    sizes : (n_bags,), optional
        Bag sizes, which determine the smoothing; required.

    Returns
    -------
    (n_bags,)
        The error of each bag.

    Examples
    --------
    >>> nkld(np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]]), sizes=np.array([100])).round(3)
    array([0.07])
    """
    divergence = kld(p_true, p_pred, sizes)
    return _namespace(p_pred).tanh(divergence / 2)


@dataclass(frozen=True)
class CostSensitiveAE:
    """Absolute error with the weight ``weights[j]`` for class *j*; equal weights give `ae`.

    Parameters
    ----------
    weights : tuple of float
        One non-negative number per class; they are rescaled to a mean of one.

    Examples
    --------
    >>> CostSensitiveAE((3, 1))(np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]]))
    array([0.1])
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        w = np.asarray(self.weights, dtype=float)
        if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
            raise ValueError(
                f"weights: expected one non-negative number per class, not all zero; got {self.weights!r}."
            )
        object.__setattr__(self, "weights", tuple(w.tolist()))

    def __call__(self, p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
        if len(self.weights) != p_true.shape[-1]:
            raise ValueError(
                f"weights: expected one per class ({p_true.shape[-1]}), got {len(self.weights)}; "
                "give them in the order of classes_."
            )
        gap = abs(p_true - p_pred)
        w = np.asarray(self.weights) / np.mean(self.weights)
        return (gap * (w if isinstance(gap, np.ndarray) else gap.new_tensor(w))).mean(-1)


MEASURES: dict[str, Measure] = {
    "ae": ae, "rae": rae, "nae": nae, "nrae": nrae, "se": se, "mse": se, "kld": kld, "nkld": nkld, "nmd": nmd,
    "macro_nmd": macro_nmd,
}  # fmt: skip


def as_loss(loss: str | Measure) -> Measure:
    """Turn a name or any callable into ``(p_true, p_pred, sizes) → one value per bag, or a scalar``.

    A callable is given the sizes if its third parameter is called ``sizes`` or has no default.

    Parameters
    ----------
    loss : str or callable
        A name in `MEASURES`, or a function of ``p_true`` and ``p_pred``, and of ``sizes`` if it takes them.

    Returns
    -------
    callable
        A function of ``p_true``, ``p_pred`` and ``sizes``.

    Examples
    --------
    >>> as_loss("ae") is ae
    True
    >>> as_loss(lambda p_true, p_pred: (p_true - p_pred) ** 2)(np.ones(2), np.zeros(2), None)
    array([1., 1.])
    """
    if isinstance(loss, str):
        if loss not in MEASURES:
            raise ValueError(
                f"loss: expected one of {', '.join(MEASURES)} or a callable (p_true, p_pred), got {reprlib.repr(loss)}."
            )
        return MEASURES[loss]
    if not callable(loss):
        raise TypeError(f"loss: expected a name or a callable (p_true, p_pred), got {type(loss).__name__}.")
    if _takes_sizes(loss):
        return loss
    return lambda p_true, p_pred, sizes: loss(p_true, p_pred)


def _takes_sizes(loss: Measure) -> bool:
    try:
        # The signature of a torch module itself is (*args, **kwargs).
        parameters = inspect.signature(getattr(loss, "forward", loss)).parameters.values()
    except ValueError:
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 2 and (positional[2].name == "sizes" or positional[2].default is inspect.Parameter.empty)


def _namespace(x: Array) -> ModuleType:
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def _smooth(name: str, p_true: Array, p_pred: Array, sizes: Array | None) -> tuple[Array, Array]:
    if sizes is None:
        raise ValueError(f"{name}: sizes is needed for the smoothing 1/(2·size); pass the bags' sizes.")
    n_classes = p_true.shape[-1]
    if isinstance(p_pred, np.ndarray):
        sizes = np.asarray(sizes)
    else:
        sizes = _namespace(p_pred).as_tensor(sizes, dtype=p_pred.dtype, device=p_pred.device)
    eps = (0.5 / sizes)[..., None]
    scale = n_classes * eps + 1
    return (p_true + eps) / scale, (p_pred + eps) / scale
