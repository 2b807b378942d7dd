"""The command rogan-gladen: the numbers of Python, from exact rates and from counts of a validation study."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import histnetq as hq
from histnetq.cli import main


def run(*arguments, code=0):
    result = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_rogan_gladen():
    tests = ("rogan-gladen", "--positives", 60, "--n", 200)
    found = json.loads(run(*tests, "--sensitivity", "90/100", "--specificity", "80/100", "--json").stdout)
    expected = hq.rogan_gladen(60, 200, 0.9, 0.8, n_sensitivity=100, n_specificity=100)
    assert found == expected._asdict()
    said = run(*tests, "--sensitivity", "0.9", "--specificity", "0.8").stdout
    exact = hq.rogan_gladen(60, 200, 0.9, 0.8)
    assert said == (
        f"Prevalence {100 * exact.estimate:.1f} % (90 % interval: {100 * exact.lower:.1f} % to {100 * exact.upper:.1f} "
        "%); 30.0 % of the tests are positive.\n"
    )


RATE = "expected a number from 0 to 1, or counts such as 90/100, got"
SHARE = "expected a number from 0 to 1, got"
STUDY = "write a share, or right tests and all tests of a validation study"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"--sensitivity": "x"}, f"--sensitivity: {RATE} 'x'; {STUDY}."),
        ({"--sensitivity": "9/0"}, f"--sensitivity: {RATE} '9/0'; {STUDY}."),
        ({"--specificity": "110/100"}, f"--specificity: {RATE} '110/100'; {STUDY}."),
        ({"--specificity": "1.5"}, f"--specificity: {SHARE} 1.5; divide counts by their sum."),
        ({"--specificity": "nan"}, f"--specificity: {SHARE} nan; divide counts by their sum."),
        ({"--specificity": "0.1"}, "--sensitivity, --specificity: expected a sum of more than 1, got 1; use a test "
         "that is better than chance, or swap positive and negative."),
        ({"--positives": "300"}, "--positives: expected a whole number from 0 to n = 200, got 300; count the positive "
         "tests."),
    ],
)  # fmt: skip
def test_wrong_tests_are_one_sentence(change, told):
    typed = {"--positives": "60", "--n": "200", "--sensitivity": "0.9", "--specificity": "0.8"} | change
    said = run("rogan-gladen", *(word for pair in typed.items() for word in pair), code=2).stderr
    assert said == f"Error: {told}\n"
