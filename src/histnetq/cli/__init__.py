"""The command line: arguments and presentation only. A command is in the module of its name."""

import importlib

from histnetq.cli.group import main

_COMMANDS = (
    "fit tune compare predict sketch sql sample transitions evaluate report info monitor judge serve demo data "
    "lequa rogan_gladen"
)
for _name in _COMMANDS.split():
    importlib.import_module(f"histnetq.cli.{_name}")

__all__ = ["main"]
