"""Commands about submissions to the LeQua challenges: lequa submit, lequa check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from histnetq.cli.group import main, say
from histnetq.cli.options import PATH, option, options

if TYPE_CHECKING:
    from histnetq.datasets import Dataset
    from histnetq.simplex import Floats

_TASK = click.argument("task", type=click.Choice(["T1A", "T1B", "T1", "T2", "T3", "T4"]))


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

    MODEL estimates the test bags of TASK in DATA_DIR.

    Example: histnetq lequa submit model T2 lequa2024 -o submission.zip
    """
    from histnetq.datasets import read_lequa, write_submission
    from histnetq.quantifiers.loading import load

    quantifier = load(model)
    data = read_lequa(task, data_dir)
    codes = {str(name): code for code, name in enumerate(quantifier.classes_)}
    if codes.keys() != {str(name) for name in data.classes}:
        raise ValueError(
            f"model: expected one of the {len(data.classes)} classes of {data.name}, got one of {len(codes)} classes, "
            "some of which are called otherwise; fit it to the data of this task."
        )
    estimates = quantifier.predict(data.test)[:, [codes[str(name)] for name in data.classes]]
    write_submission(output, estimates, task, overwrite=force)
    facts = {"output": str(output), "bags": len(estimates), "classes": len(codes), **_scores(task, data, estimates)}
    say(as_json, facts, [f"{len(estimates):,} bags estimated, written to {output}.", *_list_scores(facts)])


@lequa.command()
@click.argument("submission", type=PATH)
@_TASK
@click.argument("data_dir", type=PATH, required=False)
@options("json")
def check(submission: Path, task: str, data_dir: Path | None, as_json: bool) -> None:
    """Check a submission against the published rules.

    With DATA_DIR, SUBMISSION must have the same test bags and classes as the data there. If the data contain the truth,
    the errors are printed, too.

    \b
    Examples: histnetq lequa check submission.zip T2
              histnetq lequa check submission.zip T2 lequa2024
    """
    from histnetq.datasets import check_submission, read_lequa

    if data_dir is None:
        estimates, scores = check_submission(submission, task), {}
    else:
        data = read_lequa(task, data_dir)
        estimates = check_submission(submission, task, len(data.test), len(data.classes))
        scores = _scores(task, data, estimates)
    facts = {"submission": str(submission), "bags": len(estimates), "classes": estimates.shape[1], **scores}
    say(as_json, facts, [f"Accepted: {len(estimates):,} bags, {estimates.shape[1]} classes.", *_list_scores(facts)])


def _scores(task: str, data: Dataset, estimates: Floats) -> dict[str, float]:
    """Return the challenge's measures of estimates of test bags, if the truth is known."""
    from histnetq.datasets import lequa_errors

    return {} if data.test.prevalences is None else lequa_errors(task, data.test, estimates)


def _list_scores(facts: dict[str, Any]) -> list[str]:
    found = [f"{name} {value:.5f}" for name, value in facts.items() if isinstance(value, float)]
    return [", ".join(found) + "."] if found else []
