"""Errors of estimates of ordered classes, such as stars or age bands, with the conventions of `histnetq.metrics`."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
_ROUNDING = 1e-6  # a mean class that is less than this below a whole number is rounded up


def nmd(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Normalised match distance for ordered classes: the mean gap of the cumulative distributions.

    Moving all mass from the first class to the last scores 1, to the next class ``1 / (n_classes − 1)``.

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
    >>> nmd(np.array([[1.0, 0, 0], [1, 0, 0]]), np.array([[0.0, 1, 0], [0, 0, 1]]))
    array([0.5, 1. ])
    """
    return abs((p_true - p_pred).cumsum(-1)[..., :-1]).mean(-1)


def macro_nmd(p_true: Array, p_pred: Array, sizes: Array | None = None) -> Array:
    """Normalised match distances, weighted so that their mean is LeQua 2024's macro-NMD.

    Bags fall into ``n_classes − 1`` groups by their true mean class: from the first class to the second, and so on; the
    last group holds its upper end. The macro-NMD is the mean over groups of the mean `nmd` of a group, so that rare
    kinds of bags count as much as common ones. A group without bags is left out. The weights depend on all bags that
    are measured together; the value of a bag alone is its `nmd`.

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
        The weighted error of each bag.

    References
    ----------
    Esuli, Moreo, Sebastiani & Sperduti (2024), *An overview of LeQua 2024, the 2nd international data challenge on
    learning to quantify*.

    Examples
    --------
    >>> p_true = np.array([[1.0, 0, 0], [1, 0, 0], [0, 0, 1]])
    >>> macro_nmd(p_true, np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]]))
    array([0.  , 0.375, 0.75 ])
    """
    n_classes = p_true.shape[-1]
    truth = p_true if isinstance(p_true, np.ndarray) else p_true.detach().cpu().numpy()
    group = np.minimum((truth @ np.arange(n_classes) + _ROUNDING).astype(int), max(n_classes - 2, 0))
    counts = np.bincount(group.ravel())
    weights = group.size / (np.count_nonzero(counts) * counts[group])
    errors = nmd(p_true, p_pred)
    return errors * (errors.new_tensor(weights) if hasattr(errors, "new_tensor") else weights)
