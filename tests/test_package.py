"""The package as a whole: what it exports, how it starts, its command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main


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


def test_demo(monkeypatch, tmp_path):
    monkeypatch.setattr("histnetq.cli.demo._TRAINING", hq.Training(epochs=1, bags_per_epoch=20, device="cpu"))
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    for text in ("HistNetQ", "DeepSets", "mean of training", "AE", "RAE", "whose error is the median", "interval"):
        assert text in result.output
    assert "HistNetQ" in (tmp_path / "demo/report.html").read_text()
