"""The command that estimates a prevalence from an imperfect test: rogan-gladen."""

from __future__ import annotations

from typing import Any

from histnetq.cli.group import main, say
from histnetq.cli.options import option, options


@main.command()
@option("--positives", type=int, required=True, help="Number of positive tests.")
@option("--n", type=int, required=True, help="Number of tests.")
@option("--sensitivity", required=True, help="Share of positive tests if the condition is present; see below.")
@option("--specificity", required=True, help="Share of negative tests if the condition is absent; see below.")
@option("--coverage", type=float, default=0.9, help="Probability that the interval contains the truth.")
@options("json")
def rogan_gladen(as_json: bool, **tests: Any) -> None:
    """Estimate a prevalence from an imperfect test.

    The sensitivity and the specificity are exact numbers, such as 0.9, or counts of a validation study, such as
    90/100, whose sampling error widens the interval.

    \b
    Example: histnetq rogan-gladen --positives 60 --n 200 --sensitivity 90/100 --specificity 0.8
    """
    from histnetq.report.sentences import describe_prevalence
    from histnetq.uncertainty.rogan_gladen import read_rate
    from histnetq.uncertainty.rogan_gladen import rogan_gladen as estimate

    for name in ("sensitivity", "specificity"):
        tests[name], tests[f"n_{name}"] = read_rate(name, tests[name])
    found = estimate(**tests)
    say(as_json, found._asdict(), describe_prevalence(found, tests["positives"] / tests["n"], tests["coverage"]))
