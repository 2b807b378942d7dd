"""Speed and memory, as ratios within one run."""

__all__ = ["NAMES"]

NAMES = (
    "histograms", "likelihood", "memory", "steps", "prediction", "classical", "matching", "calibration", "loading",
    "tables", "pools", "streaming", "monitoring", "fitting", "busy", "learning", "service", "bayes",
)  # fmt: skip
