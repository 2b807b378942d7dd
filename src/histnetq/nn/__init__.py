"""Layers for bags: tensors in, tensors out.

A new pooling needs its class, its import below, and its line in `POOLINGS` or `BINS`. Quantifiers and the tests that
every pooling passes (``tests/laws/test_poolings.py``) read these two tables.
"""

from __future__ import annotations

from collections.abc import Callable

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("histnetq.nn needs torch; pip install 'histnetq[deep]'.", name=error.name) from None

from histnetq.nn.attention import ISAB, MAB, PMA, SAB, SetAttention
from histnetq.nn.encoders import CNN, MLP, Standardize, StandardizeScores
from histnetq.nn.gaussians import Gaussians
from histnetq.nn.histograms import Cumulative, HardHistogram, Histogram, RBFHistogram, SigmoidHistogram, SoftHistogram
from histnetq.nn.likelihood import Likelihood, ShrunkLikelihood
from histnetq.nn.network import BagNetwork
from histnetq.nn.pooling import Max, Mean, Median, MergeablePooling, Pooling, PoolingState
from histnetq.nn.sequence import SortedLSTM
from histnetq.nn.unmixing import LogOdds, Unmixing

__all__ = [
    "BINS", "CNN", "ISAB", "MAB", "MLP", "PMA", "POOLINGS", "SAB", "BagNetwork", "Cumulative", "Gaussians",
    "HardHistogram", "Likelihood", "LogOdds", "Max", "Mean", "Median", "MergeablePooling", "Pooling", "PoolingState",
    "RBFHistogram", "SetAttention", "ShrunkLikelihood", "SigmoidHistogram", "SoftHistogram", "SortedLSTM",
    "Standardize", "StandardizeScores", "Unmixing",
]  # fmt: skip

# Values of `histnetq.DeepSets(pooling=...)`; each takes n_features.
POOLINGS: dict[str, Callable[[int], Pooling]] = {"mean": Mean, "median": Median, "max": Max}

# Values of `histnetq.HistNetQ(bins=...)`; each takes n_features and n_bins.
BINS: dict[str, type[Histogram]] = {
    "hard": HardHistogram,
    "soft": SoftHistogram,
    "rbf": RBFHistogram,
    "sigmoid": SigmoidHistogram,
}
