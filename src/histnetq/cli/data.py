"""Commands about data sets: data list, data fetch."""

from __future__ import annotations

from pathlib import Path

import click

from histnetq.cli.group import main
from histnetq.cli.options import PATH, option
from histnetq.cli.terminal import echo


@main.group()
def data() -> None:
    """List and download data sets."""


@data.command(name="list")
@option("--in", "directory", type=PATH, help="Directory to search for data sets.  [default: all default directories]")
def list_data(directory: Path | None) -> None:
    """List the known data sets, their origin and whether they are present.

    Example: histnetq data list
    """
    from histnetq.datasets import SOURCES

    for source in SOURCES.values():
        echo(f"{source.name:<15}{source.about}")
        echo(f"{'':<15}from {source.origin}: {source.state(directory)}")


@data.command()
@click.argument("name")
@option("--to", type=PATH, help="Directory of the files.  [default: the directory where loaders look]")
@option("--url", help="Address of a folder with the same files, or of one file.")
@option("--sha256", multiple=True, help="Expected checksum: DIGITS for one file, FILE=DIGITS for one of several.")
def fetch(name: str, to: Path | None, url: str | None, sha256: tuple[str, ...]) -> None:
    """Download a data set.

    NAME is downloaded from its public record. Sizes and checksums are verified.

    Example: histnetq data fetch fashion-mnist --to data
    """
    from histnetq.datasets import fetch as fetch_dataset

    fetch_dataset(name, to, url=url, sha256=sha256, say=echo)
