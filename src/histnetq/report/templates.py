"""`template`: the HTML templates of pages, with escaped values."""

from __future__ import annotations

import html
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from histnetq.evaluation.plots import require_matplotlib

if TYPE_CHECKING:
    from jinja2 import Template


def require_pages() -> None:
    """Raise an ImportError with the command to install the packages that pages need, if they are missing."""
    require_matplotlib()
    if find_spec("jinja2") is None:
        raise ImportError("pages need jinja2; install it by pip install 'histnetq[report]'.")


def template(name: str) -> Template:
    """Return a template of this package. Its filter `number` is Python's `format`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("histnetq.report", "."), autoescape=True, trim_blocks=True, undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else Markup(escaped(value)),
    )  # fmt: skip
    environment.filters["number"] = format
    return environment.get_template(name)


def escaped(value: Any) -> str:
    """Return a value as text that is safe in HTML."""
    return html.escape(str(value))
