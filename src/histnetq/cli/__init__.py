"""The command line: arguments only."""

from histnetq.cli import answers, data, models
from histnetq.cli.group import main

__all__ = ["main"]

for _command in (*models.COMMANDS, *answers.COMMANDS, data.data):
    main.add_command(_command)
