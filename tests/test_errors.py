"""Errors keep their parts, and each surface words options as its users type them."""

from __future__ import annotations

import pickle

import click
import pytest

from histnetq import errors
from histnetq.cli.wording import in_options
from histnetq.errors import Command, InputError, Option, StructuredError, Way, in_python, in_request

PARAMS = [
    click.Option(["--missing"], type=click.Choice(["refuse", "drop"])),
    click.Option(["--counts"], is_flag=True),
    click.Option(["--force"], is_flag=True),
    click.Option(["--label"]),
    click.Argument(["new"], nargs=-1),
]
REMEDY = ("correct it", Way(", or pass ", Option("missing", "drop"), " to leave out such rows"))
WORDED = {
    "an option with a value": (
        InputError("source", "numbers", "a text", REMEDY),
        "source: expected numbers, got a text; correct it, or pass missing='drop' to leave out such rows.",
        "NEW: expected numbers, got a text; correct it, or pass --missing drop to leave out such rows.",
        "source: expected numbers, got a text; correct it, or pass missing=drop to leave out such rows.",
    ),
    "a value that the command does not accept": (
        InputError("y", "numbers", "NaN", ("correct it", Way(", or pass ", Option("missing", "mean")))),
        "y: expected numbers, got NaN; correct it, or pass missing='mean'.",
        "--label: expected numbers, got NaN; correct it.",
        "y: expected numbers, got NaN; correct it, or pass missing=mean.",
    ),
    "a switch": (
        InputError("t.csv", problem="a bag sums to 3", remedy=("pass ", Option("counts", True))),
        "t.csv: a bag sums to 3; pass counts=True.",
        "t.csv: a bag sums to 3; pass --counts.",
        "t.csv: a bag sums to 3; pass counts=true.",
    ),
    "an option by another name": (
        errors.ExistingFileError(
            "path", problem="m exists", remedy=("choose another", Way(" or pass ", Option("overwrite", True)))
        ),
        "path: m exists; choose another or pass overwrite=True.",
        "m exists; choose another or pass --force.",
        "path: m exists; choose another or pass overwrite=true.",
    ),
    "an option that the command does not have": (
        InputError("y", "2 rows", 1, (Way("use ", Option("cv", None)), Way(" or add rows"))),
        "y: expected 2 rows, got 1; use cv=None or add rows.",
        "--label: expected 2 rows, got 1; add rows.",
        "y: expected 2 rows, got 1; use cv=none or add rows.",
    ),
    "no remedy": (
        InputError("a", "b", "c", Way("use ", Option("scratch"))),
        "a: expected b, got c; use scratch=.",
        "a: expected b, got c.",
        "a: expected b, got c; use scratch.",
    ),
    "options in the expectation": (
        InputError("label", ("either ", Option("label"), " or ", Option("counts")), "both", "leave one out"),
        "label: expected either label= or counts=, got both; leave one out.",
        "--label: expected either --label or --counts, got both; leave one out.",
        "label: expected either label or counts, got both; leave one out.",
    ),
    "a command": (
        errors.MissingFileError(
            "submission",
            problem="it is missing",
            remedy=("run ", Command("data fetch", "datasets.fetch", ("digits",), (Option("to", "a b"),))),
        ),
        "submission: it is missing; run datasets.fetch('digits', to='a b').",
        "submission: it is missing; run histnetq data fetch digits --to 'a b'.",
        "submission: it is missing; run datasets.fetch('digits', to='a b').",
    ),
    "another way on each surface": (
        InputError(
            "",
            problem="CC is not calibrated",
            remedy=tuple(Way(f"as in {surface}", on=(surface,)) for surface in ("python", "command", "service")),
        ),
        "CC is not calibrated; as in python.",
        "CC is not calibrated; as in command.",
        "CC is not calibrated; as in service.",
    ),
}


@pytest.mark.parametrize("case", WORDED)
def test_each_surface_has_its_words(case):
    error, python, typed, request = WORDED[case]
    assert str(error) == in_python(error) == python
    assert in_options(error, PARAMS) == typed
    assert in_request(error) == request


def test_options_that_a_request_does_not_have_are_left_out():
    error = WORDED["an option with a value"][0]
    assert in_request(error, ["coverage"]) == "source: expected numbers, got a text; correct it."


@pytest.mark.parametrize("message", ["weight: expected numbers.", "no argument", "path: x is damaged.", "Mixer: few."])
def test_other_errors_keep_their_sentences(message):
    named = [click.Option(["--weight"])]
    expected = {"weight": "--weight: expected numbers.", "path": "x is damaged.", "Mixer": "bags: few."}
    assert in_options(ValueError(message), named) == expected.get(message.partition(":")[0], message)


@pytest.mark.parametrize("case", WORDED)
def test_errors_of_worker_processes_keep_their_parts(case):
    error = WORDED[case][0]
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.InputError, ValueError),
        (errors.InputTypeError, TypeError),
        (errors.FileInputError, OSError),
        (errors.MissingFileError, FileNotFoundError),
        (errors.ExistingFileError, FileExistsError),
        (errors.ConnectingError, ConnectionError),
    ],
)
def test_errors_are_of_the_usual_kinds(kind, base):
    assert issubclass(kind, base)
    assert issubclass(kind, StructuredError)
    error = kind("a", "b", "c", "d")
    assert (error.argument, error.expected, error.got, error.remedy) == ("a", "b", "c", "d")
