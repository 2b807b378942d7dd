"""Classical quantifiers: a classifier's posteriors, once per row, then arithmetic on all bags at once."""

from histnetq.classical.baseline import MLPE
from histnetq.classical.counting import ACC, CC, PACC, PCC
from histnetq.classical.density import KDEy
from histnetq.classical.likelihood import EMQ
from histnetq.classical.matching import DyS, HDy

__all__ = ["ACC", "CC", "EMQ", "MLPE", "PACC", "PCC", "DyS", "HDy", "KDEy"]
