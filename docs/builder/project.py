"""Pages of the site from files at the root of the project, and links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_FILES = {f"{name.upper()}.md": f"{name}.md" for name in ("changelog", "contributing", "releasing", "security")}
_LINK = re.compile(r"\]\((?P<up>(?:\.\./)?)(?P<path>[A-Z]+\.md)")


def pages() -> dict[str, str]:
    """Return the Markdown pages by file name, with links that point to pages of the site."""
    found = {name: (_ROOT / file).read_text(encoding="utf-8") for file, name in _FILES.items()}
    return {name: _LINK.sub(_moved, text).replace("](docs/", "](../") for name, text in found.items()}


def relink(app: Any, name: str, source: list[str]) -> None:
    """Point links to files at the root to their pages; in the repository the same links open the files."""
    source[0] = re.sub(r"\]\(\.\./([A-Z]+\.md)", lambda found: f"](/project/{_FILES[found[1]]}", source[0])


def _moved(found: re.Match[str]) -> str:
    return f"]({_FILES[found['path']]}"
