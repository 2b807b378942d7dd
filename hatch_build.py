"""The README as a registry shows it: its relative links lead to the files of this version in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<path>[^)\s]+)\)")


class RegistryReadme(MetadataHookInterface):
    """Put README.md with absolute links into the metadata of both distributions."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme` of the project table, which `dynamic` names."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        absolute = absolute_links(text, metadata["urls"]["Homepage"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute}


def absolute_links(text: str, home: str, version: str) -> str:
    """Let relative links of Markdown lead to the tag of a version, where images are files and not pages about them."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}[{found['text']}]({home}/{kind}/v{version}/{found['path']})"

    return _RELATIVE.sub(absolute, text)
