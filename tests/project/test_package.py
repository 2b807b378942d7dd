"""The package as a whole: what it exports, how it starts, its command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main
from histnetq.report.demo import _scan

ROOT = Path(__file__).parents[2]


def test_every_public_name_exists():
    assert all(getattr(hq, name) is not None for name in hq.__all__)
    assert set(hq.__all__) <= set(dir(hq))
    with pytest.raises(AttributeError, match="module 'histnetq' has no attribute 'Quantum'"):
        _ = hq.Quantum
    with pytest.raises(AttributeError, match="what QuaPy calls UPP, proportions uniform on the simplex, is APP here"):
        _ = hq.UPP


def test_starting_does_not_load_torch():
    code = "import sys, histnetq.cli, histnetq as hq; hq.Bags, hq.APP; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "demo" in result.output


@pytest.mark.hard
def test_demo(monkeypatch, tmp_path):
    for name in ("_HISTNETQ", "_EMNETQ"):
        monkeypatch.setattr(f"histnetq.report.demo.{name}", hq.Training(epochs=1, bags_per_epoch=20, device="cpu"))
    monkeypatch.setattr("histnetq.report.demo._TRAINING_BAGS", 30)
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._FEWEST_UPDATES", 10)
    monkeypatch.setattr("histnetq.training.pretraining.label_pretraining._MOST_EPOCHS", 3)
    monkeypatch.setattr("histnetq.training.pretraining.head_pretraining._STEPS", {False: 10, True: 10})
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    _, *parts = re.split(r"^[123]\. ", result.output, flags=re.MULTILINE)
    methods = [re.findall(r"^(\S.*?)  +\d\.\d+ ± ", part, flags=re.MULTILINE) for part in parts]
    assert methods == [
        ["Pretrained", "CC", "EMQ", "HistNetQ", "EMNetQ"],
        ["HistNetQ", "EMNetQ", "training mean", "(CC with labels)", "(EMQ with labels)"],
        ["CC", "EMQ", "PACC", "HistNetQ", "EMNetQ", "training mean", "(EMQ with labels)"],
    ]
    for text in ("proportions of 30 bags of 100", "3000 scans", "whose error is the median", "without calibration: "):
        assert text in result.output
    assert "HistNetQ" in (tmp_path / "demo/report.html").read_text()


def test_the_demo_scans_each_bag_its_own_way_and_tells_no_label():
    bags = hq.APP(bag_size=50).draw(hq.Bags.from_labels(np.full((20, 64), 8.0), np.arange(20) % 2), 40, random_state=0)
    scanned = _scan(bags, 0)
    assert scanned.labels is None
    np.testing.assert_array_equal(scanned.prevalences, bags.prevalences)
    pixels = scanned.rows.reshape(40, -1)
    assert np.ptp(pixels.mean(1)) > 3
    assert pixels.std(1).min() < 0.5
    assert pixels.std(1).max() > 3.5
    np.testing.assert_array_equal(scanned.rows, _scan(bags, 0).rows)


def _project() -> dict:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML.")
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert cited is not None
    assert _project()["version"] == hq.__version__ == cited[1]
    assert re.search(rf"^## {re.escape(hq.__version__)},", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)


def test_the_oldest_versions_are_the_lowest_that_are_allowed():
    project = _project()
    extras = [lines for name, lines in project["optional-dependencies"].items() if name not in ("dev", "docs")]
    needed = [line for lines in [project["dependencies"], *extras] for line in lines if "[" not in line]
    lowest = dict(re.fullmatch(r"(\S+?)>=([\d.]+)", line).groups() for line in needed)
    pinned = dict(line.split("==") for line in (ROOT / "constraints-oldest.txt").read_text().split() if "==" in line)
    newest = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    assert pinned.keys() == lowest.keys()
    assert pinned.pop("torch") == newest["torch"]
    assert {name: version for name, version in pinned.items() if not f"{version}.".startswith(f"{lowest[name]}.")} == {}
