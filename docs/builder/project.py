"""The files at the root of the project as pages of the site, and links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_FILES = {f"{name.upper()}.md": f"{name}.md" for name in ("changelog", "contributing", "releasing", "security")}
_LINK = re.compile(r"\]\((?P<up>(?:\.\./)?)(?P<path>[A-Z]+\.md)")


def pages() -> dict[str, str]:
    """Give the pages in Markdown by file name; their links lead to the pages of the site."""
    found = {name: (_ROOT / file).read_text(encoding="utf-8") for file, name in _FILES.items()}
    return {name: _LINK.sub(_moved, text).replace("](docs/", "](../") for name, text in found.items()}


def relink(app: Any, name: str, source: list[str]) -> None:
    """Let links of a page to files at the root lead to their pages, so that they work in the repository as well."""
    source[0] = re.sub(r"\]\(\.\./([A-Z]+\.md)", lambda found: f"](/project/{_FILES[found[1]]}", source[0])


def _moved(found: re.Match[str]) -> str:
    return f"]({_FILES[found['path']]}"
