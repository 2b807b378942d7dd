"""`Shelf`: the served models, found by name in one directory and loaded once."""

from __future__ import annotations

import os
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from histnetq.evaluation.comparison import BASELINE
from histnetq.persistence.model_files import array_shapes, read_manifest, require_known_method
from histnetq.quantifiers.base import Quantifier
from histnetq.quantifiers.loading import load
from histnetq.tables.columns import OTHER
from histnetq.web.errors import RefusedError, as_refusals, in_one_sentence

_CONFIG = "config.json"
_MOST_LOADED = 8
_GONE = "model: it is not there any more; choose one that /v1/models lists."
_NAME = re.compile(r"[^\W_][\w.-]{0,63}")
Stamp = tuple[int, int, int]


class Shelf:
    """Models in the subdirectories of one directory, or a single model.

    A requested name is compared with the names of the subdirectories before it becomes part of a path.

    Parameters
    ----------
    place : path
        A directory of models, or the directory of a single model.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.single = place, (place / _CONFIG).is_file()
        self._cards: dict[str, tuple[Stamp, dict[str, Any]]] = {}
        self._loaded: OrderedDict[str, tuple[Stamp, Quantifier]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the names of the models."""
        if self.single:
            return [self.place.resolve().name]
        try:
            found = [entry.name for entry in os.scandir(self.place) if not entry.name.startswith(".")]
        except OSError:
            raise RefusedError(
                404, "models: their directory cannot be read any more; start the server again."
            ) from None
        return sorted(name for name in found if (self.place / name / _CONFIG).is_file())

    def find(self, name: str) -> Path:
        """Return the directory of a model; refuse a link that leaves the served directory."""
        try:
            if not self._has(name):
                raise RefusedError(404, "model: there is none of this name; choose one that /v1/models lists.")
            path = self.place if self.single else self.place / name
            root = os.path.realpath(self.place)
            inside = os.path.realpath(path) == (root if self.single else os.path.join(root, name))
            if not inside or any(entry.is_symlink() for entry in os.scandir(path)):
                raise RefusedError(403, f"model: {name} points outside of its directory; copy the model there.")
        except OSError:  # the model was deleted meanwhile
            raise RefusedError(404, _GONE) from None
        return path

    def _has(self, name: str) -> bool:
        """Return whether a model has this name; only a known name becomes part of a path."""
        if self.single:
            return name == self.place.resolve().name
        known = name in os.listdir(self.place) and not name.startswith(".")
        return known and (self.place / name / _CONFIG).is_file()

    def cards(self) -> list[dict[str, Any]]:
        """Describe all models; a model that cannot be read is described by the reason."""
        found = []
        for name in self.names():
            try:
                found.append(self.card(name))
            except RefusedError as error:
                found.append({"name": name, "problem": error.sentence})
        return found

    def card(self, name: str) -> dict[str, Any]:
        """Describe a model, without reading its weights."""
        path = self.find(name)
        with as_refusals(path.parent):
            stamp = _stamp(path)
            known = self._cards.get(name)
            if known is None or known[0] != stamp:
                self._cards[name] = known = stamp, _card(name, path)
        return known[1]

    def model(self, name: str) -> Quantifier:
        """Return a model; load it if it is new or has changed."""
        path = self.find(name)
        with as_refusals(path.parent), self._lock:
            stamp = _stamp(path)
            known = self._loaded.get(name)
            if known is None or known[0] != stamp:
                self._loaded[name] = known = stamp, load(path)
            self._loaded.move_to_end(name)
            if len(self._loaded) > _MOST_LOADED:
                self._loaded.popitem(last=False)
        return known[1]

    def refuse_name(self, name: str) -> None:
        """Refuse a name that a new model may not have."""
        if self.single:
            raise RefusedError(409, "name: one model is served alone; start histnetq serve with a directory of models.")
        if not _NAME.fullmatch(name) or name != unicodedata.normalize("NFKC", name) or name.endswith("."):
            raise RefusedError(
                422, "name: expected at most 64 letters, digits, '_', '-' and '.', beginning with a letter or "
                "digit, without a '.' at the end, ligatures and other special letters; choose another.",
            )  # fmt: skip
        if os.path.lexists(self.place / name):
            raise RefusedError(409, f"name: {name} exists already; choose another.")
        alike = next((other for other in os.listdir(self.place) if _folded(other) == _folded(name)), None)
        if alike is not None:
            raise RefusedError(409, f"name: {name} looks like {alike}, which exists already; choose another.")


def _folded(name: str) -> str:
    """Return the same text for names that look alike, such as names that differ in case or in ligatures.

    Examples
    --------
    >>> _folded("\ufb01sh") == _folded("FISH")
    True
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _stamp(path: Path) -> Stamp:
    try:
        about = (path / _CONFIG).stat()
    except FileNotFoundError:
        raise RefusedError(404, _GONE) from None
    return about.st_ino, about.st_mtime_ns, about.st_size


def _card(name: str, path: Path) -> dict[str, Any]:
    about = read_manifest(path)
    require_known_method(path, about)
    known, learned = about["provenance"] or {}, about["learned"]
    n_scores = sum(array_shapes(path, about).get("calibration/joint_scores", []))
    calibrating = known.get("calibration_bags") or n_scores
    method, errors = about["estimator"], known.get("errors")
    return {
        "name": name, "problem": None, "method": method, "classes": about["classes"],
        "train_prevalences": about["train_prevalences"],
        "learned_from": {key: known.get(key) for key in ("sources", "bags", "rows", "date", "command", "seconds")},
        "columns": None if about["feature_names"] is None else expected_columns(about["feature_names"]),
        "scores": bool(about.get("scores")),
        "errors": None if errors is None else _errors(errors),
        "intervals": {
            "calibrated": n_scores > 0, "bags": int(calibrating), "words": str(known.get("calibrated", "")),
        },
        "left_out": known.get("left_out") or {}, "why": str(known.get("why", "")),
        "warning": in_one_sentence(str(learned.get("learned_nothing", ""))),
    }  # fmt: skip


def _errors(errors: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of the compared methods; the lowest is the error of the model."""
    methods = {str(name): float(value) for name, value in errors["ae"].items()}
    own = {name: value for name, value in methods.items() if name != BASELINE} or methods
    return {"bags": int(errors["bags"]), "ae": min(own.values()), "methods": methods}


def expected_columns(features: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns that a table needs for these features; ``column=text`` is an indicator of a text column.

    Examples
    --------
    >>> expected_columns(["length", "sex=f", "sex=m"])
    [{'name': 'length', 'kind': 'number'}, {'name': 'sex', 'kind': 'text', 'values': ['f', 'm']}]
    """
    columns: dict[str, dict[str, Any]] = {}
    for feature in features:
        name, sign, value = feature.removeprefix(OTHER).partition("=")
        if sign:
            columns.setdefault(name, {"name": name, "kind": "text", "values": []})["values"].append(value)
        else:
            columns.setdefault(name, {"name": name, "kind": "number"})
    return list(columns.values())
