"""Shares of classes from the verdicts of an imperfect judge and some human labels; arrays in, arrays out."""
