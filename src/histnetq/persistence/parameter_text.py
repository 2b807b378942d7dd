"""Descriptions of stored parameters as calls in Python."""

from __future__ import annotations

from typing import Any


def describe_call(name: Any, values: Any) -> str:
    """Return a stored object as a call in Python."""
    return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in dict(values).items())})"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    if not isinstance(value, dict):
        return repr(value)
    if isinstance(value.get("fields"), dict):
        return describe_call(value.get("type"), value["fields"])
    if isinstance(value.get("sklearn"), dict):
        return _written_classifier(value["sklearn"])
    return str(value.get("custom", "another classifier"))


def _written_classifier(described: dict[str, Any]) -> str:
    steps = described.get("steps", [])
    parts = [part for step in steps if isinstance(step, list) for part in step if isinstance(part, dict)]
    return " then ".join(map(_written_classifier, parts)) or str(described.get("type"))
