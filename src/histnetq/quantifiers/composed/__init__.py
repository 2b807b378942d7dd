"""Quantifiers that are made of other quantifiers."""
