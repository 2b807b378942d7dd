"""Reference pages of the public names of the package, and their index."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import histnetq as hq
from histnetq.registry import REGISTRY

_PACKAGES = {
    "quantifiers": "Quantifiers",
    "bags": "Bags and protocols",
    "tables": "Tables and images",
    "evaluation": "Evaluate, compare, tune",
    "uncertainty": "Intervals and audits",
    "workflows": "Workflows",
    "sketches": "Sketches",
    "training": "Training",
    "persistence": "Saved models",
    "metrics": "Errors",
}
_MODULES = {
    "datasets": "Named data sets",
    "interop": "Conversion from and to QuaPy",
    "metrics": "Errors of estimates",
    "nn": "Layers and networks",
    "plots": "Plots with matplotlib",
    "simplex": "Vectors of proportions",
}


def public_names() -> dict[str, Any]:
    """Return every public object of the package and of its public modules, by dotted name."""
    found = {}
    for name in hq.__all__:
        thing = getattr(hq, name)
        if isinstance(thing, ModuleType):
            found |= {f"histnetq.{name}.{inner}": getattr(thing, inner) for inner in thing.__all__}
        else:
            found[f"histnetq.{name}"] = thing
    return found


def pages() -> dict[str, str]:
    """Return the reStructuredText pages by file name."""
    names = public_names()
    return {"index.rst": _index(names)} | {f"{dotted}.rst": _page(dotted, thing) for dotted, thing in names.items()}


def members(kind: type) -> list[str]:
    """List the public methods and properties of a class that are defined in this package, including inherited ones."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("histnetq.")]
    found = dict.fromkeys(name for base in ours for name in vars(base) if not name.startswith("_"))
    return sorted(name for name in found if _is_member(inspect.getattr_static(kind, name), getattr(kind, name)))


def _is_member(static: Any, value: Any) -> bool:
    if isinstance(static, property):
        return bool(static.__doc__)
    return inspect.isroutine(value) and str(value.__module__).startswith("histnetq.")


def _page(dotted: str, thing: Any) -> str:
    title = _title(dotted, "=")
    if inspect.isclass(thing):
        listed = members(thing)
        return f"{title}\n.. autoclass:: {dotted}\n" + (f"   :members: {', '.join(listed)}\n" if listed else "")
    if callable(thing):
        return f"{title}\n.. autofunction:: {dotted}\n"
    return f"{title}\n.. py:data:: {dotted}\n\n   {_summary(thing)}\n"


def _index(names: dict[str, Any]) -> str:
    """Return the index: sections by package, with quantifiers in the order of the registry, then sections by module."""
    groups: dict[str, list[str]] = {title: [] for title in _PACKAGES.values()}
    order = [f"histnetq.{name}" for name in REGISTRY]
    for dotted in [*order, *sorted(names.keys() - set(order))]:
        first, _, inner = dotted.removeprefix("histnetq.").partition(".")
        if inner:
            title = f"histnetq.{first}: {_MODULES.get(first, first)}"
        else:
            title = _PACKAGES[names[dotted].__module__.split(".")[1]]
        groups.setdefault(title, []).append(dotted)
    intro = (
        "All public names of ``import histnetq as hq``. Every quantifier implements :py:class:`histnetq.Quantifier`.\n"
    )
    return "\n".join([_title("Python reference", "="), intro, *_sections(groups, names), _toctree(names)])


def _sections(groups: dict[str, list[str]], names: dict[str, Any]) -> Iterator[str]:
    for title, listed in groups.items():
        if listed:
            rows = [f"   * - :py:obj:`{dotted}`\n     - {_about(dotted, names[dotted])}" for dotted in listed]
            yield f"{_title(title, '-')}\n.. list-table::\n   :widths: 40 60\n\n" + "\n".join(rows) + "\n"


def _about(dotted: str, thing: Any) -> str:
    entry = REGISTRY.get(dotted.removeprefix("histnetq."))
    return _summary(thing) + (f" *Learns from {entry.learns_from}.*" if entry else "")


def _toctree(names: dict[str, Any]) -> str:
    return "\n".join([".. toctree::", "   :hidden:", "", *(f"   {dotted}" for dotted in names)]) + "\n"


def _summary(thing: Any) -> str:
    """Return the first sentence of the docstring, or a description of a constant."""
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    if isinstance(thing, dict):
        return f"A dict with the keys {', '.join(f'``{key!r}``' for key in thing)}."
    return f"An alias of ``{thing}``."


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"
