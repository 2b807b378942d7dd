"""Commands that ask stored models: predict, sketch, evaluate, report, info; and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import command_line, options, refuse_unknown, say

__all__ = ["COMMANDS"]

_DIGITS = 9  # of estimates that are written: more than any has


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("new", nargs=-1, required=True)
@click.option("--bag", multiple=True, help="Column that says which bag a row belongs to; of sketches, those to keep.")
@options("weight", "dask")
@click.option("--coverage", type=float, help="Of the intervals.  [default: 0.9]")
@click.option("--interval", type=click.Choice(["conformal", "bootstrap"]),
              help="Kind of intervals; bootstrap needs no calibration and is for classical methods.  "
              "[default: conformal if calibrated]")  # fmt: skip
@options("table", "force", "json")
def predict(
    model: Path, new: tuple[str, ...], bag: tuple[str, ...], weight: str | None, coverage: float | None,
    interval: str | None, dask: str | None, output: Path | None, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Estimate the bags of NEW by the MODEL: bag, class, estimate, lower, upper, n, trust.

    NEW are tables, or files that histnetq sketch wrote, which are added up. Trust is "ok", or says that a bag is
    unusual or small beside the calibration bags, or has unseen values of texts.

    Tables may be larger than memory: rows are read once and not kept, but by EMQ and KDEy (whose sketches are not
    exact), by median, attention, EMNetQ and QuaNet (which have none), and for --interval bootstrap.

    \b
    Examples: histnetq predict model new.csv --bag tow -o estimates.csv --coverage 0.9
              histnetq predict model days/*.parquet --bag site
    """
    from histnetq.cli.estimating import estimate
    from histnetq.cli.output import refuse_existing, write_table

    refuse_existing(output, force)
    table = estimate(
        model, list(new), bag=list(bag), weight=weight, coverage=coverage, interval=interval, dask=dask,
        progress=dask is not None and not as_json,
    )  # fmt: skip
    table = table.round(dict.fromkeys(("estimate", "lower", "upper"), _DIGITS))
    if output is None:
        text = table.to_json(orient="records") if as_json else table.to_csv(index=False, float_format="%.6g")
        click.echo(text.rstrip("\n"))
        return
    write_table(table, output, force=force)
    by_bag = table.drop_duplicates("bag")
    doubted = int((~by_bag["trust"].isin(["ok", "unchecked"])).sum())
    facts = {"output": str(output), "bags": len(by_bag), "rows": len(table), "doubted": doubted}
    lines = [f"{len(by_bag)} bags estimated, written to {output}."]
    if doubted:
        lines.append(f"{doubted} of them are unlike those the model was calibrated by; see the column trust.")
    say(as_json, facts, lines)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", nargs=-1, required=True)
@options("bag", "weight", "dask")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Parquet file of the sketches.")
@options("force", "json")
def sketch(
    model: Path, table: tuple[str, ...], bag: tuple[str, ...], weight: str | None, dask: str | None, output: Path,
    force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Reduce the rows of TABLE to sketches of their bags, from which MODEL predicts.

    Sketches of other rows of the same bags add up to those of all rows, so that none is read again.

    \b
    Example: histnetq sketch model monday.parquet --bag site --bag hour -o days/monday.parquet
             histnetq sketch model tuesday.parquet --bag site --bag hour -o days/tuesday.parquet
             histnetq predict model days/*.parquet --bag site
    """
    from histnetq.cli.estimating import sketch as make
    from histnetq.cli.output import refuse_existing

    refuse_existing(output, force)
    made = make(model, list(table), bag=list(bag), weight=weight, dask=dask, progress=dask is not None and not as_json)
    made.save(output, overwrite=force)
    size, n_rows = output.stat().st_size, int(made.n_rows.sum())
    facts = {"output": str(output), "bags": len(made), "rows": n_rows, "bytes": size}
    per_bag = f"{size / len(made):,.0f} bytes per bag"
    say(as_json, facts, [f"{len(made)} bags of {n_rows:,} rows sketched, written to {output}: {per_bag}."])


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", nargs=-1, required=True)
@options("bag", "known", "weight")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="CSV file with the errors of each bag.")
@options("force", "json")
def evaluate(
    model: Path, table: tuple[str, ...], output: Path | None, force: bool, as_json: bool, **known: Any
) -> None:
    """Measure the errors of MODEL on the bags of TABLE, whose proportions are known.

    Example: histnetq evaluate model rows.csv --bag tow --label species
    """
    from histnetq.cli.estimating import score
    from histnetq.cli.output import refuse_existing, write_table

    refuse_unknown(known["prevalences"], known["label"])
    refuse_existing(output, force)
    known["bag"] = list(known["bag"])
    errors, floor = score(model, list(table), **known)
    if output is not None:
        write_table(errors, output, force=force, index=True)
    means = {name: float(errors[name].mean()) for name in ("ae", "rae")}
    told = f"{len(errors)} bags: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}; "
    told += f"the mean of training has {floor['ae']:.4f} and {floor['rae']:.4f}."
    if means["ae"] >= floor["ae"]:
        told += " The model is no better than the mean of training: it has learned nothing from these features."
    lines = [told] if output is None else [told, f"written to {output}."]
    say(as_json, {"bags": len(errors), **means, "mean of training": floor}, lines)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("table", nargs=-1, required=True)
@options("bag", "known", "weight")
@click.option(
    "--against", multiple=True, type=click.Path(path_type=Path), help="Another stored model, to compare with."
)
@click.option("--coverage", type=float, default=0.9, show_default=True, help="Of the intervals.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True)
@options("force", "json")
def report(
    model: Path, table: tuple[str, ...], against: tuple[Path, ...], coverage: float, output: Path, force: bool,
    as_json: bool, **known: Any,
) -> None:  # fmt: skip
    """Write one page about MODEL and its estimates of the bags of TABLE, with errors where proportions are known.

    \b
    Examples: histnetq report model new.csv --bag tow -o report.html
              histnetq report model checked.csv --bag tow --label species --against other
    """
    from histnetq.cli.estimating import report as write
    from histnetq.cli.output import refuse_existing

    if None not in (known["prevalences"], known["label"]):
        refuse_unknown(known["prevalences"], known["label"])
    refuse_existing(output, force)
    known["bag"] = list(known["bag"])
    write(
        output, model, list(table), against=against, coverage=coverage, command=command_line(), force=force, **known
    )  # fmt: skip
    say(as_json, {"output": str(output)}, [f"written to {output}; open it in a browser."])


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@options("json")
def info(model: Path, as_json: bool) -> None:
    """Tell what a stored MODEL is: method, classes, features, calibration.

    Example: histnetq info model
    """
    from histnetq.quantifiers.saving import load

    q = load(model)
    scores = len(q.calibration_.joint_scores) if hasattr(q, "calibration_") else 0
    facts = {
        "method": type(q).__name__, "classes": q.classes_.tolist(), "features": q.feature_names_,
        "train_prevalences": q.train_prevalences_.tolist(), "calibration_scores": scores, "parameters": repr(q),
        "provenance": q.provenance_,
    }  # fmt: skip
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(q.feature_names_ or ['not named'])}",
        f"intervals    {f'calibrated by {scores} scores' if scores else 'not calibrated'}",
        f"parameters   {' '.join(repr(q).split())}",
        *(f"{name:<13}{q.provenance_[name]}" for name in ("command", "date", "why") if name in q.provenance_),
    ]
    say(as_json, facts, lines)


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("demo-output"), show_default=True,
              help="Directory of the report.")  # fmt: skip
def demo(output: Path) -> None:
    """Train, compare and predict on scikit-learn's digits, and write a report; about a minute.

    Example: histnetq demo
    """
    from histnetq.cli.demo import run_demo

    run_demo(click.echo, output)


COMMANDS = (predict, sketch, evaluate, report, info, demo)
