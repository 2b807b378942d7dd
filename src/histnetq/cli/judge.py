"""The command that corrects the verdicts of an imperfect judge: judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import command_line, main, print_table, say
from histnetq.cli.options import JUDGED, JUDGED_FILE, option, options, split
from histnetq.cli.terminal import echo, visible_line
from histnetq.registry import PAGES
from histnetq.report.sentences import describe_judgement
from histnetq.tables.files import write_files


@main.command()
@options("NEW", "judge", *JUDGED)
@option("--pair", help="Column that names what several systems were given, such as the prompt, to compare them on it.")
@option("--cluster", help="Column of the cluster of each row, such as its conversation.")
@option(
    "--target",
    type=click.Choice(["batch", "process"]),
    default="batch",
    help="Whether estimates are about these rows, or about the process that made them.",
)
@option("--probability", help="Column of the probability that a row was drawn to be labelled.")
@option("--stratum", help="Column of the strata within which rows to be labelled were drawn at random.")
@option("--labelled", type=click.Path(), help="File that histnetq sample --judge wrote, with the labels filled in.")
@option("--learned-on", type=click.Path(), help="Table of an earlier batch, with verdicts and human labels.")
@option("--stable-judge", is_flag=True, help="Assume that the judge has the same error rates in both batches.")
@option("--ordered", callback=split, help="Comma-separated classes in their order, for shares up to each class.")
@option("--plan", type=float, help="Intended half-width of the intervals: say how many more labels it needs.")
@option("--sequential", is_flag=True, help="Give intervals that stay valid if you look after every batch of labels.")
@option("--coverage", "level", type=float, default=0.9, help="Probability that an interval contains the truth.")
@options("seed")
@option("-o", "--output", type=JUDGED_FILE, help="HTML report, or table of the estimates.  [default: the terminal]")
@options("force", "json")
def judge(new: list[str], output: Path | None, force: bool, as_json: bool, seed: int, **how: Any) -> None:
    """Estimate how common each verdict really is.

    NEW are tables with the verdicts of a judge, such as a language model, a rule or a test, and human labels of some
    rows. They may be result files of promptfoo, Inspect, DeepEval or lm-evaluation-harness. The table of the result has
    one row for each system and class: raw (the judge's share), estimate, lower, upper, n_rows, n_labels, worth, method.

    \b
    Examples: histnetq judge verdicts.csv --judge verdict --human label --labels random -o report.html
              histnetq judge verdicts.jsonl --judge verdict --human label --labels random --by model --cluster talk
              histnetq judge new.csv --judge verdict --learned-on march.csv
              histnetq judge verdicts.csv --judge verdict --human label --labels random --plan 0.02
    """
    from histnetq.report.judge_page import page
    from histnetq.workflows.judge_files import as_facts, judge_table

    found = judge_table(new, random_state=seed, **how)
    is_page = output is not None and output.name.lower().endswith(PAGES)
    write_files(("output", output, page(found, command_line()) if is_page else found.to_frame(), force))
    for warning in found.warnings:
        echo(visible_line(f"Warning: {warning}"), err=True)
    if output is None and not as_json:
        print_table(found.to_frame(), as_json)
        for sentence in describe_judgement(found, shares=False):
            echo(visible_line(sentence), err=True)
        return
    written = [] if output is None else [f"Written to {output}."]
    say(as_json, as_facts(found), [*describe_judgement(found), *written])
