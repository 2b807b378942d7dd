"""The command that demonstrates methods on a small data set: demo."""

from __future__ import annotations

from pathlib import Path

from histnetq.cli.group import main
from histnetq.cli.options import PATH, option
from histnetq.cli.terminal import echo


@main.command()
@option("-o", "--output", type=PATH, default=Path("demo-output"), help="Directory of the report.")
def demo(output: Path) -> None:
    """Compare methods on scikit-learn's digits in two minutes.

    There are three tasks: to learn from labelled images, to learn from proportions of bags only, and to estimate bags
    from different scanners. A report is written to the output directory.

    Example: histnetq demo
    """
    try:
        from histnetq.report.demo import run_demo
    except ModuleNotFoundError as error:
        raise ImportError(f"demo: needs {error.name}; pip install 'histnetq[deep,report]'.") from None

    run_demo(echo, output)
