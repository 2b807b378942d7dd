"""The command line: arguments only."""

from histnetq.cli import answers, data, models, monitor
from histnetq.cli.group import main

__all__ = ["answers", "data", "main", "models", "monitor"]
