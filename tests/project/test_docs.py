"""What README and docs show runs as it stands there, block after block, on small data."""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import histnetq as hq
from experiments.__main__ import main as experiments
from histnetq.cli import main
from histnetq.workflows.candidates import Candidate
from tests.cli.test_commands import write_tables
from tests.conftest import labelled

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
ON_THEIR_OWN = (  # pages that make their data
    "docs/audit.md", "docs/images-and-texts.md", "docs/judge.md", "docs/monitoring.md", "docs/other-names.md",
    "docs/scores.md", "docs/sql.md", "docs/start.md",
)  # fmt: skip
WITH_TABLES = ("README.md", "docs/python.md", "docs/scaling.md", "docs/tables.md")  # they name the same tables
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(page):
    """The kind, the text and the number of the first line of each block of a page, and why it is not run, if so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        (found["kind"], found["text"], text[: found.start("text")].count("\n") + 1, found["why"])
        for found in _BLOCK.finditer(text)
    ]


def commands(text):
    """The commands of a block of shell, each as the list of its words; quotation marks may span lines."""
    read = ""
    for line in text.splitlines(keepends=True):
        read += line
        with contextlib.suppress(ValueError):  # a quotation that is still open
            if words := shlex.split(read, comments=True):
                yield words
            read = ""
    assert not read, f"a quotation is never closed: {read}"


def run(words):
    """Run a command in this process, which starts no other one."""
    program, *rest = [found for word in words for found in (sorted(glob.glob(word)) or [word])]
    if program == "python" and rest[0] == "-c":
        exec(compile(rest[1], "python -c", "exec"), {"__name__": "__main__"})
        return
    known = {"histnetq": (main, rest), "python": (experiments, rest[2:])}
    assert program in known, f"{program} is no command that is run here; say why by <!-- not run: ... -->"
    command, arguments = known[program]
    told = CliRunner().invoke(command, arguments)
    assert told.exit_code == 0, f"{shlex.join(words)}\n{told.output}"


@pytest.fixture
def quick(monkeypatch):
    """Networks train for an epoch of a few bags from random weights, and a choice is among fewer methods."""
    for network in (hq.HistNetQ, hq.EMNetQ):
        monkeypatch.setattr(network, "_start", lambda self: None)
    for name, value in {"epochs": 1, "bags_per_epoch": 8, "validation_bags": 8}.items():
        monkeypatch.setattr(hq.Training, name, property(lambda self, v=value: v, lambda self, v: None), raising=False)
    classical = [Candidate("emq"), Candidate("pacc")]
    for name, some in {"labels": classical, "scores": classical, "proportions": [Candidate("deepsets")]}.items():
        monkeypatch.setattr(f"histnetq.workflows.fitting.from_{name}", lambda *_, some=some: some)


def given():
    """What blocks of Python take for given."""
    X, y = labelled(300, n_classes=2)
    y = np.where(y == "a", "neg", "pos")
    bags = hq.APP(20).draw(hq.Bags.from_labels(X, y), 60, random_state=0)
    scores = np.random.default_rng(0).dirichlet(np.ones(2), 300)
    pool = {"X": X, "y": y, "index": bags.index, "offsets": bags.offsets, "P": bags.prevalences}
    parts = {"bags": bags, "new_bags": bags[:60], "test": bags[5:15], "other_bags": bags[15:], "a": bags[:2], "b": bags}
    of_rows = {"station": np.arange(300) % 7, "counts": np.ones(len(bags.index), int), "w": np.ones(len(bags.index))}
    texts = {"texts": [f"{name} word{i % 3}" for i, name in enumerate(y)]}
    models = {name: hq.EMQ().fit(X, y) for name in ("q", "emq")} | {
        f"seed_{seed}": hq.CC(random_state=seed).fit(X, y) for seed in range(3)
    }
    scored = {"scores": scores, "scores_1": scores[:9], "scores_2": scores[9:]}
    tools = {"np": np, "hq": hq, "make_pipeline": make_pipeline, "TfidfVectorizer": TfidfVectorizer}
    others = {"arrays": [bag.gather() for bag in bags], "LogisticRegression": LogisticRegression}
    return {**pool, **parts, **of_rows, **texts, **models, **scored, **tools, **others}


def write_files(folder):
    """Tables of fish in tows, of which the rows of new.csv and of rows/ have times and no labels."""
    write_tables(folder, n_bags=40)
    rows = pd.read_csv("rows.csv")
    p = 1 / (1 + np.exp(3 - 2 * rows["length"]))
    rows.assign(p_eel=p, p_cod=1 - p)[["tow", "species", "p_cod", "p_eel"]].to_csv("scored.csv", index=False)
    rows.to_csv("checked.csv", index=False)
    bare = rows.drop(columns="species")
    bare.to_csv("new.csv", index=False)
    Path("rows").mkdir()
    bare.assign(ts=pd.date_range("2026-01-01", "2026-08-01", len(rows))).to_parquet("rows/2026.parquet")


@pytest.mark.parametrize("page", PAGES)
def test_blocks_say_what_they_are(page):
    found = blocks(page)
    assert 2 * len(found) == (ROOT / page).read_text(encoding="utf-8").count("```")
    for kind, _, line, why in found:
        assert kind in ("sh", "python", "text"), f"{page}, line {line}: expected ```sh, ```python or ```text"
        assert why is None or kind != "text"


@pytest.mark.parametrize("page", PAGES)
def test_what_is_shown_runs(page, tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    shown = [block for block in blocks(page) if block[0] != "text" and block[3] is None]
    alone = page in ON_THEIR_OWN
    names = given() if shown and not alone else {}
    if page in WITH_TABLES:
        write_files(tmp_path)
    for kind, text, line, _ in shown:
        with contextlib.redirect_stdout(io.StringIO()):
            if kind == "sh":
                for words in commands(text):
                    run(words)
            else:
                exec(compile("\n" * (line - 1) + text, page, "exec"), names if alone else dict(names))
