"""Histogram kernels behind one interface: compiled ones on the CPU, plain torch ones anywhere.

Both modules define the same six functions on tensors; `backend` chooses between them.

====================  ================================================================================
``hard_codes``        values → number of bin edges at or below each value
``hard_count``        codes of the entries of each bag → weight inside each bin
``hard_density``      the same as part of the bag's weight, and right minus left of the bin's centre
``hard_scatter``      gradient of the bins → gradient of the values, by code
``smooth_sum``        values → sum of φ over the entries of each bag
``smooth_grad``       gradient of the bins → gradients of values, centres and scales, recomputing φ
====================  ================================================================================
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch

from histnetq.kernels import plain

__all__ = ["backend", "using"]

_forced: str | None = os.environ.get("HISTNETQ_KERNELS")


def backend(values: torch.Tensor) -> ModuleType:
    """The kernels to use for this tensor.

    Set the environment variable ``HISTNETQ_KERNELS=plain`` to do without compiled kernels.
    """
    if _forced == "plain" or values.device.type != "cpu" or values.dtype not in (torch.float32, torch.float64):
        return plain
    return _compiled() or plain


@cache
def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("histnetq.kernels.compiled")
    except (ImportError, RuntimeError):  # numba lags behind new versions of Python, and wants a place for its cache
        return None


@contextmanager
def using(name: str) -> Iterator[None]:
    """Force the ``"plain"`` or ``"compiled"`` kernels inside a ``with`` block."""
    global _forced
    if name not in ("plain", "compiled"):
        raise ValueError(f"kernels: expected 'plain' or 'compiled', got {name!r}.")
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before
