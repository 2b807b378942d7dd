"""A report about a model and the bags of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from histnetq.quantifiers.base import Quantifier
from histnetq.report.page import write_report
from histnetq.workflows.estimating import COVERAGE, Place, as_model, by_class, find_intervals, judge
from histnetq.workflows.reading import reader


def report_table(
    path: Path,
    model: Quantifier | Place,
    source: Any,
    *,
    against: Sequence[Place] = (),
    coverage: float = COVERAGE,
    command: str = "",
    sources: Sequence[str] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Write a page about a model and the bags of a table, whose proportions may be known.

    The page calls the table by its path, or by the names in `sources`. Options are those of `reader`.
    """
    model, read = as_model(model), reader(source, **options)
    bags, unseen = read(model)
    _, intervals = find_intervals(model, bags, coverage)
    others = {str(other): as_model(other) for other in against}
    rivals = {name: by_class(other, read(other)[0]) for name, other in others.items()}
    names = sources if sources is not None else source if isinstance(source, list) else [source]
    trust = judge(model, bags, unseen)
    write_report(
        path,
        model=model,
        bags=bags,
        intervals=intervals,
        trust=trust,
        rivals=rivals,
        command=command,
        overwrite=overwrite,
        sources=names,
    )
