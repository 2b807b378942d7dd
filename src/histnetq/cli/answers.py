"""Commands that ask stored models: predict, sketch, evaluate, report, info; and the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.columns import listed
from histnetq.cli.group import KNOWN, PATH, command_line, main, options, refuse_unknown, say, write_table

_DIGITS = 9  # of estimates that are written: more than any has


@main.command()
@options("MODEL", "NEW", "bags", "weight", "missing", "dask")
@click.option("--coverage", type=float, help="Part of the intervals that should hold the truth.  [default: 0.9]")
@click.option("--interval", type=click.Choice(["conformal", "bootstrap", "standard-errors"]),
              help="Kind of intervals; without calibration, bootstrap is for classical methods and standard-errors "
              "for EMNetQ.  [default: conformal if calibrated]")  # fmt: skip
@options("table", "force", "json")
def predict(model: Path, new: list[str], output: Path | None, force: bool, as_json: bool, **reading: Any) -> None:
    """Estimate the bags of NEW by the MODEL: bag, class, estimate, lower, upper, n, trust.

    NEW are tables, or files that histnetq sketch wrote, which are added up. The column trust is "ok", or says that a
    bag is unusual or small beside the calibration bags, or has values of texts that training did not have.

    Tables may be larger than memory: their rows are read once and not kept. Exceptions are EMQ and KDEy (whose sketches
    are not exact), median, attention, EMNetQ and QuaNet (which have none), and --interval bootstrap.

    \b
    Examples: histnetq predict model new.csv --bag tow -o estimates.csv --coverage 0.9
              histnetq predict model days/*.parquet --bag site
    """
    from histnetq.cli.estimating import estimate

    table = estimate(model, new, progress=not as_json, **reading)
    table = table.round(dict.fromkeys(("estimate", "lower", "upper"), _DIGITS))
    if output is None:
        text = table.to_json(orient="records") if as_json else table.to_csv(index=False, float_format="%.6g")
        click.echo(text.rstrip("\n"))
        return
    write_table(table, output, force)
    by_bag = table.drop_duplicates("bag")
    doubted = int((~by_bag["trust"].isin(["ok", "unchecked"])).sum())
    facts = {"output": str(output), "bags": len(by_bag), "rows": len(table), "doubted": doubted}
    lines = [f"{len(by_bag)} bags estimated, written to {output}."]
    if doubted:
        lines.append(f"{doubted} of them are unlike those the model was calibrated by; see the column trust.")
    say(as_json, facts, lines)


@main.command()
@options("MODEL", "TABLE", "bag", "weight", "missing", "dask")
@click.option("-o", "--output", type=PATH, required=True, help="Parquet file of the sketches.")
@options("force", "json")
def sketch(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Reduce the rows of TABLE to sketches of their bags, from which MODEL predicts.

    Sketches of other rows of the same bags add up to those of all rows, so that no row is read again.

    \b
    Example: histnetq sketch model monday.parquet --bag site --bag hour -o days/monday.parquet
             histnetq sketch model tuesday.parquet --bag site --bag hour -o days/tuesday.parquet
             histnetq predict model days/*.parquet --bag site
    """
    from histnetq.cli.estimating import sketch as make
    from histnetq.quantifiers.saving import load

    made = make(load(model), table, progress=not as_json, **reading)
    made.save(output, overwrite=force)
    size, n_rows = output.stat().st_size, int(made.n_rows.sum())
    facts = {"output": str(output), "bags": len(made), "rows": n_rows, "bytes": size}
    per_bag = f"{size / len(made):,.0f} bytes per bag"
    say(as_json, facts, [f"{len(made)} bags of {n_rows:,} rows sketched, written to {output}: {per_bag}."])


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, "weight", "missing")
@click.option("-o", "--output", type=PATH, help="CSV file with the errors of each bag.")
@options("force", "json")
def evaluate(model: Path, table: list[str], output: Path | None, force: bool, as_json: bool, **known: Any) -> None:
    """Measure the errors of MODEL on the bags of TABLE, whose proportions are known.

    Example: histnetq evaluate model rows.csv --bag tow --label species
    """
    from histnetq.cli.estimating import score

    refuse_unknown(known["prevalences"], known["label"])
    errors, floor = score(model, table, **known)
    if output is not None:
        write_table(errors, output, force, index=True)
    means = {name: float(errors[name].mean()) for name in ("ae", "rae")}
    told = f"{len(errors)} bags: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}; "
    told += f"the mean of training has {floor['ae']:.4f} and {floor['rae']:.4f}."
    if means["ae"] >= floor["ae"]:
        told += " The model is no better than the mean of training: it has learned nothing from these features."
    lines = [told] if output is None else [told, f"written to {output}."]
    say(as_json, {"bags": len(errors), **means, "mean of training": floor}, lines)


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, "weight", "missing")
@click.option("--against", multiple=True, type=PATH, help="Another stored model to compare with; as often as wanted.")
@click.option("--coverage", type=float, default=0.9, show_default=True,
              help="Part of the intervals that should hold the truth.")  # fmt: skip
@click.option("-o", "--output", type=PATH, default=Path("report.html"), show_default=True, help="File of the page.")
@options("force", "json")
def report(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **known: Any) -> None:
    """Write one page about MODEL and its estimates of the bags of TABLE, with errors where proportions are known.

    \b
    Examples: histnetq report model new.csv --bag tow -o report.html
              histnetq report model checked.csv --bag tow --label species --against other
    """
    from histnetq.cli.estimating import report as write

    if None not in (known["prevalences"], known["label"]):
        refuse_unknown(known["prevalences"], known["label"])
    write(output, model, table, command=command_line(), force=force, **known)
    say(as_json, {"output": str(output)}, [f"written to {output}; open it in a browser."])


@main.command()
@options("MODEL", "json")
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
        "split": getattr(q, "split_", ""), "provenance": q.provenance_,
    }  # fmt: skip
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(q.feature_names_ or ['not named'])}",
        *([f"left out     {listed(q.provenance_['left_out'])}"] if q.provenance_.get("left_out") else []),
        f"intervals    {f'calibrated by {scores} scores' if scores else 'not calibrated'}",
        *([f"validation   {facts['split']}"] if facts["split"] else []),
        f"parameters   {' '.join(repr(q).split())}",
        *(f"{name:<13}{q.provenance_[name]}" for name in ("command", "date", "why") if name in q.provenance_),
    ]
    say(as_json, facts, lines)


@main.command()
@click.option("-o", "--output", type=PATH, default=Path("demo-output"), show_default=True,
              help="Directory of the report.")  # fmt: skip
def demo(output: Path) -> None:
    """Train, compare and predict on scikit-learn's digits, and write a report; this takes about a minute.

    Example: histnetq demo
    """
    from histnetq.cli.demo import run_demo

    run_demo(click.echo, output)
