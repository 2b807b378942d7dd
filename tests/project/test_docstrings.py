"""Every public class, method and function is documented as numpydoc wants it: nothing left out, nothing made up."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

import histnetq as hq

CHECKED = {
    "GL03", "GL08", "SS01", "SS02", "SS03", "SS04", "SS06", "PR01", "PR02", "PR03", "PR04", "PR05", "PR07", "PR08",
    "PR09", "PR10", "RT01", "RT03", "RT04", "RT05", "YD01", "EX01",
}  # fmt: skip
# The example of a layer is that of its class, which calls it.
WITHOUT_EXAMPLE = {"forward", "extra_repr", "fit", "set_params", "get_params"}


def public_objects() -> Iterator[tuple[str, Any]]:
    """Dotted names and objects: public names, those of public modules, and public methods defined in this package."""
    for name in hq.__all__:
        thing = getattr(hq, name)
        if isinstance(thing, ModuleType):
            yield from members(f"histnetq.{name}", ((n, getattr(thing, n)) for n in thing.__all__))
        else:
            yield from members("histnetq", [(name, thing)])


def members(prefix: str, things: Any) -> Iterator[tuple[str, Any]]:
    for name, thing in things:
        if not callable(thing) or inspect.ismodule(thing):
            continue
        yield f"{prefix}.{name}", thing
        if inspect.isclass(thing):
            ours = [kind for kind in thing.__mro__ if kind.__module__.startswith("histnetq.")]
            for method in dict.fromkeys(method for kind in ours for method in vars(kind)):
                value = getattr(thing, method)
                written_here = inspect.isroutine(value) and value.__module__.startswith("histnetq.")
                if not method.startswith("_") and written_here:
                    yield f"{prefix}.{name}.{method}", value


OBJECTS = {}
for dotted, thing in public_objects():
    OBJECTS.setdefault(id(thing) if not inspect.ismethod(thing) else dotted, (dotted, thing))


@pytest.mark.parametrize(("dotted", "thing"), OBJECTS.values(), ids=[name for name, _ in OBJECTS.values()])
def test_docstring(dotted, thing):
    found = validate(get_doc_object(thing))
    errors = [f"{code}: {text}" for code, text in found["errors"] if code in CHECKED]
    if dotted.rpartition(".")[2] in WITHOUT_EXAMPLE:
        errors = [error for error in errors if not error.startswith("EX01")]
    assert not errors, "\n".join([dotted, *errors])
