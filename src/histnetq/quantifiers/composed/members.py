"""The base of quantifiers that contain fitted members: storing the members and combining their sketches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from histnetq.bags.bags import Bags
from histnetq.persistence.model_files import check_manifest
from histnetq.persistence.saving import Arrays, Stored, restored, to_config
from histnetq.quantifiers.base import Quantifier
from histnetq.registry import REGISTRY
from histnetq.simplex import Floats
from histnetq.sketches.sketcher import NoSketcher, Sketcher

MOST_MEMBERS = 1000


class StoredMembers(Stored):
    """The fitted members, each stored as a complete model within the arrays and the configuration."""

    def described(self, model: Any) -> tuple[Arrays, dict[str, Any]]:
        arrays: Arrays = {}
        configs = []
        for i, member in enumerate(model.members_):
            own: Arrays = {}
            configs.append(to_config(member, own))
            arrays |= {f"members/{i}/{name}": array for name, array in own.items()}
        return arrays, {"members": configs}

    def restore(self, model: Any, arrays: Arrays, learned: dict[str, Any]) -> None:
        model.members_ = []
        refuse_many_members("path", len(learned["members"]))
        # The arrays are grouped in one pass: a pass for each member would take minutes for many members.
        parts: defaultdict[str, Arrays] = defaultdict(dict)
        for name, array in arrays.items():
            group, _, rest = name.partition("/")
            place, _, own_name = rest.partition("/")
            if group == "members":
                parts[place][own_name] = array
        for i, config in enumerate(learned["members"]):
            check_manifest(Path(f"members/{i}"), config, is_member=True)
            own = parts[str(i)]
            member = restored(REGISTRY[config["estimator"]].load(), config, own, learned["trust"], {})
            same = member.classes_.tolist() == model.classes_.tolist() and member.input_shape_ == model.input_shape_
            if not same or member.scores_ != model.scores_:
                raise ValueError(f"path: member {i} reads other rows or classes than the model; save again.")
            model.members_.append(member)
        if not model.members_:
            raise ValueError("path: the model has no members; save again.")


def refuse_many_members(name: str, n_members: int) -> None:
    """Refuse more members than a composed quantifier may have, in `fit` and in `load`."""
    if n_members > MOST_MEMBERS:
        raise ValueError(f"{name}: expected at most {MOST_MEMBERS:,} members, got {n_members:,}; use fewer.")


@dataclass(eq=False, repr=False, kw_only=True)
class Composed(Quantifier):
    """Base of composed quantifiers: a method implements ``_combine`` and `fit`, which calls ``_learned_by``."""

    stored: ClassVar[tuple[Stored, ...]] = (StoredMembers(),)

    def _learned_by(self, members: list[Quantifier]) -> None:
        """Keep fitted members, and take the classes and features from the first member."""
        first = members[0]
        self._learned_from(
            first.classes_, first.input_shape_, first.feature_names_, first.train_prevalences_, first.double_,
            first.scores_, first.text_,
        )  # fmt: skip
        for member in members:  # only the composed quantifier reads tables, so the vocabulary is stored once
            member.text_ = None
        self.members_ = members

    def _combine(self, estimates: Floats) -> Floats:
        """Combine the estimates of all members: (n_members, n_bags, n_classes) → (n_bags, n_classes)."""
        raise NotImplementedError

    def _predict(self, bags: Bags) -> Floats:
        return self._combine(np.stack([member.predict(bags) for member in self.members_]))

    def _range(self) -> tuple[NDArray, NDArray] | None:
        ends = [found for member in self.members_ if (found := member._range()) is not None]
        if not ends:
            return None
        return np.max([low for low, _ in ends], axis=0), np.min([high for _, high in ends], axis=0)

    def _reads_any_rows(self) -> bool:
        return all(member._reads_any_rows() for member in self.members_)

    def _sketcher(self) -> Sketcher:
        parts = [member._sketcher() for member in self.members_]
        for part in parts:
            if isinstance(part, NoSketcher):
                return part
        if len({part.merge for part in parts}) > 1:
            return NoSketcher(
                f"{type(self).__name__} has members whose sketches are merged in different ways; use others."
            )
        return _SideBySide(self, parts)


class _SideBySide(Sketcher):
    """Sketches that concatenate the flat states of all members."""

    def __init__(self, q: Composed, parts: list[Sketcher]) -> None:
        self.q, self.parts, self.merge = q, parts, parts[0].merge
        self.kind = "exact" if all(part.kind == "exact" for part in parts) else "binned"

    def identity(self) -> str:
        return " and ".join(part.identity() for part in self.parts)

    def state(self, bags: Bags) -> NDArray:
        return np.concatenate([part.state(bags).reshape(len(bags), -1) for part in self.parts], axis=1)

    def state_shape(self, input_shape: tuple[int, ...], n_classes: int) -> tuple[int, ...]:
        return (sum(int(np.prod(shape)) for shape in self._shapes(input_shape, n_classes)),)

    def _shapes(self, input_shape: tuple[int, ...], n_classes: int) -> list[tuple[int, ...]]:
        return [part.state_shape(input_shape, n_classes) for part in self.parts]

    def estimate(self, values: NDArray, totals: NDArray) -> Floats:
        shapes = self._shapes(self.q.input_shape_, len(self.q.classes_))
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        split = np.split(np.asarray(values), ends, axis=1)
        found = [
            part.estimate(state.reshape(len(state), *shape), totals)
            for part, state, shape in zip(self.parts, split, shapes, strict=True)
        ]
        return self.q._combine(np.stack(found))
