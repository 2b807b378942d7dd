"""Commands about submissions to the LeQua challenges: lequa submit, lequa check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from histnetq.cli.group import main, say
from histnetq.cli.options import PATH, option, options
from histnetq.report.sentences import count

_TASK = click.argument("task", metavar="TASK", type=click.Choice(["T1A", "T1B", "T1", "T2", "T3", "T4"]))


@main.group()
def lequa() -> None:
    """Write and check submissions to the LeQua challenges."""


@lequa.command()
@options("MODEL")
@_TASK
@click.argument("data_dir", type=PATH)
@option("-o", "--output", type=PATH, required=True, help="Zip file of the submission.")
@options("force", "json")
def submit(model: Path, task: str, data_dir: Path, output: Path, force: bool, as_json: bool) -> None:
    """Write a submission.

    MODEL estimates the test bags of TASK, whose data are in DATA_DIR. TASK is T1A, T1B, T1, T2, T3 or T4.

    Example: histnetq lequa submit model T2 lequa2024 -o submission.zip
    """
    from histnetq.datasets import read_lequa, write_submission
    from histnetq.quantifiers.loading import load
    from histnetq.workflows.lequa import estimate_test_bags, score_test_bags

    quantifier, data = load(model), read_lequa(task, data_dir)
    estimates = estimate_test_bags(quantifier, data)
    write_submission(output, estimates, task, overwrite=force)
    facts = {"output": str(output), "bags": len(estimates), "classes": estimates.shape[1]}
    line = f"{count(len(estimates), 'bag')} estimated, written to {output}."
    _say_scores(as_json, facts, line, score_test_bags(task, data, estimates))


@lequa.command()
@click.argument("submission", type=PATH)
@_TASK
@click.argument("data_dir", type=PATH, required=False)
@options("json")
def check(submission: Path, task: str, data_dir: Path | None, as_json: bool) -> None:
    """Check a submission against the published rules.

    TASK is T1A, T1B, T1, T2, T3 or T4. With DATA_DIR, SUBMISSION must have the same test bags and classes as the data
    there. If the data contain the truth, the errors are printed, too.

    \b
    Examples: histnetq lequa check submission.zip T2
              histnetq lequa check submission.zip T2 lequa2024
    """
    from histnetq.datasets import check_submission, read_lequa
    from histnetq.workflows.lequa import score_test_bags

    if data_dir is None:
        estimates, scores = check_submission(submission, task), {}
    else:
        data = read_lequa(task, data_dir)
        estimates = check_submission(submission, task, len(data.test), len(data.classes))
        scores = score_test_bags(task, data, estimates)
    facts = {"submission": str(submission), "bags": len(estimates), "classes": estimates.shape[1]}
    _say_scores(as_json, facts, f"Accepted: {count(len(estimates), 'bag')}, {estimates.shape[1]} classes.", scores)


def _say_scores(as_json: bool, facts: dict[str, Any], line: str, scores: dict[str, float]) -> None:
    """Print the facts with the scores, or the line and a line of scores."""
    shown = ", ".join(f"{name} {value:.5f}" for name, value in scores.items())
    say(as_json, facts | scores, [line, *([f"{shown}."] if scores else [])])
