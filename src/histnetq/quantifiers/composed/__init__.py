"""Quantifiers that contain quantifiers: ensembles and corrections."""
