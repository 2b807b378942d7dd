"""Everything but networks works where torch is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("part", ["every_classical_method", "networks_say_what_they_need", "commands", "service"])
def test_what_is_no_network_needs_no_torch(part, tmp_path):
    line = [sys.executable, "-m", "tests.without_torch", part, tmp_path]
    ended = subprocess.run(line, check=False, cwd=Path(__file__).parents[1], env=os.environ, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
