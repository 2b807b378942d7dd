"""Compiled kernels stay within their arrays, whatever numbers they get, and count what the plain formulas count."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import histnetq
from tests import kernel_fuzz

ROOT = Path(histnetq.__file__).parent


def compiled_functions():
    """Names within the package of functions with the decorator njit, and whether they index arrays."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any("njit" in ast.unparse(d) for d in node.decorator_list):
                yield f"{module}.{node.name}", any(isinstance(part, ast.Subscript) for part in ast.walk(node))


def test_every_compiled_function_that_indexes_is_fuzzed():
    found = dict(compiled_functions())
    listed = {name for _, kernels in kernel_fuzz.CASES.values() for name in kernels}
    missing = {name for name, indexes in found.items() if indexes} - listed
    assert not missing, f"add a case to tests/kernel_fuzz.py for {sorted(missing)}"
    assert listed <= found.keys()
    assert len(found) > 60


@pytest.mark.parametrize("name", kernel_fuzz.CASES)
def test_kernels_on_wild_numbers_equal_the_formula(name):
    kernel_fuzz.run(name, 4)


@pytest.mark.hard
def test_no_kernel_leaves_its_arrays(tmp_path, capsys):
    # The cache of compiled code does not know of bounds checking, so it is another one.
    env = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel_fuzz", "60"],
        env=env,
        capture_output=True,
        text=True,
        timeout=1500,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with capsys.disabled():
        sys.stdout.write(f" {done.stdout.strip()} ")
