"""Commands that go from the data of a LeQua task to its submission."""

from __future__ import annotations

from pathlib import Path

import click

from experiments.arguments import budget_of, choose, main, options, wrote

__all__: list[str] = []

_TASKS = {
    "lequa2022-t1a": "LeQua 2022, T1A: 2 classes",
    "lequa2022-t1b": "LeQua 2022, T1B: 28 classes",
    "lequa2024-t1": "LeQua 2024, T1: 2 classes",
    "lequa2024-t2": "LeQua 2024, T2: 28 classes",
    "lequa2024-t3": "LeQua 2024, T3: 5 ordered classes",
    "lequa2024-t4": "LeQua 2024, T4: 2 classes, under covariate shift",
}
_SEEDS = 3  # of an ensemble


def _submission(name: str, what: str) -> None:
    """Add a command for a task."""

    @main.command(
        name=name,
        help=f"From data to a submission: {what}.\n\nExample: python -m experiments {name} --data DIR",
    )
    @options("methods", "budget", "seeds", "trials", "epochs", "data", "work", "output")
    def run(
        methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None,
        data: Path, work: Path, output: Path,
    ) -> None:  # fmt: skip
        from experiments.budgets import BUDGETS
        from experiments.lequa import METHODS, RECIPES, submit
        from histnetq.datasets import read_lequa

        chosen = choose(methods, METHODS)
        budget = budget_of(BUDGETS, budget_name, seeds=seeds or _SEEDS, trials=trials, epochs=epochs)
        try:
            read = read_lequa(RECIPES[name].task, data)
        except FileNotFoundError as error:
            raise click.BadParameter(str(error), param_hint="--data") from None
        wrote(*submit(name, read, chosen, budget, work, output, click.echo))


for _name, _what in _TASKS.items():
    _submission(_name, _what)


@main.command()
@options("methods", "budget", "seeds", "trials", "epochs", "data", "work", "output")
def ordinal(
    methods: str | None, budget_name: str, seeds: int | None, trials: int | None, epochs: int | None,
    data: Path, work: Path, output: Path,
) -> None:  # fmt: skip
    """All methods on five ordered classes, an analogue of LeQua's T3: the tone of comments, from GoEmotions.

    Example: python -m experiments ordinal --data DIRECTORY
    """
    from experiments.budgets import BUDGETS
    from experiments.ordinal import METHODS, fill, load

    chosen = choose(methods, METHODS)
    budget = budget_of(BUDGETS, budget_name, seeds=seeds, trials=trials, epochs=epochs)
    try:
        read = load(data)
    except FileNotFoundError as error:
        raise click.BadParameter(f"{error.filename} does not exist.", param_hint="--data") from None
    wrote(*fill(read, chosen, budget, work, output, click.echo))
