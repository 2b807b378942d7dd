"""The command ``histnetq``, and what its commands share: options, refusals, and how they tell and write results."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from histnetq.cli.terminal import Interrupted, UserError, echo, interruptible, speaking, visible_errors, visible_line
from histnetq.cli.wording import in_options
from histnetq.tables.files import fill_table, refuse_existing, whole_file, write_csv
from histnetq.training.options import TrainingInterrupted

if TYPE_CHECKING:
    import pandas as pd

PATH = click.Path(path_type=Path)
KNOWN = ("prevalences", "counts", "label")
IMAGES = ("images", "skip_unreadable", "image_cache")  # a stored model knows the size and colours of its images
LEARNED = (
    "labelled", *KNOWN, "features", "ignore", "proba", "prediction", "text", "weight", "missing", "scratch", *IMAGES,
    "image_size", "color",
)  # fmt: skip
OF_TABLES = (
    "features", "ignore", "proba", "prediction", "text", "weight", "missing", "scratch", "dask", "audited", "row_file",
)  # fmt: skip
OF_IMAGES = ("skip_unreadable", "cache_dir", "image_size", "color")


class _Command(click.Command):
    """A command whose errors are one sentence and exit code 2, and which leaves nothing half done.

    It refuses to replace its output before any work that takes long. An interruption ends it, with exit code 130.
    """

    def invoke(self, ctx: click.Context) -> Any:
        given = ctx.params
        with speaking(progress=not given.get("as_json", False)), interruptible():
            try:
                _refuse_mixed(ctx)
                refuse_existing(given.get("output"), given.get("force", True))
                if given.get("keep_interrupted"):
                    refuse_existing(interrupted_place(given["output"]), given["force"])
                return super().invoke(ctx)
            except (KeyboardInterrupt, TrainingInterrupted):
                raise Interrupted(_what_is_kept(given)) from None
            except BrokenPipeError:  # what is printed is not read to its end, which click knows to take quietly
                raise
            except (ValueError, TypeError, OSError, ArithmeticError, ImportError) as error:
                raise UserError(in_options(str(error), self.params)) from None
            except MemoryError as error:
                raise UserError(
                    f"memory: expected enough for the rows, got too little ({error}); use --scratch."
                ) from None


class _Group(click.Group):
    command_class = _Command


class _Commands(_Group):
    """Commands that know the line that was typed."""

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
    """Estimate how common each class is in a bag of examples."""


def _listed(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    return list(value)


def _of_bags(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """Refuse rows without a column that names their bags; the bag of an image is its folder."""
    if not value and not ctx.params.get("images"):
        raise click.MissingParameter(ctx=ctx, param=param)
    return list(value)


def _split(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else value.split(",")


def _named(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    """Names separated by commas, where those in quotation marks may hold commas; or, given again, one name each."""
    return next(csv.reader(value)) if len(value) == 1 else list(value) or None


_OPTIONS = {
    "MODEL": click.argument("model", type=PATH),
    "NEW": click.argument("new", nargs=-1, required=True, callback=_listed),
    "TABLE": click.argument("table", nargs=-1, required=True, callback=_listed),
    "TRAIN": click.argument("train", nargs=-1, required=True, callback=_listed),
    "bag": click.option("--bag", multiple=True, callback=_of_bags,
                        help="This column says which bag a row belongs to; give it again for bags of several columns. "
                        "Only images need none."),
    "bags": click.option("--bag", multiple=True, callback=_listed,
                         help="This column says which bag a row belongs to; for sketches, it is a column to keep.  "
                         "[default: none, all rows are one bag]"),
    "labelled": click.option("--bag", multiple=True, callback=_listed,
                             help="This column says which bag a row belongs to; give it again for bags of several "
                             "columns.  [default: none, labelled rows lie in no bags]"),
    "classifier": click.option("--classifier", type=click.Choice(["logistic", "forest", "boosting", "mlp", "bayes"]),
                               help="Methods from cc to quanet use this classifier.  [default: logistic; fit by auto "
                               "tries logistic and forest, tune tries all]"),
    "missing": click.option("--missing", type=click.Choice(["refuse", "drop", "mean"]), default="refuse",
                            show_default=True, help="A table with features that have no value is refused, such "
                            "rows are left out, or the mean of training is put in."),
    "images": click.option("--images", is_flag=True, is_eager=True,
                           help="The examples are images: a folder for each bag, with a folder for each class in it if "
                           "--label is given, or a table of EcoTaxa beside its images."),
    "image_cache": click.option("--image-cache", "cache_dir", type=PATH,
                                help="This directory keeps decoded images, so that each is decoded once.  "
                                "[default: histnetq/images in the user's cache directory]"),
    "image_size": click.option("--image-size", type=click.IntRange(4, 1024), default=32, show_default=True,
                               help="Images are brought to this height and width."),
    "color": click.option("--color", is_flag=True, help="Images keep their colours.  [default: they become grey]"),
    "skip_unreadable": click.option("--skip-unreadable", is_flag=True,
                                    help="Images that cannot be read are named and left out.  [default: refused]"),
    "weight": click.option("--weight", help="This column holds the weights of the rows."),
    "dask": click.option("--dask", help="The workers of this scheduler read the rows, such as "
                         "tcp://host:8786, or local for workers on this machine.  [default: none]"),
    "features": click.option("--features", multiple=True, callback=_named,
                             help="These columns are learned from, separated by commas; or one column each time, given "
                             "again, whose name may hold commas.  [default: all columns of numbers "
                             "but keys, counters and constant ones]"),
    "ignore": click.option("--ignore", multiple=True, callback=_named,
                           help="These columns are not learned from, written as those of --features are; which of the "
                           "others are is found out.  [default: none]"),
    "proba": click.option("--proba", help="These columns hold the scores of a model of your own, which was not trained "
                          "on these rows: the probability of each class, as cod=p_cod,eel=p_eel; or a pattern such as "
                          "'p_*', whose star is the class.  [default: none, features are learned from]"),
    "text": click.option("--text", help="This column holds texts, whose words are learned from; with --features, those "
                         "columns as well.  [default: none]"),
    "prediction": click.option("--prediction", help="This column holds the class that a model of your own predicts, "
                               "which was not trained on these rows.  [default: none]"),
    "methods": click.option("--methods", callback=_split, help="These methods are fitted to three quarters of the "
                            "bags, separated by commas.  [default: a few]"),
    "method": click.option("--method", default="histnetq", show_default=True,
                           help="This method is tuned, such as histnetq, emq or pacc."),
    "scratch": click.option("--scratch", type=click.Path(),
                            help="This directory holds rows of tables larger than memory."),
    "force": click.option("--force", is_flag=True, help="The output replaces what exists."),
    "keep_interrupted": click.option("--keep-interrupted", is_flag=True,
                                     help="An interruption keeps what was learned so far, in a directory beside the "
                                     "output whose name ends in -interrupted."),
    "json": click.option("--json", "as_json", is_flag=True, help="The command prints one line of JSON for machines."),
    "seed": click.option("--seed", default=0, type=click.IntRange(0), show_default=True,
                         help="This number is the seed of everything that is drawn at random."),
    "prevalences": click.option("--prevalences", type=click.Path(),
                                help="This table holds the class proportions of each bag."),
    "counts": click.option("--counts", is_flag=True, help="The table of proportions holds counts."),
    "label": click.option("--label",
                          help="This column holds the classes of the rows, in place of a table of proportions."),
    "calibration": click.option("--calibration", type=click.FloatRange(0, 0.9), default=0.25, show_default=True,
                                help="This part of the bags is kept apart to calibrate intervals, 0 for none; all bags "
                                "calibrate instead, by fits without some, if these are fewer than 100 and a fit is "
                                "quick."),
    "model": click.option("-o", "--output", type=PATH, required=True, help="The model is kept in this directory."),
    "table": click.option("-o", "--output", type=PATH,
                          help="The results go to this CSV or Parquet file.  [default: the terminal]"),
}  # fmt: skip


def options(*names: str) -> Any:
    """Add the arguments and options of these names to a command, in this order."""

    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def was_given(ctx: click.Context, option: click.Parameter) -> bool:
    """Tell whether an option was typed."""
    return ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE


def _refuse_mixed(ctx: click.Context) -> None:
    """Refuse options about tables beside --images, and options about images without it."""
    images = ctx.params.get("images")
    for option in (option for option in ctx.command.params if was_given(ctx, option)):
        typed = max(option.opts, key=len)
        if images and option.name in OF_TABLES:
            raise click.UsageError(f"expected no {typed} beside --images: it is about tables.")
        if not images and option.name in OF_IMAGES:
            raise click.UsageError(f"expected {typed} beside --images alone: it is about images.")
    if images and len(ctx.params["bag"]) > 1:
        raise click.UsageError("expected --bag once beside --images.")


def refuse_unknown(prevalences: str | None, label: str | None) -> None:
    """Refuse bags of which nothing is known, or which are described twice."""
    if (prevalences is None) == (label is None):
        raise click.UsageError("expected either --prevalences or --label, which say what is known of the bags.")


def interrupted_place(output: Path) -> Path:
    """Give the directory beside the output for what an interrupted command has learned."""
    return output.with_name(f"{output.name}-interrupted")


def _what_is_kept(given: dict[str, Any]) -> str:
    """Tell what is left of a command with these arguments after an interruption."""
    if given.get("storage") is not None:
        return "Interrupted: no model was kept; the storage has the finished trials, and the same command continues."
    if given.get("keep_interrupted") is False:
        return "Interrupted: nothing was kept; --keep-interrupted keeps what a network has learned so far."
    return "Interrupted: nothing was kept."


def say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    """Print facts for machines, or lines for people."""
    echo(json.dumps(facts) if as_json else "\n".join(map(visible_line, lines)))


def write_table(table: pd.DataFrame, path: Path, force: bool, index: bool = False) -> None:
    """Write a CSV or Parquet file, as a whole or not at all, and over none that appeared meanwhile."""
    refuse_existing(path, force)
    with whole_file(path) as partial:
        fill_table(table, partial, path.suffix, index)


def csv_text(table: pd.DataFrame) -> str:
    """Give a table as CSV for the terminal."""
    text = io.StringIO()
    write_csv(table, text)
    return text.getvalue()


def command_line() -> str:
    """Give the line that was typed."""
    return str(click.get_current_context().find_root().obj)
