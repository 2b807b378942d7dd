"""An HTML page about the routes, made from the OpenAPI schema; it has no scripts and needs no network."""

from __future__ import annotations

from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>histnetq</title></head>
<body>
<h1>The service of histnetq</h1>
<p>The schema of these routes is at <a href="/openapi.json">/openapi.json</a>. A refused request gets JSON with one
entry, <code>error</code>, which is a sentence.</p>
"""


def page(schema: dict[str, Any]) -> str:
    """Return the page.

    Examples
    --------
    >>> "<h2><code>GET /x</code></h2>" in page({"paths": {"/x": {"get": {"description": "Return x."}}}})
    True
    """
    parts = [_HEAD]
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>\n")
            parts.append(f"<p>{escape(about.get('description', ''))}</p>\n")
            if about.get("parameters"):
                items = "".join(_item(parameter) for parameter in about["parameters"])
                parts.append(f"<ul>{items}</ul>\n")
    return "".join([*parts, "</body>\n</html>\n"])


def _item(parameter: dict[str, Any]) -> str:
    needed = "needed" if parameter.get("required") else "optional"
    return f"<li><code>{escape(parameter['name'])}</code> ({escape(parameter['in'])}, {needed})</li>"
