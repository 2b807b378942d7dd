"""Options and arguments that several commands share, and checks of their combinations."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from histnetq.cli.terminal import UserError
from histnetq.cli.wording import in_options
from histnetq.errors import InputError
from histnetq.registry import CLASSIFIERS, INTERVALS, MISSING, RESCALINGS, WRITTEN_ENDINGS
from histnetq.tables.files import format_to_write, require_page, require_page_or_table, require_parquet
from histnetq.tables.places import as_place, local_path


class LocalPath(click.Path):
    """A path on this machine; an address is an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _as_typed(local_path, value, param)


class AnyPlace(click.Path):
    """A path on this machine or an address in object storage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return _as_typed(as_place, value, param)


class OutputFile(AnyPlace):
    """A file whose name says its format; `check` raises an error for a wrong ending, before any work."""

    def __init__(self, check: Callable[[Any, str], Any]) -> None:
        super().__init__()
        self.check = check


def _as_typed(convert: Callable[[Any, str], Any], value: Any, param: click.Parameter | None) -> Any:
    """Convert a typed value; an error names the option or argument as it is typed."""
    try:
        return convert(value, "" if param is None else str(param.name))
    except InputError as error:
        raise UserError(in_options(error, [] if param is None else [param])) from None


PATH, PLACE = LocalPath(), AnyPlace()


TABLE_FILE = OutputFile(format_to_write)
PAGE_FILE = OutputFile(require_page)
JUDGED_FILE = OutputFile(require_page_or_table)
SKETCH_FILE = OutputFile(require_parquet)
KNOWN = ("prevalences", "counts", "label")
IMAGES = ("images", "skip_unreadable", "image_cache")  # a stored model knows the size and colours of its images
KNOWN_IMAGES = ("known_images", *IMAGES[1:])  # images whose classes or proportions are known
COLUMNS = ("features", "ignore", "proba", "prediction", "text")
WEIGHTS = ("weight", "count_column")
JUDGED = ("human", "labels", "by")
TRAINING = ("labelled", *KNOWN, *COLUMNS, *WEIGHTS, "missing", "scratch", *KNOWN_IMAGES, "image_size", "color")
_OF_TABLES = (*COLUMNS, *WEIGHTS, "weight_kind", "missing", "scratch", "dask", "audited", "rows")
_OF_IMAGES = ("skip_unreadable", "cache_dir", "image_size", "color")


def option(*names: str, **settings: Any) -> Any:
    """Return an option whose help shows its default."""
    return click.option(*names, show_default=True, **settings)


def _listed(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    return list(value)


def _sizes(ctx: click.Context, param: click.Parameter, value: tuple[int, ...]) -> list[int] | None:
    return list(value) or None


def _of_bags(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """Require a column that names the bags of rows; the bag of an image is its folder."""
    if not value and not ctx.params.get("images"):
        raise click.MissingParameter(ctx=ctx, param=param)
    return list(value)


def split(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else value.split(",")


def _one_or_more(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> Any:
    return value[0] if len(value) == 1 else list(value) or None


def _named(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    """Split names at commas outside quotation marks; a repeated option has one name each time."""
    return next(csv.reader(value)) if len(value) == 1 else list(value) or None


def _classifier(about: str) -> Any:
    return option("--classifier", type=click.Choice(list(CLASSIFIERS)), help=about)


def _judge(required: bool) -> Any:
    about = (
        "Column of the verdicts; repeat it for several judges. For scores, the column of the score of the second "
        "class, or the columns of all classes, such as 'p_*' or bad=p_bad,good=p_good."
    )
    return option("--judge", multiple=True, required=required, callback=_one_or_more, help=about)


def _images(about: str) -> Any:
    return option("--images", is_flag=True, is_eager=True, help=about)


_BAG = "Column that names the bag of each row; repeat it for several columns."
_CLASSIFIER = "Classifier of classifier-based methods."
_OPTIONS = {
    "MODEL": click.argument("model", type=PLACE),
    "NEW": click.argument("new", nargs=-1, required=True, callback=_listed),
    "TABLE": click.argument("table", nargs=-1, required=True, callback=_listed),
    "TRAIN": click.argument("train", nargs=-1, required=True, callback=_listed),
    "bag": option(
        "--bag", multiple=True, callback=_of_bags, help=f"{_BAG} Tables need it; images have one folder per bag."
    ),
    "bags": option("--bag", multiple=True, callback=_listed, help=f"{_BAG}  [default: all rows are one bag]"),
    "labelled": option(
        "--bag", multiple=True, callback=_listed, help=f"{_BAG}  [default: the table has no bag column]"
    ),
    "classifier": _classifier(
        f"{_CLASSIFIER}  [default: logistic; with --method auto or search, logistic, forest and boosting are compared]"
    ),
    "compared_classifier": _classifier(
        f"{_CLASSIFIER}  [default: logistic; without --methods, logistic, forest and boosting are compared]"
    ),
    "tuned_classifier": _classifier(
        "Classifier whose parameters are searched, for classifier-based methods.  [default: all classifiers are tried]"
    ),
    "rescaling": option(
        "--rescaling",
        type=click.Choice(["auto", "none", *RESCALINGS]),
        default="auto",
        help="How emq rescales the class probabilities of the classifier: only if their means contradict the labels, "
        "then by bcts (auto); by one factor (ts), by one factor and a bias per class (bcts), the same with smaller "
        "biases (shrunk), or with a factor near 1 and biases near 0 (ridge), by a factor and a bias per class (vs), "
        "or by a factor per class (nbvs).",
    ),
    "missing": option(
        "--missing",
        type=click.Choice(MISSING),
        default="refuse",
        help="What to do with missing values: refuse the table with an error, drop their rows, or replace them by the "
        "training mean.",
    ),
    "images": _images(
        "Read images: a folder with one folder per bag, or an EcoTaxa table in the folder of its images."
    ),
    "known_images": _images(
        "Read images: a folder with one folder per bag, or an EcoTaxa table in the folder of its images. With --label "
        "and any text, the folder of each bag has one folder per class."
    ),
    "image_cache": option(
        "--image-cache",
        "cache_dir",
        type=PATH,
        help="Directory for decoded images.  [default: histnetq/images in the user's cache directory]",
    ),
    "image_size": option("--image-size", type=click.IntRange(4, 1024), default=32, help="Height and width in pixels."),
    "color": option("--color", is_flag=True, help="Keep the colours of images.  [default: convert them to grey]"),
    "skip_unreadable": option(
        "--skip-unreadable", is_flag=True, help="Skip images that cannot be read, with a warning.  [default: refuse]"
    ),
    "weight": option(
        "--weight", help="Column of survey weights, such as inverse probabilities of selection. A row remains one row."
    ),
    "count_column": option(
        "--count-column",
        help="Column of counts: a row with the count k stands for k equal rows, such as k votes. Use it instead of "
        "--weight.",
    ),
    "dask": option(
        "--dask",
        help="Address of the Dask scheduler whose workers read the rows, such as tcp://host:8786; or local for workers "
        "on this machine.",
    ),
    "features": option(
        "--features",
        multiple=True,
        callback=_named,
        help="Comma-separated columns to learn from; or repeat the option with one column each time.  [default: all "
        "columns of numbers, except keys (whole numbers that hardly repeat), counters (whole numbers that rise or fall "
        "from row to row), copies of the label, and columns that are constant, also if only within each bag]",
    ),
    "ignore": option(
        "--ignore",
        multiple=True,
        callback=_named,
        help="Exclude these columns, in the format of --features; the remaining features are detected automatically.",
    ),
    "proba": option(
        "--proba",
        help="Columns with class probabilities from your own classifier, such as cod=p_cod,eel=p_eel, or a pattern "
        "such as 'p_*' where * is the class. The classifier must have been trained on other rows.",
    ),
    "text": option(
        "--text", help="Column of texts to learn from. Other columns are then used only if --features names them."
    ),
    "prediction": option(
        "--prediction",
        help="Column with classes predicted by your own classifier, which must have been trained on other rows.",
    ),
    "methods": option(
        "--methods", callback=split, help="Comma-separated methods to compare.  [default: a few that suit the data]"
    ),
    "method": option("--method", default="histnetq", help="Method to tune, such as histnetq, emq or pacc."),
    "scratch": option(
        "--scratch",
        type=click.Path(),
        help="Directory for a temporary file of the rows, if they do not fit into memory.  [default: no file]",
    ),
    "force": option("--force", is_flag=True, help="Replace existing output."),
    "keep_interrupted": option(
        "--keep-interrupted",
        is_flag=True,
        help="On interruption, save the model learned so far in a directory with the suffix -interrupted.",
    ),
    "json": option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of text."),
    "seed": option("--seed", default=0, type=click.IntRange(0), help="Random seed."),
    "prevalences": option("--prevalences", type=click.Path(), help="Table of the class proportions of each bag."),
    "counts": option("--counts", is_flag=True, help="The table of proportions contains counts."),
    "label": option("--label", help="Column of the class of each row, instead of a table of proportions."),
    "calibration": option(
        "--calibration",
        type=click.FloatRange(0, 0.9),
        default=0.25,
        help="Fraction of the bags, or of labelled rows without bags, that is held out to calibrate intervals if a fit "
        "takes more than 24 seconds; 0 means no intervals. Faster methods are fitted to everything and calibrated by "
        "cross-validation.",
    ),
    "bag_size": option(
        "--bag-size",
        multiple=True,
        type=click.IntRange(1),
        callback=_sizes,
        help="Expected number of rows of new bags, for labelled rows without bags: intervals are calibrated for it. "
        "Repeat it for several sizes.  [default: sizes from 20 to 10,000]",
    ),
    "judge": _judge(required=True),
    "judge_drawn": _judge(required=False),
    "human": option(
        "--human",
        multiple=True,
        callback=_one_or_more,
        help="Column of human labels; empty cells mean that no human looked. Repeat it if two humans labelled.  "
        "[default: label]",
    ),
    "labels": option(
        "--labels",
        type=click.Choice(["random", "by-verdict", "other"]),
        help="How the labelled rows were chosen: at random; at random among rows with the same verdict; or in another "
        "way, which gives only bounds.",
    ),
    "by": option("--by", help="Column that names the system of each row, to compare systems."),
    "coverage": option("--coverage", type=float, default=0.9, help="Probability that an interval contains the truth."),
    "interval": option(
        "--interval",
        type=click.Choice(list(INTERVALS)),
        help="Interval method. Classifier-based methods have bayes, and bootstrap (wider intervals); EMNetQ has "
        "standard-errors, and Pretrained posterior.  [default: conformal for calibrated models, else posterior or "
        "bayes if possible, else none]",
    ),
    "model": option("-o", "--output", type=PLACE, required=True, help="Directory of the model."),
    "table": option(
        "-o",
        "--output",
        type=TABLE_FILE,
        help=f"File of the results: {WRITTEN_ENDINGS}.  [default: the terminal]",
    ),
}


def options(*names: str) -> Any:
    """Add the arguments and options of these names to a command, in this order."""

    def add(command: Any) -> Any:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return add


def was_given(ctx: click.Context, option: click.Parameter) -> bool:
    """Return whether an option was typed."""
    return ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE


def refuse_mixed(ctx: click.Context) -> None:
    """Refuse options about tables together with --images, and options about images without it."""
    images = ctx.params.get("images")
    for option in (option for option in ctx.command.params if was_given(ctx, option)):
        typed = max(option.opts, key=len)
        if images and option.name in _OF_TABLES:
            raise click.UsageError(f"expected no {typed} with --images: it is about tables.")
        if not images and option.name in _OF_IMAGES:
            raise click.UsageError(f"expected {typed} only with --images: it is about images.")
    if images and len(ctx.params["bag"]) > 1:
        raise click.UsageError("expected --bag only once with --images.")


def combine_weights(ctx: click.Context) -> None:
    """Replace the two options of weights by the parameters `weight` and `weight_kind`."""
    if "count_column" not in ctx.params:
        return
    counts = ctx.params.pop("count_column")
    if counts is not None and ctx.params["weight"] is not None:
        raise click.UsageError("expected --weight or --count-column, got both: leave one of them out.")
    ctx.params["weight_kind"] = "survey" if counts is None else "count"
    ctx.params["weight"] = counts or ctx.params["weight"]


def how_to_read(given: dict[str, Any]) -> dict[str, Any]:
    """Drop the options about tables if images are read, and the options about images otherwise."""
    others = _OF_TABLES if given["images"] else _OF_IMAGES
    return {name: value for name, value in given.items() if name not in others}
