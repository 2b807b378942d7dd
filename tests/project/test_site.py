"""The site has a page for everything that is public, and its links lead somewhere; `make docs` builds it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import click
import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import histnetq as hq
from histnetq.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT) for folder in (".", "docs") for path in (ROOT / folder).glob("*.md"))
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


@pytest.fixture
def builder(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("builder")


def anchors(path):
    """The fragments that lead to the headings of a page, as GitHub and MyST make them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_public_name_has_a_page(builder):
    public = set()
    for name in hq.__all__:
        thing = getattr(hq, name)
        inner = [f"{name}.{n}" for n in thing.__all__] if isinstance(thing, ModuleType) else [name]
        public |= {f"histnetq.{n}" for n in inner}
    pages = builder.reference.pages()
    assert {f"{name}.rst" for name in public} | {"index.rst"} == set(pages)
    assert all(f":py:obj:`{name}`" in pages["index.rst"] for name in public)


def test_sections_of_the_reference_have_titles_and_not_names_of_packages(builder):
    titles = re.findall(r"^(.+)\n-+$", builder.reference.pages()["index.rst"], re.MULTILINE)
    assert "Bags and protocols" in titles
    assert all(title[0].isupper() or title.startswith("histnetq.") for title in titles), titles


def test_pages_of_classes_list_what_is_ours_alone(builder):
    listed = builder.reference.pages()["histnetq.HistNetQ.rst"]
    assert "predict_interval" in listed  # of a base
    assert "set_score_request" not in listed  # of scikit-learn
    assert "state_dict" not in builder.reference.pages()["histnetq.nn.HardHistogram.rst"]  # of torch


def all_commands():
    commands = {}
    for name, command in main.commands.items():
        group = isinstance(command, click.Group)
        commands |= {f"{name}-{own}": c for own, c in command.commands.items()} if group else {name: command}
    return commands


@pytest.mark.parametrize("command", all_commands().values(), ids=all_commands().keys())
def test_the_help_of_options_mentions_only_options_of_the_same_command(command):
    options = [param for param in command.params if isinstance(param, click.Option)]
    known = {name for option in options for name in option.opts}
    for option in options:
        assert set(re.findall(r"(?<!\S)--[a-z-]+", option.help or "")) <= known, option.name


def test_every_command_and_option_has_a_page(builder):
    pages = builder.commands.pages()
    commands = all_commands()
    assert {f"{name}.md" for name in commands} | {"index.md"} == set(pages)
    for name, command in commands.items():
        options = [option for param in command.params if isinstance(param, click.Option) for option in param.opts]
        assert all(option in pages[f"{name}.md"] for option in options)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page, builder):
    made = {"api": builder.reference, "commands": builder.commands, "project": builder.project}
    for link in _LINK.findall(_CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if target.parent.name in made and target.parent.parent == ROOT / "docs":
            assert target.name in made[target.parent.name].pages(), f"{page}: {link}"
        elif target.parent.name == "drawn":
            assert target.stem in builder.figures.FIGURES, f"{page}: {link}"
        elif target.parent.name != "auto_tutorials":  # which the tutorials make
            assert target.is_file(), f"{page}: {link}"
            assert not fragment or fragment in anchors(target), f"{page}: {link}"


def test_every_page_has_its_line_in_a_toctree():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    trees = re.findall(r"^:::\{toctree\}\n(.*?)^:::$", "\n".join(pages.values()), re.MULTILINE | re.DOTALL)
    listed = set(re.findall(r"^(?:.*<)?([\w-]+)>?$", "\n".join(trees), re.MULTILINE))
    assert pages.keys() - listed == {"index"}, "add the others to a toctree, such as that of docs/guide.md"


def test_errors_that_are_explained_are_those_of_the_package():
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)  # sentences that are written on several lines
    told = re.findall(r"^### `(.+)`$", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(told) >= 20
    for sentence in told:
        for part in re.split("…|; ", sentence):  # the problem and the remedy of an error are separate
            assert part.strip(" .;,") in code, sentence


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_a_registry_shows_the_readme_with_links_that_lead_to_files_of_this_version():
    shown = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.sub(r"\]\([^)\s]+\)", "", shown) == re.sub(r"\]\([^)\s]+\)", "", written)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", shown)
    assert len(links) == len(_LINK.findall(written)) > 40
    for image, link in links:
        home, _, inside = link.partition(f"/{'raw' if image else 'blob'}/v{hq.__version__}/")
        assert home == "https://github.com/histnetq/histnetq", link
        path, _, fragment = inside.partition("#")
        assert (ROOT / path).is_file(), link
        assert not fragment or fragment in anchors(ROOT / path), link


def test_what_pages_fetch_is_found(builder):
    fetched = builder.offline.fetched
    assert fetched('<script src="https://cdn.example/x.js"></script>') == ["https://cdn.example/x.js"]
    assert fetched("<link rel='stylesheet' href='//fonts.example/a.css'>") == ["//fonts.example/a.css"]
    assert fetched("a { background: url(https://x.example/i.png) }") == ["https://x.example/i.png"]
    assert fetched('<a href="https://example.org">away</a> <img src="_images/a.svg">') == []


def test_pages_of_files_at_the_root_link_to_each_other(builder):
    pages = builder.project.pages()
    assert {"changelog.md", "contributing.md", "releasing.md", "security.md"} == set(pages)
    assert "](releasing.md)" in pages["contributing.md"]
