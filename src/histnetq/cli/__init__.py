"""The command line: arguments only."""

from histnetq.cli import answers, audits, data, lequa, models, monitor, serve
from histnetq.cli.group import main

__all__ = ["answers", "audits", "data", "lequa", "main", "models", "monitor", "serve"]
