"""Reference pages of the commands, generated from their ``--help``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from histnetq.cli import main

_EXAMPLES = re.compile("(?:\x08\\s*)?Examples?:")


def pages() -> dict[str, str]:
    """Return the Markdown pages by file name."""
    found = dict(_commands(main, "histnetq"))
    listed = [
        f"| [`{name}`]({_file(name)}) | {_escaped(command.get_short_help_str(200))} |"
        for name, command in found.items()
    ]
    files = [_file(name) for name in found]
    lines = [
        "# Commands", "",
        "If a command fails, it prints one sentence, exits with code 2 and writes nothing. "
        "`--json` prints one line of JSON for programs.", "",
        "| command | purpose |", "|---|---|", *listed, "",
        ":::{toctree}", ":hidden:", "", *files, ":::", "",
    ]  # fmt: skip
    return {"index.md": "\n".join(lines)} | {_file(name): _page(name, command) for name, command in found.items()}


def _commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands, including the commands of subgroups, with their full names."""
    for short, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {short}")
        else:
            yield f"{name} {short}", command


def _file(name: str) -> str:
    return name.removeprefix("histnetq ").replace(" ", "-") + ".md"


def _page(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    paragraphs = [_paragraph(text) for text in inspect.cleandoc(command.help or "").split("\n\n")]
    options = [
        param.get_help_record(context) for param in command.get_params(context) if isinstance(param, click.Option)
    ]
    listed = [f"`{names}`\n: {_escaped(about)}\n" for names, about in options]
    usage = command.get_usage(context).removeprefix("Usage: ")
    return "\n\n".join([f"# {name}", f"```text\n{usage}\n```", *paragraphs, "## Options", *listed])


def _paragraph(text: str) -> str:
    if found := _EXAMPLES.match(text):
        lines = [line.strip() for line in text[found.end() :].splitlines()]
        return "\n".join(["```sh", *lines, "```"])
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Escape the characters that have a meaning in Markdown."""
    return re.sub(r"([\\*_<>\[\]$|^])", r"\\\1", text)
