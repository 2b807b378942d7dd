"""The command that measures errors of a model: evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histnetq.cli.group import count, main, say, write_files
from histnetq.cli.options import KNOWN, KNOWN_IMAGES, TABLE_FILE, WEIGHTS, how_to_read, option, options


@main.command()
@options("MODEL", "TABLE", "bag", *KNOWN, *WEIGHTS, "missing", *KNOWN_IMAGES, "coverage", "interval")
@option("-o", "--output", type=TABLE_FILE, help="File of the errors of each bag: .csv, .parquet, .xlsx or .json.")
@options("force", "json")
def evaluate(model: Path, table: list[str], output: Path | None, force: bool, as_json: bool, **known: Any) -> None:
    """Measure the errors of a model on bags of known proportions.

    MODEL estimates the bags of TABLE. The mean absolute error (AE) and the mean relative absolute error (RAE) are
    printed. The estimate of a class that the model does not know is 0. The coverage and the mean width of the intervals
    are printed as well. They are the intervals that histnetq predict writes, or those that --interval names.

    \b
    Examples: histnetq evaluate model rows.csv --bag tow --label species
              histnetq evaluate model rows.csv --bag tow --label species --interval bayes
              histnetq evaluate model scans --images --label taxon
    """
    from histnetq.workflows.estimating import score

    found = score(model, table, **how_to_read(known))
    errors, means, floor, covered = found.errors, found.means, found.floor, found.coverage
    write_files(("output", output, errors, force))
    sentence = f"{count(len(errors), 'bag')}: mean AE {means['ae']:.4f}, mean RAE {means['rae']:.4f}; "
    sentence += f"baseline (training mean): {floor['ae']:.4f} and {floor['rae']:.4f}."
    if means["ae"] >= floor["ae"]:
        sentence += " The model is no better than the baseline on these bags."
    lines = [sentence, *([found.learned_nothing] if found.learned_nothing else [])]
    if covered:
        lines.append(
            f"Of the {covered['nominal']:.0%} {found.interval} intervals, {covered['seen']:.1%} contain the truth; "
            f"their mean width is {covered['mean width']:.4f}."
        )
    if found.n_doubted:
        lines.append(f"Unlike the training data: {count(found.n_doubted, 'bag')}; predict names the doubts in trust.")
    lines += [] if output is None else [f"Written to {output}."]
    facts = {"bags": len(errors), **means, "baseline": floor, "learned_nothing": found.learned_nothing}
    facts["doubted"] = found.n_doubted
    say(as_json, facts | ({"interval": found.interval, "coverage": covered} if covered else {}), lines)
