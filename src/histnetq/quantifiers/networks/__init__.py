"""Quantifiers that are neural networks; they need torch."""
