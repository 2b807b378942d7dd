"""Classical quantifiers: a classifier's posteriors, once per row, then arithmetic on all bags at once."""

from histnetq.classical.counting import ACC, CC, PACC, PCC
from histnetq.classical.likelihood import EMQ

__all__ = ["ACC", "CC", "EMQ", "PACC", "PCC"]
