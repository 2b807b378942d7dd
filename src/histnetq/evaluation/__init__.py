"""Evaluation: errors, comparisons, plots and hyperparameter search."""
