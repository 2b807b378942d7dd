"""How common is each class in a bag of examples?

The public names; each is imported from its module on first use, so that what does not need torch starts without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from histnetq import datasets, interop, metrics, nn, plots, simplex
    from histnetq.bags import Bags
    from histnetq.base import Quantifier, load
    from histnetq.classical import ACC, CC, EMQ, MLPE, PACC, PCC, DyS, HDy, KDEy
    from histnetq.deep import DeepSets, HistNetQ, SetTransformer
    from histnetq.distributed import predict_dask
    from histnetq.emnetq import EMNetQ
    from histnetq.evaluation import compare, evaluate
    from histnetq.metrics import CostSensitiveAE
    from histnetq.options import Training
    from histnetq.protocols import APP, NPP, Combined, CovariateShift, Dirichlet, Mixer
    from histnetq.quanet import QuaNet
    from histnetq.sketches import BagSketch
    from histnetq.tables import read_bags
    from histnetq.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "ACC",
    "APP",
    "CC",
    "EMQ",
    "MLPE",
    "NPP",
    "PACC",
    "PCC",
    "BagSketch",
    "Bags",
    "Combined",
    "CostSensitiveAE",
    "CovariateShift",
    "DeepSets",
    "Dirichlet",
    "DyS",
    "EMNetQ",
    "HDy",
    "HistNetQ",
    "KDEy",
    "Mixer",
    "QuaNet",
    "Quantifier",
    "SetTransformer",
    "Training",
    "compare",
    "datasets",
    "evaluate",
    "interop",
    "load",
    "metrics",
    "nn",
    "plots",
    "predict_dask",
    "read_bags",
    "simplex",
    "tune",
]

_HOME = {
    "bags": ["Bags"],
    "classical": ["ACC", "CC", "EMQ", "MLPE", "PACC", "PCC", "DyS", "HDy", "KDEy"],
    "deep": ["DeepSets", "HistNetQ", "SetTransformer"],
    "emnetq": ["EMNetQ"],
    "quanet": ["QuaNet"],
    "evaluation": ["compare", "evaluate"],
    "tables": ["read_bags"],
    "tuning": ["tune"],
    "metrics": ["CostSensitiveAE"],
    "base": ["Quantifier", "load"],
    "protocols": ["APP", "NPP", "Combined", "CovariateShift", "Dirichlet", "Mixer"],
    "options": ["Training"],
    "sketches": ["BagSketch"],
    "distributed": ["predict_dask"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"histnetq.{_MODULE_OF[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"histnetq.{name}")
    raise AttributeError(f"module 'histnetq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
