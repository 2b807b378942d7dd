"""Check that the pages fetch nothing from other servers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.util import logging

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|link)\b[^>]*?(?:src|href)=["']((?:https?:)?//[^"']+)"""
    r"""|url\(["']?((?:https?:)?//[^)"']+)|@import\s+["']((?:https?:)?//[^"']+)"""
)


def check_pages(app: Any, failure: Exception | None) -> None:
    """Warn of every external address that a page or a style sheet would fetch; a warning fails the build."""
    if failure is not None:
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in (".html", ".css"):
            for address in fetched(path.read_text(encoding="utf-8")):
                logging.getLogger(__name__).warning("%s fetches %s", path.relative_to(app.outdir), address)


def fetched(text: str) -> list[str]:
    """List the addresses on other servers that a page or a style sheet fetches."""
    return [address for found in _FETCHED.findall(text) for address in found if address]
