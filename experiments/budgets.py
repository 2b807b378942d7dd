"""How much work goes into an experiment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BUDGETS", "Budget"]


@dataclass(frozen=True)
class Budget:
    """The same for every method of a table.

    Parameters
    ----------
    trials : int
        Settings tried on validation bags.
    trial_epochs, epochs : int
        Networks: epochs of every trial, and of the best one, which goes on from there.
    minutes : float, optional
        Networks: no epoch begins after so many minutes of training; trials have a quarter of them each.
    seeds : int
    """

    trials: int
    trial_epochs: int
    epochs: int
    minutes: float | None = None
    seeds: int = 1

    def limit(self) -> str:
        """The minutes, in words."""
        return "" if self.minutes is None else f" or {self.minutes:g} minutes"

    def name(self, measure: str) -> str:
        """A directory for the runs of this budget that are chosen by the measure."""
        limit = "" if self.minutes is None else f"-{self.minutes:g}min"
        return f"{measure}-{self.trials}x{self.trial_epochs}-{self.epochs}{limit}"


BUDGETS = {
    "quick": Budget(trials=4, trial_epochs=10, epochs=80, minutes=1.5),
    "full": Budget(trials=8, trial_epochs=60, epochs=400, seeds=3),
}
