"""Error messages of the library in the terms of the command line: options and arguments as they are typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from histnetq.errors import Command, Option, StructuredError, joined

# Arguments in Python whose option has a different name, and arguments that are not options.
_ALIASES = {
    "weights": "weight", "y": "label", "labels": "label", "random_state": "seed", "predict_rows": "model",
    "overwrite": "force", "method": "methods", "proba": "judge", "frame": "new",
}  # fmt: skip
_NO_OPTIONS = {"path": "", "Mixer": "bags"}


def in_options(error: Exception, params: Sequence[click.Parameter]) -> str:
    """Return the message of an error with the names of these options and arguments of a command.

    Examples
    --------
    >>> in_options(ValueError("weights: expected finite numbers."), [click.Option(["--weight"])])
    '--weight: expected finite numbers.'
    """
    names = _typed_names(params)
    if isinstance(error, StructuredError):
        argument, sentence = error.render("command", lambda option: _typed(option, params, names), _command)
    else:
        argument, colon, sentence = str(error).partition(": ")
        if not colon:
            return str(error)
    parts = argument.split(", ")
    if all(part in names for part in parts):
        argument = ", ".join(names[part] for part in parts)
    return joined(argument, sentence)


def _typed_names(params: Sequence[click.Parameter]) -> dict[str, str]:
    """Return the option or argument of the command for each argument in Python."""
    names = {str(p.name): max(p.opts, key=len) if isinstance(p, click.Option) else str(p.name).upper() for p in params}
    names["source"] = next((str(p.name).upper() for p in params if p.nargs == -1), "source")
    others = {python: names[name] for python, name in _ALIASES.items() if name in names}
    return _NO_OPTIONS | others | names


def _typed(option: Option, params: Sequence[click.Parameter], names: dict[str, str]) -> str | None:
    """Return an option as it is typed, None if the command does not have it or does not accept its value."""
    typed = names.get(option.name, "")
    param = next((p for p in params if typed in p.opts), None)
    if param is None:
        return None
    if not option.has_value:
        return typed
    accepted = param.type.choices if isinstance(param.type, click.Choice) else [option.value]
    return f"{typed} {shlex.quote(str(option.value))}" if option.value in accepted else None


def _command(command: Command) -> str:
    options = [f"--{option.name} {shlex.quote(str(option.value))}" for option in command.options]
    return " ".join(["histnetq", command.name, *map(shlex.quote, command.arguments), *options])
