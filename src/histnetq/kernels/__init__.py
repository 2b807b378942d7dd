"""Fused arithmetic behind one interface: compiled kernels on the CPU, and plain torch kernels on any device.

The modules `compiled` and `plain` define the same six functions on tensors; `backend` chooses between them. Importing
this package loads neither torch nor numba.

====================  ================================================================================
``hard_codes``        values → number of bin edges at or below each value
``hard_count``        codes of the entries of each bag → weight inside each bin
``hard_density``      the same as a fraction of the bag's weight, and weight right minus left of the bin's centre
``hard_scatter``      gradient of the bins → gradient of the values, by code
``smooth_sum``        values → sum of φ over the entries of each bag
``smooth_grad``       gradient of the bins → gradients of values, centres and scales, recomputing φ
====================  ================================================================================

The modules `likelihood_compiled` and `likelihood_plain` define:

====================  ================================================================================
``maximise``          likelihoods → prevalences under which each bag is most likely, and the curvature there
``scatter``           gradient of the prevalences → gradients of scores and weights
====================  ================================================================================

The modules `gaussians_compiled` and `gaussians_plain` define:

====================  ================================================================================
``gaussian_sum``      values → sum of the likelihoods under each Gaussian over the entries of each bag
``gaussian_grad``     their gradient → gradients of values, centres and factors, recomputing likelihoods
====================  ================================================================================

`dense_compiled` has no plain version, as torch's own layers do the same; `compiled_kernels` returns it if it can be
used.

====================  ================================================================================
``encode``            rows → features of fully connected layers, which do not depend on other rows
``encode_bins``       the same → number of thresholds at or below each feature
====================  ================================================================================

Kernels trust their arguments: the layers in `histnetq.nn` check indices and offsets once, before any kernel runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["backend", "compiled_kernels", "using"]

_forced: str | None = os.environ.get("HISTNETQ_KERNELS")


def backend(values: Tensor, family: str = "") -> ModuleType:
    """Choose the kernels for this tensor.

    Compiled kernels support float32 and float64 on the CPU. Set the environment variable ``HISTNETQ_KERNELS=plain`` to
    use plain kernels only. `family` is the first part of the names of the modules: "" for histograms, "likelihood_" for
    maximum likelihood, "gaussians_" for Gaussian likelihoods.
    """
    return compiled_kernels(values, family) or importlib.import_module(f"histnetq.kernels.{family}plain")


def compiled_kernels(values: Tensor, family: str) -> ModuleType | None:
    """Return the compiled kernels of a family, or None if they do not support the tensor or plain ones are forced."""
    fits = values.device.type == "cpu" and values.is_floating_point() and values.dtype.itemsize >= 4
    return _compiled(family) if fits and _forced != "plain" else None


@cache
def _compiled(family: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"histnetq.kernels.{family}compiled")
    except ImportError:  # numba lags behind new versions of Python
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
