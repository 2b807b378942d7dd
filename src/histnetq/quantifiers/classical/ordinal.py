"""Smoothness of prevalences over ordered classes: neighbouring classes have similar prevalences."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from histnetq.bags.limits import brief
from histnetq.simplex import Floats

_MOST = 1e12
_DEGREE = 2  # degree of the polynomial that prevalences are moved towards


def check_smoothness(value: Any, most: float = _MOST) -> float:
    """Refuse anything but a degree of smoothness: a number from 0 to `most`.

    Examples
    --------
    >>> check_smoothness(0.5, most=1)
    0.5
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= most:
        too_high = number and value > most
        wanted = f"from 0 to {most:g}" if most < _MOST or too_high else "of at least 0"
        raise ValueError(f"smoothness: expected a number {wanted}, got {brief(value)}; 0 treats classes as unordered.")
    return float(value)


def curvature(n_classes: int) -> Floats:
    """Return the matrix of the sum of squared second differences, which is ``p @ curvature(n) @ p``.

    Examples
    --------
    >>> p = np.array([0.2, 0.5, 0.3])
    >>> float((p @ curvature(3) @ p).round(2))
    0.25
    """
    second = np.diff(np.eye(n_classes), n=2, axis=0)
    return second.T @ second


def smoother(n_classes: int, smoothness: float) -> Floats:
    """Return the matrix that moves prevalences a part of the way to their least-squares parabola.

    Examples
    --------
    >>> (smoother(4, 1.0) @ [0.0, 0.5, 0.0, 0.5]).round(2)
    array([0.1, 0.2, 0.3, 0.4])
    """
    powers = np.vander(np.linspace(-1, 1, n_classes), min(n_classes, _DEGREE + 1))
    return (1 - smoothness) * np.eye(n_classes) + smoothness * powers @ np.linalg.pinv(powers)
