"""Commands about scores of a custom model."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import main, options, wrote

__all__: list[str] = []


@main.command(name="scored-digits")
@click.option(
    "--to", type=click.Path(path_type=Path), default=Path(), show_default="here", help="Directory of the tables."
)
def scored_digits(to: Path) -> None:
    """Tables of scores of a model on scikit-learn's digits, to try `histnetq fit --proba` on.

    Example: python -m experiments scored-digits
    """
    from experiments.scored import write_tables

    wrote(*write_tables(to))


@main.command()
@options("seeds", "output")
def performance(seeds: int | None, output: Path) -> None:
    """How well `estimate_performance` foresees the accuracy and F1 of a model on digits whose mix has shifted.

    Example: python -m experiments performance
    """
    from experiments.scored import foreseen
    from experiments.tables import write_frame

    found = foreseen(seeds or 5)
    means = found.groupby(["model", "guess"], sort=False)[["accuracy", "f1"]].mean()
    lines = ["| model | accuracy and F1 are guessed by | error of accuracy | error of F1 |", "|---|---|--:|--:|"]
    for (model, guess), row in means.iterrows():
        f1 = "" if row["f1"] != row["f1"] else f"{row['f1']:.4f}"
        lines.append(f"| {model} | {guess} | {row['accuracy']:.4f} | {f1} |")
    text = (
        f"Mean absolute errors of expected accuracy and F1 on 200 bags of 200 digits of all mixes, mean of "
        f"{seeds or 5} seeds. Made by `python -m experiments performance`.\n"
    )
    write_frame(output / "performance", found, text + "\n" + "\n".join(lines))
    click.echo("\n".join(lines))
    wrote(output / "performance.csv", output / "performance.md")
