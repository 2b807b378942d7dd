"""Layers for bags: tensors in, tensors out."""

from histnetq.nn.attention import ISAB, MAB, PMA, SAB, SetAttention
from histnetq.nn.encoders import CNN, MLP, Standardize
from histnetq.nn.histograms import Cumulative, HardHistogram, RBFHistogram, SigmoidHistogram, SoftHistogram
from histnetq.nn.likelihood import Likelihood, ShrunkLikelihood
from histnetq.nn.network import BagNetwork
from histnetq.nn.pooling import Max, Mean, Median, MergeablePooling, Pooling, State
from histnetq.nn.sequence import SortedLSTM

__all__ = [
    "CNN",
    "ISAB",
    "MAB",
    "MLP",
    "PMA",
    "SAB",
    "BagNetwork",
    "Cumulative",
    "HardHistogram",
    "Likelihood",
    "Max",
    "Mean",
    "Median",
    "MergeablePooling",
    "Pooling",
    "RBFHistogram",
    "SetAttention",
    "ShrunkLikelihood",
    "SigmoidHistogram",
    "SoftHistogram",
    "SortedLSTM",
    "Standardize",
    "State",
]

BINS = {"hard": HardHistogram, "soft": SoftHistogram, "rbf": RBFHistogram, "sigmoid": SigmoidHistogram}
POOLINGS = {"mean": Mean, "median": Median, "max": Max}
