"""The command that draws rows for labelling: sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main, say
from histnetq.cli.options import JUDGED, TABLE_FILE, WRITTEN_ENDINGS, option, options
from histnetq.report.sentences import count
from histnetq.tables.files import write_files


@main.command()
@options("MODEL")
@click.argument("new", nargs=-1, callback=lambda ctx, param, value: list(value))
@options("bags", "weight", "missing")
@option(
    "--n",
    default=200,
    type=click.IntRange(10),
    help="Number of rows drawn from each bag, or system of --by; smaller bags give all their rows.",
)
@options("judge_drawn", *JUDGED)
@option("--plan", type=float, help="With --judge, draw as many rows as intervals of this half-width need.")
@option("--by-verdict", is_flag=True, help="With --plan, draw more rows with verdicts that are often wrong.")
@option("--bags", "n_bags", type=click.IntRange(1), help="Draw no rows; choose so many bags to measure next.")
@options("seed")
@option("-o", "--output", type=TABLE_FILE, required=True, help=f"File of the drawn rows: {WRITTEN_ENDINGS}.")
@options("force", "json")
def sample(
    model: Path, new: list[str], judge: Any, n_bags: int | None, output: Path, force: bool, as_json: bool, **how: Any
) -> None:
    """Draw rows of each bag for labelling.

    More rows of NEW are drawn where MODEL is uncertain. Write the class of each row into the column named label of the
    output file. Then predict --audited gives estimates and intervals that are valid even if NEW differs from the
    training data in any way, because they use labels of rows of the bag itself.

    The columns audit_... contain the numbers of the rows and their probabilities of being drawn: do not change
    them. You may sort the rows of the output file, and delete columns that were copied from NEW.

    With --judge, there is no MODEL. Rows of NEW without a human label are drawn at random, and columns that show the
    verdict are left out. Label the rows in their order; you may stop at any row. Then judge --labelled uses the labels.

    With --bags, choose the bags of NEW whose proportions would teach a regression on mean rows most, without labels.

    \b
    Example: histnetq sample model new.csv --bag site --n 200 -o to_label.csv
             histnetq predict model new.csv --bag site --audited to_label.csv
             histnetq sample verdicts.csv --judge verdict --n 200 -o to_label.csv
             histnetq judge verdicts.csv --judge verdict --labelled to_label.csv --labels random
             histnetq sample model new.csv --bag site --bags 20 -o to_measure.csv
    """
    from histnetq.workflows.auditing import sample_table
    from histnetq.workflows.bag_choice import sample_bags
    from histnetq.workflows.judge_files import sample_judged

    asked = {name: how.pop(name) for name in (*JUDGED, "plan", "by_verdict")}
    draw = {"n": how.pop("n"), "random_state": how.pop("seed")}
    if judge is None and (not new or any(asked.values())):
        raise click.UsageError("expected MODEL and NEW, or --judge with its options and no MODEL.")
    if n_bags is not None:
        if judge is not None:
            raise click.UsageError("--bags: expected without --judge, as no rows are drawn.")
        drawn = sample_bags(model, new, n=n_bags, **how)
        write_files(("output", output, drawn, force))
        say(as_json, {"output": str(output), "bags": n_bags}, [f"{count(n_bags, 'bag')} written to {output}."])
        return
    if judge is not None:
        asked["design"] = "by-verdict" if asked.pop("by_verdict") else "random"
        drawn = sample_judged([str(model), *new], judge=judge, **draw, **asked)
        facts: dict[str, Any] = {"output": str(output), "rows": len(drawn)}
        of, then = " without a label", " in their order, and pass the file to histnetq judge --labelled."
    else:
        drawn = sample_table(model, new, **draw, **how)
        n_bags = len(drawn.drop_duplicates(how["bag"])) if how["bag"] else 1
        facts = {"output": str(output), "rows": len(drawn), "bags": n_bags}
        of, then = f" of {count(n_bags, 'bag')}", ", and then pass the file to histnetq predict --audited."
    write_files(("output", output, drawn, force))
    line = f"{count(len(drawn), 'row')}{of} drawn, written to {output}; fill in the column label{then}"
    say(as_json, facts, [line])
