"""Budgets of experiments: trials, epochs and minutes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

__all__ = ["BUDGETS", "VARIANTS", "Budget"]


@dataclass(frozen=True)
class Budget:
    """The same for every method of a table.

    Parameters
    ----------
    trials : int
        Settings tried on validation bags.
    trial_epochs, epochs : int
        Networks: epochs of every trial, and of the best one, which goes on from there.
    minutes, trial_minutes : float, optional
        Largest number of minutes that a network is trained.
    seeds : int
    """

    trials: int
    trial_epochs: int
    epochs: int
    minutes: float | None = None
    trial_minutes: float | None = None
    seeds: int = 1

    def words(self) -> str:
        """Describe the training of networks, for the reader of a table."""
        trial = _length(self.trial_epochs, self.trial_minutes)
        chosen = f"networks after {trial} each, the best going on to " if self.trials > 1 else ""
        return f"{chosen}at most {_length(self.epochs, self.minutes)}; seeds: {self.seeds}"

    def at(self, pace: float) -> Budget:
        """The same with more minutes, for data on which everything takes longer."""
        limits = {key: value and pace * value for key, value in vars(self).items() if key.endswith("minutes")}
        return dataclasses.replace(self, **limits)

    def longer(self, times: float) -> Budget:
        """The same with more epochs and more minutes, for data on which everything needs more of them."""
        return dataclasses.replace(self.at(times), epochs=round(times * self.epochs))

    def name(self, measure: str) -> str:
        """A directory for the runs of this budget that are chosen by the measure."""
        limit = "" if self.minutes is None else f"-{self.minutes:g}min"
        return f"{measure}-{self.trials}x{self.trial_epochs}-{self.epochs}{limit}"


def _length(epochs: int, minutes: float | None) -> str:
    return f"{epochs} epochs" + (f" or {minutes:.2g} minutes" if minutes else "")


BUDGETS = {
    "quick": Budget(trials=4, trial_epochs=16, epochs=200, minutes=2.0, trial_minutes=0.4),
    "full": Budget(trials=4, trial_epochs=60, epochs=400, seeds=3),
}
# Budgets of experiments that vary one thing and choose no settings.
VARIANTS = {
    "quick": Budget(trials=1, trial_epochs=1, epochs=25, minutes=1.5),
    "full": Budget(trials=1, trial_epochs=1, epochs=400, seeds=3),
}
