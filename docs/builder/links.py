"""Links from names of the package in running text to their reference pages."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref

from builder.reference import public_names

_CALL = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:\(.*\))?")


def link_names(app: Any, doctree: nodes.document) -> None:
    """Turn each literal that is a public name, or a call of one, into a reference."""
    known = public_names()
    for literal in list(doctree.findall(nodes.literal)):
        target = _target(literal.astext(), known)
        if target and not isinstance(literal.parent, nodes.reference | pending_xref | nodes.title):
            where = {"refdomain": "py", "reftype": "obj", "reftarget": target, "refdoc": app.env.docname}
            reference = pending_xref("", **where)
            literal.replace_self(reference)
            reference += literal


def _target(text: str, known: dict[str, Any]) -> str | None:
    """Return the dotted name for a text; plain `evaluate` is a command, while `hq.evaluate` is a name."""
    found = _CALL.fullmatch(text)
    if found is None:
        return None
    name = re.sub(r"^hq\.", "histnetq.", found["name"])
    if name[0].isupper():
        name = f"histnetq.{name}"
    return name if name in known else None
