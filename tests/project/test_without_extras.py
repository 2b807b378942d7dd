"""What needs no extra works where none is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ["anyio", "distributed", "fastapi", "h11", "jinja2", "matplotlib", "optuna", "torch", "uvicorn"]


@pytest.mark.parametrize(
    ("parts", "hidden"),
    [
        ("every_classical_method,a_star_import_takes_what_works,bare_commands", EXTRAS),
        ("networks_say_what_they_need,commands,service", ["torch"]),
    ],
)
def test_what_needs_no_extra_works_without(parts, hidden, tmp_path):
    line = [sys.executable, "-m", "tests.without_extras", parts, tmp_path, *hidden]
    ended = subprocess.run(line, check=False, cwd=Path(__file__).parents[2], env=os.environ, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
