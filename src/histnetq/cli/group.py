"""The command ``histnetq``, and what its commands share: options, refusals, and how they tell and write results."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.data.files import is_first_process, refuse_existing, whole_file

if TYPE_CHECKING:
    import pandas as pd

PATH = click.Path(path_type=Path)
KNOWN = ("prevalences", "counts", "label")
_SPOKEN = {  # what Python calls by keywords, and how the command line does
    "missing='drop'": "--missing drop",
    "missing='mean'": "--missing mean",
    "counts=True": "--counts",
    "label= or prevalences=": "--label or --prevalences",
    "overwrite=True": "--force",
}


class _Command(click.Command):
    """A command that refuses to replace its output before any work that takes long."""

    def invoke(self, ctx: click.Context) -> Any:
        refuse_existing(ctx.params.get("output"), ctx.params.get("force", True))
        return super().invoke(ctx)


class _Commands(click.Group):
    """Commands whose errors are one sentence and exit code 2; they know the line that was typed.

    Of several processes that torchrun started, only the first one prints.
    """

    command_class = _Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = shlex.join(["histnetq", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        spoken = contextlib.nullcontext() if is_first_process() else contextlib.redirect_stdout(io.StringIO())
        try:
            with spoken, warnings.catch_warnings():
                warnings.showwarning = _tell_warning  # type: ignore[assignment]
                return super().invoke(ctx)
        except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
            raise _UserError(_in_words_of_the_command_line(str(error))) from None


def _in_words_of_the_command_line(message: str) -> str:
    for keyword, option in _SPOKEN.items():
        message = message.replace(keyword, option)
    return message


def _tell_warning(message: Warning | str, *_: Any) -> None:
    click.echo(f"Warning: {message}", err=True)


class _UserError(click.ClickException):
    exit_code = 2


@click.group(cls=_Commands)
@click.version_option(package_name="histnetq")
def main() -> None:
    """Estimate how common each class is in a bag of examples."""


def _listed(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    return list(value)


def _split(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else value.split(",")


_OPTIONS = {
    "MODEL": click.argument("model", type=PATH),
    "NEW": click.argument("new", nargs=-1, required=True, callback=_listed),
    "TABLE": click.argument("table", nargs=-1, required=True, callback=_listed),
    "TRAIN": click.argument("train", nargs=-1, required=True, callback=_listed),
    "bag": click.option("--bag", multiple=True, required=True, callback=_listed,
                        help="Column that says which bag a row belongs to. Give it again for bags of several columns."),
    "bags": click.option("--bag", multiple=True, callback=_listed,
                         help="Column that says which bag a row belongs to; of sketches, the columns to keep."),
    "missing": click.option("--missing", type=click.Choice(["refuse", "drop", "mean"]), default="refuse",
                            show_default=True, help="Refuse tables with features that have no value, leave out such "
                            "rows, or put in the mean of training."),
    "weight": click.option("--weight", help="Column of the rows' weights."),
    "dask": click.option("--dask", help="Scheduler whose workers read the rows, such as tcp://host:8786, or local "
                         "for workers on this machine.  [default: none]"),
    "features": click.option("--features", callback=_split,
                             help="Columns to learn from, separated by commas.  [default: all columns of numbers "
                             "but keys, counters and constant ones]"),
    "methods": click.option("--methods", callback=_split, help="Methods to fit to three quarters of the bags, "
                            "separated by commas.  [default: a few]"),
    "method": click.option("--method", default="histnetq", show_default=True,
                           help="Any quantifier, such as histnetq, emq or pacc; for fit also auto, the best of a few."),
    "scratch": click.option("--scratch", type=click.Path(), help="Directory for rows of tables larger than memory."),
    "force": click.option("--force", is_flag=True, help="Replace what exists."),
    "json": click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines."),
    "seed": click.option("--seed", default=0, show_default=True, help="Seed of everything that is drawn at random."),
    "prevalences": click.option("--prevalences", type=click.Path(), help="Table of each bag's class proportions."),
    "counts": click.option("--counts", is_flag=True, help="The table of proportions holds counts."),
    "label": click.option("--label", help="Column of the rows' classes, in place of a table of proportions."),
    "calibration": click.option("--calibration", type=click.FloatRange(0, 0.9), default=0.25, show_default=True,
                                help="Part of the bags that is kept apart to calibrate intervals."),
    "model": click.option("-o", "--output", type=PATH, required=True, help="Directory in which the model is kept."),
    "table": click.option("-o", "--output", type=PATH,
                          help="CSV or Parquet file of the results.  [default: the terminal]"),
}  # fmt: skip


def options(*names: str) -> Any:
    """Add the arguments and options of these names to a command, in this order."""

    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def refuse_unknown(prevalences: str | None, label: str | None) -> None:
    """Refuse bags of which nothing is known, or which are described twice."""
    if (prevalences is None) == (label is None):
        raise click.UsageError("expected either --prevalences or --label, which say what is known of the bags.")


def say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    """Print facts for machines, or lines for people."""
    click.echo(json.dumps(facts) if as_json else "\n".join(lines))


def write_table(table: pd.DataFrame, path: Path, force: bool, index: bool = False) -> None:
    """Write a CSV or Parquet file, as a whole or not at all, and over none that appeared meanwhile."""
    refuse_existing(path, force)
    with whole_file(path) as partial:
        if path.suffix in (".parquet", ".pq"):
            table.to_parquet(partial, index=index)
        else:
            table.to_csv(partial, index=index, lineterminator="\n")


def command_line() -> str:
    """Give the line that was typed."""
    return str(click.get_current_context().find_root().obj)
