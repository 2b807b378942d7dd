"""Sphinx extension that generates pages and figures, and checks the finished site.

The pages about public names and commands are generated from the package itself, so a method in the registry gets its
page automatically. Formulas become MathML, and names of the package become links. A page that fetches something from
another server fails the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builder import commands, figures, links, mathml, offline, project, reference


def write_pages(app: Any) -> None:
    """Write the generated pages and figures into separate folders."""
    folder = Path(app.srcdir)
    for name, pages in (("api", reference.pages()), ("commands", commands.pages()), ("project", project.pages())):
        replace_files(folder / name, {file: text.encode() for file, text in pages.items()})
    replace_files(folder / "drawn", {f"{name}.svg": figures.svg(draw) for name, draw in figures.FIGURES.items()})


def replace_files(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder contain exactly these files; unchanged files are not written, so they are not built again."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def setup(app: Any) -> dict[str, Any]:
    """Register the handlers with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", project.relink)
    app.connect("doctree-read", links.link_names)
    app.connect("build-finished", offline.check_pages)
    app.add_html_math_renderer("mathml", inline_renderers=mathml.INLINE, block_renderers=mathml.BLOCK)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
