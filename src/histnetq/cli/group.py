"""The command ``histnetq``: how its commands end, and how they print and write results."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.options import refuse_mixed
from histnetq.cli.terminal import Interrupted, UserError, echo, interruptible, speaking, visible_errors, visible_line
from histnetq.cli.wording import in_options
from histnetq.errors import InputError, Option, Way
from histnetq.tables.files import fill_table, refuse_existing, whole_file, write_csv
from histnetq.training.options import TrainingInterrupted

if TYPE_CHECKING:
    import pandas as pd


class _Command(click.Command):
    """A command whose errors are one sentence with exit code 2, and that leaves no partial output.

    Existing output is refused before any long work. An interruption ends the command with exit code 130.
    """

    def invoke(self, ctx: click.Context) -> Any:
        given = ctx.params
        with speaking(progress=not given.get("as_json", False)), interruptible():
            try:
                refuse_mixed(ctx)
                refuse_existing(given.get("output"), given.get("force", True))
                if given.get("keep_interrupted"):
                    refuse_existing(interrupted_place(given["output"]), given["force"])
                return super().invoke(ctx)
            except (KeyboardInterrupt, TrainingInterrupted):
                raise Interrupted(_what_is_kept(given)) from None
            except BrokenPipeError:  # click ends quietly if the reader of a pipe has gone
                raise
            except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
                raise UserError(in_options(error, self.params)) from None
            except MemoryError as error:
                remedy = Way("use ", Option("scratch"))
                problem = InputError("memory", "enough for the rows", f"too little ({error})", remedy)
                raise UserError(in_options(problem, self.params)) from None


class _Group(click.Group):
    command_class = _Command


class _Commands(_Group):
    """A group that keeps the command line as it was typed."""

    group_class = _Group

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = shlex.join(["histnetq", *args])
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with visible_errors():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with visible_errors():
            return super().invoke(ctx)


@click.group(cls=_Commands)
@click.version_option(package_name="histnetq")
def main() -> None:
    """Estimate how common each class is in bags of examples."""


def interrupted_place(output: Path) -> Path:
    """Return the directory, next to the output, for the model of an interrupted command."""
    return output.with_name(f"{output.name}-interrupted")


def _what_is_kept(given: dict[str, Any]) -> str:
    """Return a sentence about the results that an interrupted command keeps."""
    if given.get("storage") is not None:
        return "Interrupted: no model was kept; the storage has the finished trials, and the same command continues."
    if given.get("keep_interrupted") is False:
        return "Interrupted: nothing was kept; --keep-interrupted keeps what a network has learned so far."
    return "Interrupted: nothing was kept."


def say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    """Print facts for machines, or lines for people."""
    echo(json.dumps(facts) if as_json else "\n".join(map(visible_line, lines)))


def write_table(table: pd.DataFrame, path: Path, force: bool, index: bool = False) -> None:
    """Write a table file completely or not at all, without replacing a file that appeared in the meantime."""
    refuse_existing(path, force)
    with whole_file(path) as partial:
        fill_table(table, partial, path.suffix, index)


def csv_text(table: pd.DataFrame) -> str:
    """Give a table as CSV for the terminal."""
    text = io.StringIO()
    write_csv(table, text)
    return text.getvalue()


def command_line() -> str:
    """Return the command line as it was typed."""
    return str(click.get_current_context().find_root().obj)
