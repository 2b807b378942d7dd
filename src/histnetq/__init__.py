"""Quantification: estimating how common each class is in a bag of examples.

This module has the public names. Each is imported from its package on first use, so that everything except the networks
works without importing torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING, Any

from histnetq.registry import REGISTRY

if TYPE_CHECKING:
    from histnetq import datasets, interop, metrics, mlflow, nn, simplex
    from histnetq.bags.bags import Bags
    from histnetq.bags.protocols import APP, NPP, Combined, CovariateShift, Dirichlet, Mixer
    from histnetq.evaluation import plots
    from histnetq.evaluation.comparison import Comparison
    from histnetq.evaluation.errors import compare, evaluate
    from histnetq.evaluation.tuning import Tuned, tune
    from histnetq.metrics import CostSensitiveAE
    from histnetq.quantifiers.base import Quantifier
    from histnetq.quantifiers.classical.baseline import MLPE
    from histnetq.quantifiers.classical.counting import ACC, CC, PACC, PCC
    from histnetq.quantifiers.classical.emq import EMQ
    from histnetq.quantifiers.classical.energy import ED, EDx
    from histnetq.quantifiers.classical.friedman import Friedman
    from histnetq.quantifiers.classical.hdx import HDx
    from histnetq.quantifiers.classical.kdey import KDEy
    from histnetq.quantifiers.classical.label_shift import BBSE, RLLS
    from histnetq.quantifiers.classical.linear import LinearQ
    from histnetq.quantifiers.classical.matching import DyS, HDy
    from histnetq.quantifiers.classical.readme import ReadMe
    from histnetq.quantifiers.classical.thresholds import MS
    from histnetq.quantifiers.classical.transitions import Transitions
    from histnetq.quantifiers.composed.corrected import Corrected
    from histnetq.quantifiers.composed.ensemble import Ensemble
    from histnetq.quantifiers.loading import load
    from histnetq.quantifiers.networks.emnetq import EMNetQ
    from histnetq.quantifiers.networks.gmnet import GMNet
    from histnetq.quantifiers.networks.histnetq import HistNetQ
    from histnetq.quantifiers.networks.quanet import QuaNet
    from histnetq.quantifiers.networks.set_networks import DeepSets, SetTransformer
    from histnetq.sketches.on_dask import predict_dask
    from histnetq.sketches.sketch import BagSketch
    from histnetq.tables.images import read_images
    from histnetq.tables.long_tables import read_bags
    from histnetq.training.options import Training
    from histnetq.uncertainty.intervals import Intervals
    from histnetq.uncertainty.rogan_gladen import rogan_gladen
    from histnetq.uncertainty.row_samples import RowSample
    from histnetq.workflows.auditing import estimate_audited, sample_table
    from histnetq.workflows.bag_audits import audit, sample_rows
    from histnetq.workflows.bag_choice import choose_bags, sample_bags
    from histnetq.workflows.estimating import Estimates, estimate
    from histnetq.workflows.fitting import fit_best
    from histnetq.workflows.judge_files import judge_table, sample_judged
    from histnetq.workflows.judging import Judgement, judge
    from histnetq.workflows.monitoring.monitor import Monitored, monitor
    from histnetq.workflows.on_spark import predict_spark
    from histnetq.workflows.transitions import transition_table

__version__ = "0.1.0"

# OpenMP reads these variables when torch loads it, so they are set here. By default the threads of GNU OpenMP spin for
# milliseconds after each operation, and take the cores from threads that have work if another process runs. Training
# took 7.9 s while another process ran, and 2.5 s alone. With threads that sleep almost at once, it took 3.7 s and 2.8 s
# alone; with this spin count, 4.9 s and 2.5 s.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ):
    os.environ.update(OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="5000")

__all__ = [
    *REGISTRY, "APP", "BagSketch", "Bags", "Combined", "Comparison", "CostSensitiveAE", "CovariateShift", "Dirichlet",
    "Estimates", "Intervals", "Judgement", "Mixer", "Monitored", "NPP", "Quantifier", "RowSample", "Training",
    "Transitions", "Tuned", "audit", "choose_bags", "compare", "datasets", "estimate", "estimate_audited", "evaluate",
    "fit_best", "interop", "judge", "judge_table", "load", "metrics", "mlflow", "monitor", "nn", "plots",
    "predict_dask", "predict_spark", "read_bags", "read_images", "rogan_gladen", "sample_bags", "sample_judged",
    "sample_rows", "sample_table", "simplex", "transition_table", "tune",
]  # fmt: skip

_NETWORKS = {"nn", *(name for name, entry in REGISTRY.items() if entry.network)}
if importlib.util.find_spec("torch") is None:  # keeps a star import working; other uses raise an error about torch
    __all__ = [name for name in __all__ if name not in _NETWORKS]

_HOME = {
    "bags.bags": ["Bags"],
    "bags.protocols": ["APP", "NPP", "Combined", "CovariateShift", "Dirichlet", "Mixer"],
    "tables.images": ["read_images"],
    "tables.long_tables": ["read_bags"],
    "evaluation.comparison": ["Comparison"],
    "evaluation.errors": ["compare", "evaluate"],
    "evaluation.tuning": ["Tuned", "tune"],
    "metrics": ["CostSensitiveAE"],
    "workflows.auditing": ["estimate_audited", "sample_table"],
    "workflows.estimating": ["Estimates", "estimate"],
    "workflows.bag_audits": ["audit", "sample_rows"],
    "workflows.bag_choice": ["choose_bags", "sample_bags"],
    "workflows.fitting": ["fit_best"],
    "workflows.judge_files": ["judge_table", "sample_judged"],
    "workflows.judging": ["Judgement", "judge"],
    "workflows.monitoring.monitor": ["Monitored", "monitor"],
    "workflows.transitions": ["transition_table"],
    "quantifiers.base": ["Quantifier"],
    "quantifiers.classical.transitions": ["Transitions"],
    "quantifiers.loading": ["load"],
    "sketches.on_dask": ["predict_dask"],
    "workflows.on_spark": ["predict_spark"],
    "sketches.sketch": ["BagSketch"],
    "training.options": ["Training"],
    "uncertainty.intervals": ["Intervals"],
    "uncertainty.rogan_gladen": ["rogan_gladen"],
    "uncertainty.row_samples": ["RowSample"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_MODULES = ("datasets", "interop", "metrics", "mlflow", "nn", "plots", "simplex")


def __getattr__(name: str) -> Any:
    if name in REGISTRY:
        return REGISTRY[name].load()
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"histnetq.{_MODULE_OF[name]}"), name)
    if name in _MODULES:
        return importlib.import_module("histnetq.evaluation.plots" if name == "plots" else f"histnetq.{name}")
    hint = "; what QuaPy calls UPP, proportions uniform on the simplex, is APP here" if name == "UPP" else ""
    raise AttributeError(f"module 'histnetq' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
