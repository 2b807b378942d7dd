"""Pretraining of encoders and heads with labels that are known or recovered from proportions."""
