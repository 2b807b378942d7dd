"""`Space`: the parameters that `tune` searches, as a user writes them and as Optuna wants them."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from histnetq.quantifiers.base import Quantifier

__all__ = ["Space"]


@dataclass(frozen=True)
class Space:
    """Distributions for Optuna; choices are drawn by their position, since Optuna stores plain values only."""

    distributions: dict[str, Any]
    choices: dict[str, list[Any]]

    @classmethod
    def of(cls, quantifier: Quantifier, space: Mapping[str, Any], optuna: Any) -> Space:
        kinds = optuna.distributions
        found: dict[str, Any] = {}
        choices: dict[str, list[Any]] = {}
        for name, values in space.items():
            if isinstance(values, kinds.CategoricalDistribution):
                values = list(values.choices)
            if isinstance(values, list) and values:
                found[name], choices[name] = kinds.CategoricalDistribution(tuple(range(len(values)))), values
            elif isinstance(values, kinds.BaseDistribution):
                found[name] = values
            else:
                low, high, log = _range(name, values)
                kind = kinds.IntDistribution if isinstance(low, int) else kinds.FloatDistribution
                found[name] = kind(low, high, log=log)
        _refuse_unknown(quantifier, choices, found)
        return cls(found, choices)

    @property
    def size(self) -> float:
        """Number of combinations."""
        only_lists = len(self.choices) == len(self.distributions)
        return math.prod(map(len, self.choices.values())) if only_lists else math.inf

    def n_trials(self, wanted: int | None) -> int:
        if wanted is None and self.size == math.inf:
            raise ValueError("trials: expected a number, as the space has ranges, got None; pass it, or lists alone.")
        if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, Integral) or wanted < 1):
            raise ValueError(f"trials: expected a whole number of at least 1, got {wanted!r}.")
        return int(min(self.size, math.inf if wanted is None else wanted))

    def missing(self, tried: list[dict[str, Any]]) -> list[dict[str, int]]:
        """The combinations that were not tried."""
        positions = itertools.product(*(range(len(v)) for v in self.choices.values()))
        return [p for p in (dict(zip(self.choices, c, strict=True)) for c in positions) if p not in tried]

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """What Optuna suggests, with choices for their positions."""
        return {n: self.choices[n][params[n]] if n in self.choices else params[n] for n in self.distributions}


def _refuse_unknown(quantifier: Quantifier, choices: Mapping[str, list[Any]], names: Iterable[str]) -> None:
    valid = set(quantifier.get_params())
    for name, values in choices.items():
        nested = [value.get_params() for value in values if hasattr(value, "get_params")]
        valid.update(f"{name}__{inner}" for params in nested for inner in params)
    for name in names:
        if name not in valid:
            if not valid:
                raise ValueError(f"space: {type(quantifier).__name__} has no parameters to search.")
            near = difflib.get_close_matches(name, sorted(valid), 3, 0.5) or sorted(quantifier.get_params(deep=False))
            raise ValueError(
                f"space: {type(quantifier).__name__} has no parameter {name!r}; did you mean {' or '.join(near)}?"
            )


def _range(name: str, values: Any) -> tuple[Any, Any, bool]:
    low, high, *rest = values if isinstance(values, tuple) and len(values) in (2, 3) else (None, None)
    numbers = all(isinstance(v, Real) and not isinstance(v, bool) for v in (low, high))
    if not numbers or rest not in ([], ["log"]):
        raise ValueError(
            f"space: expected for {name} a list of choices, (low, high), (low, high, 'log') or an Optuna distribution, "
            f"got {values!r}."
        )
    if not (low < high and (low > 0 or not rest)):
        raise ValueError(f"space: expected for {name} low < high{', low > 0' if rest else ''}, got {values!r}.")
    whole = isinstance(low, Integral) and isinstance(high, Integral)
    return (int(low), int(high), bool(rest)) if whole else (float(low), float(high), bool(rest))
