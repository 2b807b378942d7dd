"""Types that users see: `fit` returns its own class, and mypy refuses misspelt arguments of constructors."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")
SETTINGS = Path(__file__).parents[2] / "pyproject.toml"
USE = """
import histnetq as hq
reveal_type(hq.EMQ().fit([[0.0]], [0]))
reveal_type(hq.HistNetQ().fit([[0.0]], [0]))
hq.EMQ(clasifier="forest")
hq.HistNetQ(n_bin=3)
"""


@pytest.mark.hard
def test_types_of_fit_and_of_constructors(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    told, _, _ = api.run(["--config-file", str(SETTINGS), "--cache-dir", str(tmp_path), str(tmp_path / "use.py")])
    assert 'Revealed type is "histnetq.quantifiers.classical.emq.EMQ"' in told
    assert 'Revealed type is "histnetq.quantifiers.networks.histnetq.HistNetQ"' in told
    assert 'Unexpected keyword argument "clasifier" for "EMQ"' in told
    assert 'Unexpected keyword argument "n_bin" for "HistNetQ"' in told
