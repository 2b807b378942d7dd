"""Saving and loading of model directories; loading never runs code from a file."""
