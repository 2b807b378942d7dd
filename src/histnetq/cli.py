"""The command line: arguments only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

__all__ = ["main"]


class _Commands(click.Group):
    """Commands whose errors are one sentence and exit code 2."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, TypeError, OSError) as error:
            raise _UserError(str(error)) from None


class _UserError(click.ClickException):
    exit_code = 2


@click.group(cls=_Commands)
@click.version_option(package_name="histnetq")
def main() -> None:
    """Estimate how common each class is in a bag of examples."""


_BAG = click.option("--bag", multiple=True, required=True, help="Column that says which bag a row belongs to.")
_WEIGHT = click.option("--weight", help="Column of the rows' weights.")
_FORCE = click.option("--force", is_flag=True, help="Replace what exists.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print for machines.")
_KNOWN = [
    click.option("--prevalences", type=click.Path(), help="Table of the classes' proportions in each bag."),
    click.option("--counts", is_flag=True, help="That table holds counts."),
    click.option("--label", help="Column of the rows' classes, instead of a table of proportions."),
]


def _known(command: Any) -> Any:
    for option in reversed(_KNOWN):
        command = option(command)
    return command


def _refuse_unknown(prevalences: str | None, label: str | None) -> None:
    if (prevalences is None) == (label is None):
        raise click.UsageError("expected either --prevalences or --label, which say what is known of the bags.")


def _say(as_json: bool, facts: dict[str, Any], lines: list[str]) -> None:
    click.echo(json.dumps(facts) if as_json else "\n".join(lines))


@main.command()
@click.argument("train", nargs=-1, required=True)
@_BAG
@_known
@click.option("--features", help="Columns to learn from, with commas between.  [default: all of numbers]")
@_WEIGHT
@click.option("--method", default="histnetq", show_default=True, help="Any quantifier, such as histnetq, emq or pacc.")
@click.option("--calibration", type=click.FloatRange(0, 0.9), default=0.25, show_default=True,
              help="Part of the bags that is kept apart for intervals.")  # fmt: skip
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Directory of the model.")
@_FORCE
@_JSON
def fit(
    train: tuple[str, ...], bag: tuple[str, ...], prevalences: str | None, counts: bool, label: str | None,
    features: str | None, weight: str | None, method: str, calibration: float, seed: int, output: Path, force: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Fit a quantifier to the rows of TRAIN, Parquet or CSV files, and keep it.

    \b
    Examples: histnetq fit rows.csv --bag tow --prevalences tows.csv -o model
              histnetq fit rows.csv --bag tow --label species --method emq -o model
    """
    from histnetq.commands import fit_model, refuse_existing
    from histnetq.tables import read_bags

    _refuse_unknown(prevalences, label)
    refuse_existing(output, force)
    bags = read_bags(
        list(train), bag=list(bag), prevalences=prevalences, counts=counts, label=label, weight=weight,
        features=None if features is None else features.split(","),
    )  # fmt: skip
    fitted = fit_model(bags, method, calibration=calibration, random_state=seed)
    fitted.model.save(output, overwrite=force)
    n_calibrated = 0 if fitted.calibrated is None else len(fitted.calibrated)
    names = fitted.model.feature_names_ or []
    facts = {
        "model": str(output), "method": type(fitted.model).__name__, "bags": len(fitted.learned),
        "calibration_bags": n_calibrated, "features": names, "classes": fitted.model.classes_.tolist(),
    }  # fmt: skip
    lines = [
        f"{facts['method']} learned {len(facts['classes'])} classes from {len(fitted.learned)} bags and "
        f"{len(names)} features; kept in {output}.",
        f"Calibrated by {n_calibrated} other bags: predict gives intervals."
        if n_calibrated
        else "Too few bags to keep some apart for intervals: predict gives estimates alone.",
    ]
    _say(as_json, facts, lines)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("new", nargs=-1, required=True)
@_BAG
@_WEIGHT
@click.option("--coverage", type=float, help="Of the intervals.  [default: 0.9]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV or Parquet file.  [default: the terminal]")
@_FORCE
@_JSON
def predict(
    model: Path, new: tuple[str, ...], bag: tuple[str, ...], weight: str | None, coverage: float | None,
    output: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Estimate the bags of the tables NEW by the MODEL: bag, class, estimate, lower, upper, n.

    Example: histnetq predict model new.csv --bag tow -o estimates.csv --coverage 0.9
    """
    from histnetq.commands import estimate, refuse_existing, write_table

    refuse_existing(output, force)
    table = estimate(model, list(new), bag=list(bag), weight=weight, coverage=coverage)
    if output is None:
        text = table.to_json(orient="records") if as_json else table.to_csv(index=False, float_format="%.6g")
        click.echo(text.rstrip("\n"))
        return
    write_table(table, output, force=force)
    n_bags = table["bag"].nunique()
    facts = {"output": str(output), "bags": n_bags, "rows": len(table)}
    _say(as_json, facts, [f"{n_bags} bags estimated, written to {output}."])


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", nargs=-1, required=True)
@_BAG
@_known
@_WEIGHT
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV file with the errors of each bag.")
@_FORCE
@_JSON
def evaluate(
    model: Path, table: tuple[str, ...], bag: tuple[str, ...], prevalences: str | None, counts: bool,
    label: str | None, weight: str | None, output: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Measure the errors of MODEL on the bags of TABLE, whose proportions are known.

    Example: histnetq evaluate model rows.csv --bag tow --label species
    """
    from histnetq.commands import refuse_existing, score, write_table

    _refuse_unknown(prevalences, label)
    refuse_existing(output, force)
    options = {"prevalences": prevalences, "counts": counts, "label": label, "weight": weight}
    errors = score(model, list(table), bag=list(bag), **options)
    if output is not None:
        write_table(errors, output, force=force, index=True)
    means = {name: float(errors[name].mean()) for name in ("ae", "rae")}
    lines = [f"{len(errors)} bags: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}."]
    _say(as_json, {"bags": len(errors), **means}, [*lines, *([] if output is None else [f"written to {output}."])])


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@_JSON
def info(model: Path, as_json: bool) -> None:
    """Tell what a stored MODEL is: method, classes, features, calibration.

    Example: histnetq info model
    """
    from histnetq.base import load

    q = load(model)
    scores = len(q.calibration_.joint_scores) if hasattr(q, "calibration_") else 0
    facts = {
        "method": type(q).__name__, "classes": q.classes_.tolist(), "features": q.feature_names_,
        "train_prevalences": q.train_prevalences_.tolist(), "calibration_scores": scores, "parameters": repr(q),
    }  # fmt: skip
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(q.feature_names_ or ['not named'])}",
        f"intervals    {f'calibrated by {scores} scores' if scores else 'not calibrated'}",
        f"parameters   {' '.join(repr(q).split())}",
    ]
    _say(as_json, facts, lines)


@main.command()
def demo() -> None:
    """Train and compare on scikit-learn's digits, about a minute.

    Example: histnetq demo
    """
    from histnetq.demo import run_demo

    run_demo(click.echo)


@main.group()
def data() -> None:
    """Data sets by name: list them, fetch them."""


@data.command(name="list")
@click.option(
    "--in", "directory", type=click.Path(path_type=Path), help="Look in this directory.  [default: all usual]"
)
def list_data(directory: Path | None) -> None:
    """Show the known data sets, where they come from and whether they are present.

    Example: histnetq data list
    """
    from histnetq.datasets import SOURCES

    for source in SOURCES.values():
        click.echo(f"{source.name:<15}{source.about}")
        click.echo(f"{'':<15}from {source.origin}: {source.state(directory)}")


@data.command()
@click.argument("name")
@click.option("--to", type=click.Path(path_type=Path), help="Directory for the files.  [default: where loaders look]")
@click.option("--url", help="Another address, of a folder with the same files or of one file.")
@click.option(
    "--sha256", multiple=True, help="Checksum to verify: digits for one file, FILE=DIGITS for one of several."
)
def fetch(name: str, to: Path | None, url: str | None, sha256: tuple[str, ...]) -> None:
    """Download the data set NAME from its public record, or continue to; sizes and checksums are verified.

    Example: histnetq data fetch fashion-mnist --to data
    """
    from histnetq.datasets import fetch as fetch_dataset

    try:
        fetch_dataset(name, to, url=url, sha256=sha256, say=click.echo)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
