"""Commands about data sets."""

from __future__ import annotations

from pathlib import Path

import click

from histnetq.cli.group import PATH, main
from histnetq.cli.terminal import echo


@main.group()
def data() -> None:
    """List and fetch data sets by name."""


@data.command(name="list")
@click.option(
    "--in", "directory", type=PATH, help="Data sets are looked for in this directory.  [default: all usual places]"
)
def list_data(directory: Path | None) -> None:
    """Show the known data sets, where they come from and whether they are present.

    Example: histnetq data list
    """
    from histnetq.datasets import SOURCES

    for source in SOURCES.values():
        echo(f"{source.name:<15}{source.about}")
        echo(f"{'':<15}from {source.origin}: {source.state(directory)}")


@data.command()
@click.argument("name")
@click.option("--to", type=PATH, help="The files go to this directory.  [default: where loaders look]")
@click.option("--url", help="The files come from this address, of a folder with the same files or of one file.")
@click.option("--sha256", multiple=True,
              help="This checksum is verified: digits for one file, FILE=DIGITS for one of several.")  # fmt: skip
def fetch(name: str, to: Path | None, url: str | None, sha256: tuple[str, ...]) -> None:
    """Download the data set NAME from its public record; sizes and checksums are verified.

    Example: histnetq data fetch fashion-mnist --to data
    """
    from histnetq.datasets import fetch as fetch_dataset

    fetch_dataset(name, to, url=url, sha256=sha256, say=echo)
