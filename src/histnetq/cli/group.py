"""The command ``histnetq``, and the options that its commands share."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any

import click

from histnetq.data.files import is_first_process

__all__ = ["command_line", "main", "options", "refuse_unknown", "say"]


class _Commands(click.Group):
    """Commands whose errors are one sentence and exit code 2; they know the line that was typed.

    Of several processes that torchrun started, one speaks.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = shlex.join(["histnetq", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        spoken = contextlib.nullcontext() if is_first_process() else contextlib.redirect_stdout(io.StringIO())
        try:
            with spoken:
                return super().invoke(ctx)
        except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
            raise _UserError(str(error)) from None


class _UserError(click.ClickException):
    exit_code = 2


@click.group(cls=_Commands)
@click.version_option(package_name="histnetq")
def main() -> None:
    """Estimate how common each class is in a bag of examples."""


_OPTIONS = {
    "bag": [click.option("--bag", multiple=True, required=True, help="Column that says which bag a row belongs to.")],
    "weight": [click.option("--weight", help="Column of the rows' weights.")],
    "dask": [
        click.option(
            "--dask", help="Scheduler whose workers read the rows, such as tcp://host:8786; or local.  [default: none]"
        )
    ],
    "features": [
        click.option("--features", help="Columns to learn from, with commas between.  [default: all of numbers]")
    ],
    "scratch": [
        click.option("--scratch", type=click.Path(), help="Directory for the rows of tables larger than memory.")
    ],
    "force": [click.option("--force", is_flag=True, help="Replace what exists.")],
    "json": [click.option("--json", "as_json", is_flag=True, help="Print for machines.")],
    "seed": [click.option("--seed", default=0, show_default=True, help="Of all that is drawn at random.")],
    "known": [
        click.option("--prevalences", type=click.Path(), help="Table of the classes' proportions in each bag."),
        click.option("--counts", is_flag=True, help="That table holds counts."),
        click.option("--label", help="Column of the rows' classes, instead of a table of proportions."),
    ],
    "calibration": [
        click.option(
            "--calibration", type=click.FloatRange(0, 0.9), default=0.25, show_default=True,
            help="Part of the bags that is kept apart for intervals.",
        )
    ],
    "model": [
        click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Directory of the model.")
    ],
    "table": [
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), help="CSV or Parquet file.  [default: the terminal]"
        )
    ],
}  # fmt: skip


def options(*names: str) -> Any:
    """Add the options of these names to a command, in this order."""

    def add(command: Any) -> Any:
        for option in reversed([option for name in names for option in _OPTIONS[name]]):
            command = option(command)
        return command

    return add


def refuse_unknown(prevalences: str | None, label: str | None) -> None:
    """What is known of the bags must be said once."""
    if (prevalences is None) == (label is None):
        raise click.UsageError("expected either --prevalences or --label, which say what is known of the bags.")


def say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    """Print for machines or for people."""
    click.echo(json.dumps(facts) if as_json else "\n".join(lines))


def command_line() -> str:
    """The line that was typed."""
    return str(click.get_current_context().find_root().obj)
