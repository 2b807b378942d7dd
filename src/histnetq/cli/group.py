"""The command ``histnetq``, the exit codes of its commands, and functions that print and write results."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.options import OutputFile, combine_weights, refuse_mixed
from histnetq.cli.terminal import Interrupted, UserError, echo, interruptible, speaking, visible_errors, visible_line
from histnetq.cli.wording import in_options
from histnetq.errors import InputError, Option, Way
from histnetq.tables.files import refuse_existing, write_csv
from histnetq.tables.json_files import as_records
from histnetq.tables.places import Address
from histnetq.training.options import TrainingInterrupted

if TYPE_CHECKING:
    import pandas as pd


_DECIMALS = 6  # of estimates in the terminal


class _Command(click.Command):
    """A command whose errors are one sentence with exit code 2, and that leaves no partial output.

    Existing output is refused before any long work. An interruption ends the command with exit code 130.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            raise click.UsageError(_describe_missing(error.param), ctx) from None
        except click.NoSuchOption as error:
            near = f"perhaps you mean {error.possibilities[0]}" if error.possibilities else "see --help"
            raise click.UsageError(f"{error.option_name}: is not an option of this command; {near}.", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        given = ctx.params
        with speaking(progress=not given.get("as_json", False)), interruptible():
            try:
                refuse_mixed(ctx)
                combine_weights(ctx)
                for param in self.params:
                    if isinstance(param.type, OutputFile) and given[str(param.name)] is not None:
                        param.type.check(given[str(param.name)], str(param.name))
                refuse_existing(given.get("output"), given.get("force", True))
                if given.get("keep_interrupted"):
                    refuse_existing(interrupted_place(given["output"]), given["force"])
                return super().invoke(ctx)
            except (KeyboardInterrupt, TrainingInterrupted):
                raise Interrupted(_describe_kept(given)) from None
            except BrokenPipeError:  # click exits quietly if the reader of a pipe has gone
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
    """A group of commands that remembers the typed command line, which models and reports record."""

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
    """Estimate the proportion of each class in bags; a bag is a set of rows, such as one sample."""


def _describe_missing(param: click.Parameter | None) -> str:
    """Return a sentence about a required option or argument that was not typed, with its help."""
    if not isinstance(param, click.Option):
        name = "argument" if param is None else str(param.name).upper()
        return f"{name}: expected a value, got none; add it after the name of the command."
    typed, about = max(param.opts, key=len), (param.help or "").partition(".")[0].partition(";")[0]
    return f"{typed}: expected a value, got none; add {typed} with the {about[:1].lower()}{about[1:]}."


def interrupted_place(output: Path | Address) -> Path | Address:
    """Return the directory, next to the output, for the model of an interrupted command."""
    return output.with_name(f"{output.name}-interrupted")


def _describe_kept(given: dict[str, Any]) -> str:
    """Return a sentence about the results that an interrupted command keeps."""
    if given.get("storage") is not None:
        return "Interrupted: no model was kept; the storage has the finished trials, and the same command continues."
    if given.get("keep_interrupted") is False:
        return "Interrupted: nothing was kept; --keep-interrupted keeps the model learned so far."
    return "Interrupted: nothing was kept."


def say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    """Print facts for machines, or lines for people."""
    echo(json.dumps(facts) if as_json else "\n".join(map(visible_line, lines)))


def print_table(table: pd.DataFrame, as_json: bool) -> None:
    """Print a table as JSON, or as CSV with few decimals."""
    if as_json:
        echo(as_records(table))
        return
    text = io.StringIO()
    write_csv(table.round(dict.fromkeys(table.select_dtypes("number"), _DECIMALS)), text)
    echo(text.getvalue().rstrip("\n"))


def command_line() -> str:
    """Return the command line as it was typed."""
    return str(click.get_current_context().find_root().obj)
