"""The command line: arguments only."""

from __future__ import annotations

import click

__all__ = ["main"]


@click.group()
@click.version_option(package_name="histnetq")
def main() -> None:
    """Estimate how common each class is in a bag of examples."""


@main.command()
def demo() -> None:
    """Train and compare on scikit-learn's digits, about a minute.

    Example: histnetq demo
    """
    from histnetq.demo import run_demo

    run_demo(click.echo)
