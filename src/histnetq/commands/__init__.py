"""What the command line does with tables and models; it says nothing and asks nothing itself."""

from histnetq.commands.estimating import compare_models, estimate, report, score, sketch
from histnetq.commands.fitting import METHODS, Fitted, compare_methods, fit_best, fit_model, tune_model
from histnetq.commands.output import write_table
from histnetq.files import refuse_existing

__all__ = [
    "METHODS", "Fitted", "compare_methods", "compare_models", "estimate", "fit_best", "fit_model", "refuse_existing",
    "report", "score", "sketch", "tune_model", "write_table",
]  # fmt: skip
