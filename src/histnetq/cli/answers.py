"""Commands that ask stored models: predict, sketch, evaluate, report, info; and the demonstration."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.columns import listed
from histnetq.cli.group import (
    IMAGES,
    KNOWN,
    PATH,
    command_line,
    csv_text,
    main,
    options,
    refuse_unknown,
    say,
    write_table,
)
from histnetq.cli.reading import how_to_read, require_known
from histnetq.cli.terminal import echo
from histnetq.tables.files import fill_table, refuse_existing, whole_file

if TYPE_CHECKING:
    from histnetq.workflows.estimating import Estimates

_SHOWN = 6  # decimals of estimates in the terminal


@main.command()
@options("MODEL", "NEW", "bags", "weight", "missing", "dask", *IMAGES)
@click.option("--coverage", type=float, help="This part of the intervals should hold the truth.  [default: 0.9]")
@click.option("--interval", type=click.Choice(["conformal", "bayes", "bootstrap", "standard-errors"]),
              help="Intervals are of this kind; without calibration, bayes and the wider bootstrap are for classical "
              "methods and standard-errors for EMNetQ.  [default: conformal if calibrated]")  # fmt: skip
@click.option("--audited", type=click.Path(),
              help="This table has labels of some rows of NEW, which histnetq sample drew; estimates and intervals "
              "then hold whatever the shift.")  # fmt: skip
@click.option("--random", is_flag=True,
              help="The rows of --audited are a simple random sample of each bag, with a column label.")  # fmt: skip
@click.option("--wide", is_flag=True, help="Write one row per bag, with a column for each class.")
@click.option("--rows", "row_file", type=PATH,
              help="The class probabilities of each row, given the estimated mix of its bag, go to this CSV or Parquet "
              "file.  [default: none]")  # fmt: skip
@options("table", "force", "json")
def predict(
    model: Path, new: list[str], audited: str | None, random: bool, wide: bool, row_file: Path | None,
    output: Path | None, force: bool, as_json: bool, **reading: Any,
) -> None:  # fmt: skip
    """Estimate the bags of NEW by the MODEL, and write a row for each bag and class, or with --wide for each bag.

    The first columns have the names of the bag columns. Then come class, estimate, lower, upper, n and trust; with
    --wide instead a column for each class, such as cod, and cod_lower and cod_upper. A bag column that has one of these
    names gets bag_ before it. Rows are sorted by bag and class.

    NEW are tables, or files that histnetq sketch wrote, which are added up. Without --bag, all rows of tables are one
    bag. The column n is the number of rows, or with --weight the effective number, (sum of weights)^2 / sum of their
    squares. The column trust is "ok", or says that a bag is unusual or small beside the calibration bags or has one row
    alone, or has values of texts that training did not have.

    Tables may be larger than memory: their rows are read once and not kept. Exceptions are EMQ and KDEy (whose sketches
    are not exact), median, attention, EMNetQ and QuaNet (which have none), --interval other than conformal, --audited,
    and --rows, which classical methods, EMNetQ and all models of scores can tell: a row for each row of NEW, with its
    number.

    With --audited, the columns labels and method follow: how many labels a bag has, and how the estimate came about.

    \b
    Examples: histnetq predict model new.csv --bag tow -o estimates.csv --coverage 0.9
              histnetq predict model days/*.parquet --bag site --wide
              histnetq predict model new.csv --bag tow --audited to_label.csv
              histnetq predict model new-scans --images --bag scan
    """
    from histnetq.workflows.estimating import estimate

    if audited is None and random:
        raise click.UsageError("expected --random beside --audited, whose rows it is about.")
    if audited is not None and row_file is not None:
        raise click.UsageError("expected --rows without --audited: probabilities of rows are by the model's estimates.")
    if row_file is not None:
        refuse_existing(row_file, force, "row_file")
        if output is not None and row_file.resolve() == output.resolve():
            raise ValueError("row_file: expected another file than that of the estimates; name one.")
    reading = how_to_read(reading)
    if audited is None:
        if not reading["images"]:
            reading["progress"] = not as_json
        found = estimate(model, new, rows=row_file is not None, **reading)
    else:
        found = _audited(model, new, audited, random=random, **reading)
    table = found.to_frame(wide)
    with contextlib.ExitStack() as written:  # both files take their places together, when both are there
        for name, part, path in (("row_file", found.rows, row_file), ("output", table, output)):
            if part is not None and path is not None:
                fill_table(part, written.enter_context(whole_file(path, name)), path.suffix)
                refuse_existing(path, force, name)
    whole = len(found) == 1 and not reading["bag"] and not reading["images"]
    one_bag = "The whole table is one bag, as no --bag was given" if whole else ""
    if len(found) > 1 and (found.about["n"] == 1).all():
        echo(f"Each of the {len(found):,} bags has one row alone: is --bag the right column?", err=True)
    if output is None:
        if one_bag:
            echo(f"{one_bag}.", err=True)
        text = table.to_json(orient="records") if as_json else csv_text(table.round(_SHOWN))
        echo(text.rstrip("\n"))
        return
    facts = {"output": str(output), "bags": len(found), "rows": len(table), "doubted": found.n_doubted}
    lines = [f"{len(found)} bags estimated, written to {output}."]
    if one_bag:
        lines = [f"{one_bag}; its estimate is written to {output}."]
    if row_file is not None:
        facts["row_probabilities"] = str(row_file)
        lines.append(f"The class probabilities of each row are written to {row_file}.")
    if found.n_doubted:
        lines.append(f"{found.n_doubted} of them are unlike those the model was calibrated by; see the column trust.")
    say(as_json, facts, lines)


def _audited(
    model: Path, new: list[str], audited: str, *, interval: str | None, dask: str | None, images: bool, **reading: Any
) -> Estimates:
    from histnetq.workflows.auditing import estimate_audited

    if interval is not None or dask is not None:
        raise click.UsageError("expected --audited without --interval and --dask: its intervals are from the labels.")
    return estimate_audited(model, new, audited, **reading)


@main.command()
@options("MODEL", "TABLE", "bag", "weight", "missing", "dask", *IMAGES)
@click.option("-o", "--output", type=PATH, required=True, help="The sketches go to this Parquet file.")
@options("force", "json")
def sketch(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **reading: Any) -> None:
    """Reduce the rows of TABLE to sketches of their bags, from which MODEL predicts.

    Sketches of other rows of the same bags add up to those of all rows, so that no row is read again.

    \b
    Example: histnetq sketch model monday.parquet --bag site --bag hour -o days/monday.parquet
             histnetq sketch model tuesday.parquet --bag site --bag hour -o days/tuesday.parquet
             histnetq predict model days/*.parquet --bag site
             histnetq sketch model scans --images -o scans.parquet
    """
    from histnetq.quantifiers.loading import load
    from histnetq.workflows.estimating import sketch as make

    made = make(load(model), table, progress=not as_json, **how_to_read(reading))
    made.save(output, overwrite=force)
    size, n_rows = output.stat().st_size, int(made.n_rows.sum())
    facts = {"output": str(output), "bags": len(made), "rows": n_rows, "bytes": size}
    per_bag = f"{size / len(made):,.0f} bytes per bag"
    say(as_json, facts, [f"{len(made)} bags of {n_rows:,} rows sketched, written to {output}: {per_bag}."])


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, "weight", "missing", *IMAGES)
@click.option("--coverage", type=float, default=0.9, show_default=True,
              help="This part of the intervals should hold the truth.")  # fmt: skip
@click.option("-o", "--output", type=PATH, help="The errors of each bag go to this CSV file.")
@options("force", "json")
def evaluate(model: Path, table: list[str], output: Path | None, force: bool, as_json: bool, **known: Any) -> None:
    """Measure the errors of MODEL on the bags of TABLE, whose proportions are known.

    A class that the model has not learned counts as estimated 0. Of a calibrated model the coverage of its intervals is
    told, too.

    \b
    Examples: histnetq evaluate model rows.csv --bag tow --label species
              histnetq evaluate model scans --images --label taxon
    """
    from histnetq.workflows.estimating import score

    found = score(model, table, **how_to_read(known) | {"label": require_known(table, known)})
    errors, floor, covered = found.errors, found.floor, found.coverage
    if output is not None:
        write_table(errors, output, force, index=True)
    means = {name: float(errors[name].mean()) for name in ("ae", "rae")}
    told = f"{len(errors)} bags: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}; "
    told += f"baseline (training mean): {floor['ae']:.4f} and {floor['rae']:.4f}."
    if means["ae"] >= floor["ae"]:
        told += " The model is no better than the baseline: it has learned nothing from these features."
    lines = [told, *([found.learned_nothing] if found.learned_nothing else [])]
    if covered:
        lines.append(
            f"Of the {covered['nominal']:.0%} intervals {covered['seen']:.1%} hold the truth; "
            f"their mean width is {covered['mean width']:.4f}."
        )
    lines += [] if output is None else [f"written to {output}."]
    facts = {"bags": len(errors), **means, "baseline": floor, "learned_nothing": found.learned_nothing}
    say(as_json, facts | ({"coverage": covered} if covered else {}), lines)


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, "weight", "missing", *IMAGES)
@click.option(
    "--against", multiple=True, type=PATH, help="This stored model is compared with; give it again for others."
)
@click.option("--coverage", type=float, default=0.9, show_default=True,
              help="This part of the intervals should hold the truth.")  # fmt: skip
@click.option(
    "-o", "--output", type=PATH, default=Path("report.html"), show_default=True, help="The page goes to this file."
)
@options("force", "json")
def report(model: Path, table: list[str], output: Path, force: bool, as_json: bool, **known: Any) -> None:
    """Write one page about MODEL and its estimates of the bags of TABLE, with errors where proportions are known.

    \b
    Examples: histnetq report model new.csv --bag tow -o report.html
              histnetq report model checked.csv --bag tow --label species --against other
              histnetq report model new-scans --images
    """
    from histnetq.report.table_report import report_table

    if None not in (known["prevalences"], known["label"]):
        refuse_unknown(known["prevalences"], known["label"])
    report_table(output, model, table, command=command_line(), force=force, **how_to_read(known))
    say(as_json, {"output": str(output)}, [f"written to {output}; open it in a browser."])


@main.command()
@options("MODEL", "json")
def info(model: Path, as_json: bool) -> None:
    """Tell what a stored MODEL is: method, classes, features, calibration. Its weights are not read.

    Example: histnetq info model
    """
    from histnetq.persistence.model_files import array_shapes, read_manifest, require_known_method

    about = read_manifest(model)
    if not about.get("own_class", False):
        require_known_method(model, about)
    provenance = about["provenance"] or {}
    n_scores = sum(array_shapes(model, about).get("calibration/joint_scores", []))
    bags = provenance.get("calibration_bags") or n_scores
    learned = about["learned"]
    interrupted = str(provenance.get("interrupted") or learned.get("interrupted", ""))
    facts = {
        "method": about["estimator"], "classes": about["classes"], "features": about["feature_names"],
        "train_prevalences": about["train_prevalences"], "calibration_bags": bags,
        "parameters": _called(about["estimator"], about["params"]), "split": str(learned.get("split", "")),
        "interrupted": interrupted, "learned_nothing": str(learned.get("learned_nothing", "")),
        "scores": bool(about.get("scores")), "provenance": provenance,
    }  # fmt: skip
    shares = zip(facts["classes"], facts["train_prevalences"], strict=True)
    lines = [
        f"method       {facts['method']}",
        f"classes      {', '.join(f'{name} ({share:.1%} in training)' for name, share in shares)}",
        f"features     {', '.join(facts['features'] or ['not named'])}"
        + (" (scores of a model, in the order of the classes)" if facts["scores"] else ""),
        *([f"left out     {listed(provenance['left_out'])}"] if provenance.get("left_out") else []),
        f"intervals    {f'calibrated by {bags} bags' if bags else 'not calibrated'}",
        *([f"validation   {facts['split']}"] if facts["split"] else []),
        *([f"interrupted  {interrupted}"] if interrupted else []),
        *([f"warning      {facts['learned_nothing']}"] if facts["learned_nothing"] else []),
        f"parameters   {facts['parameters']}",
        *(f"{name:<13}{provenance[name]}" for name in ("calibrated", "command", "date", "why") if name in provenance),
    ]
    say(as_json, facts, lines)


@main.command()
@click.option("-o", "--output", type=PATH, default=Path("demo-output"), show_default=True,
              help="The report goes to this directory.")  # fmt: skip
def demo(output: Path) -> None:
    """Compare methods at three tasks on scikit-learn's digits, and write a report; this takes about two minutes.

    Example: histnetq demo
    """
    try:
        from histnetq.cli.demo import run_demo
    except ModuleNotFoundError as error:
        raise ImportError(f"demo: needs {error.name}; pip install 'histnetq[deep,report]'.") from None

    run_demo(echo, output)


def _called(name: Any, values: Any) -> str:
    """Write the parameters of a stored object as one reads them in Python."""
    return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in dict(values).items())})"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    if not isinstance(value, dict):
        return repr(value)
    if isinstance(value.get("fields"), dict):
        return _called(value.get("type"), value["fields"])
    if isinstance(value.get("sklearn"), dict):
        return _written_classifier(value["sklearn"])
    return str(value.get("custom", "another classifier"))


def _written_classifier(described: dict[str, Any]) -> str:
    steps = described.get("steps", [])
    parts = [part for step in steps if isinstance(step, list) for part in step if isinstance(part, dict)]
    return " then ".join(map(_written_classifier, parts)) or str(described.get("type"))
