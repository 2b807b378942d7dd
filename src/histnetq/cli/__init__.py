"""The command line: arguments only."""

from histnetq.cli import answers, audits, data, models, monitor
from histnetq.cli.group import main

__all__ = ["answers", "audits", "data", "main", "models", "monitor"]
