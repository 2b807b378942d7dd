"""How common is each class in a bag of examples?

The public names; each is imported from its room on first use, so that what does not need torch starts without it.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from histnetq.quantifiers.registry import REGISTRY

if TYPE_CHECKING:
    from histnetq import datasets, interop, metrics, nn, simplex
    from histnetq.data.bags import Bags
    from histnetq.data.protocols import APP, NPP, Combined, CovariateShift, Dirichlet, Mixer
    from histnetq.data.tables import read_bags
    from histnetq.evaluation import plots
    from histnetq.evaluation.comparison import Comparison
    from histnetq.evaluation.errors import compare, evaluate
    from histnetq.evaluation.tuning import Tuned, tune
    from histnetq.metrics import CostSensitiveAE
    from histnetq.monitoring.monitor import Monitored, monitor
    from histnetq.quantifiers.base import Quantifier
    from histnetq.quantifiers.baseline import MLPE
    from histnetq.quantifiers.counting import ACC, CC, PACC, PCC
    from histnetq.quantifiers.density import KDEy
    from histnetq.quantifiers.emnetq import EMNetQ
    from histnetq.quantifiers.likelihood import EMQ
    from histnetq.quantifiers.matching import DyS, HDy
    from histnetq.quantifiers.networks import DeepSets, HistNetQ, SetTransformer
    from histnetq.quantifiers.quanet import QuaNet
    from histnetq.quantifiers.saving import load
    from histnetq.sketches.on_dask import predict_dask
    from histnetq.sketches.sketch import BagSketch
    from histnetq.training.options import Training
    from histnetq.uncertainty.intervals import Intervals

__version__ = "0.1.0"

# OpenMP reads how its threads wait when torch loads it, hence here. By itself GNU OpenMP spins for milliseconds after
# each operation, which takes the cores from threads that have work as soon as another process runs. Threads that sleep
# at once made training on two nearly idle cores slower (3.2 s against 2.6 s), so a little spinning is left.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
    os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="2000")

__all__ = [
    *REGISTRY, "APP", "BagSketch", "Bags", "Combined", "Comparison", "CostSensitiveAE", "CovariateShift", "Dirichlet",
    "Intervals", "Mixer", "Monitored", "NPP", "Quantifier", "Training", "Tuned", "compare", "datasets", "evaluate",
    "interop", "load", "metrics", "monitor", "nn", "plots", "predict_dask", "read_bags", "simplex", "tune",
]  # fmt: skip

_HOME = {
    "data.bags": ["Bags"],
    "data.protocols": ["APP", "NPP", "Combined", "CovariateShift", "Dirichlet", "Mixer"],
    "data.tables": ["read_bags"],
    "evaluation.comparison": ["Comparison"],
    "evaluation.errors": ["compare", "evaluate"],
    "evaluation.tuning": ["Tuned", "tune"],
    "metrics": ["CostSensitiveAE"],
    "monitoring.monitor": ["Monitored", "monitor"],
    "quantifiers.base": ["Quantifier"],
    "quantifiers.saving": ["load"],
    "sketches.on_dask": ["predict_dask"],
    "sketches.sketch": ["BagSketch"],
    "training.options": ["Training"],
    "uncertainty.intervals": ["Intervals"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in REGISTRY:
        return REGISTRY[name].load()
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"histnetq.{_MODULE_OF[name]}"), name)
    if name in __all__:
        return importlib.import_module("histnetq.evaluation.plots" if name == "plots" else f"histnetq.{name}")
    hint = "; what QuaPy calls UPP, proportions uniform on the simplex, is APP here" if name == "UPP" else ""
    raise AttributeError(f"module 'histnetq' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
