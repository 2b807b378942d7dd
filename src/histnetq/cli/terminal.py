"""How commands speak while they work, on any terminal and in logs, and how they end when they are interrupted."""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import IO, Any

import click

from histnetq.data.files import is_first_process
from histnetq.training.options import LearnedNothing, TrainingInterrupted
from histnetq.training.progress import LOG

_ASCII = {
    "≤": "<=", "≥": ">=", "…": "...", "±": "+-", "−": "-", "–": "-", "×": "x", "·": "*", "→": "->", "█": "#",
    "⁹": "^9", "∞": "inf", "†": "+", "‡": "++",
}  # fmt: skip


class UserError(click.ClickException):
    """A sentence about what was wrong with the command."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        super().show(sys.stderr if file is None else file)


class Interrupted(click.ClickException):
    """A sentence about what an interrupted command has kept."""

    exit_code = 128 + signal.SIGINT

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, err=True)


class Terminated(Interrupted):
    """The same for a command that another process told to end."""

    exit_code = 128 + signal.SIGTERM


def echo(text: str, err: bool = False) -> None:
    """Print a text as far as the terminal can show it."""
    click.echo(text, file=sys.stderr if err else sys.stdout)  # else click writes UTF-8 where ASCII is asked for


@contextlib.contextmanager
def speaking(progress: bool) -> Iterator[None]:
    """Let a command speak: on any terminal, in plain lines, and only in the first of processes that work together.

    Parameters
    ----------
    progress : bool
        Whether lines tell how far the work is where there is no terminal, which has bars instead.
    """
    codecs.register_error("histnetq", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="histnetq")
    silent = contextlib.nullcontext() if is_first_process() else contextlib.redirect_stdout(io.StringIO())
    with silent, warnings.catch_warnings(), _logged(progress and not sys.stderr.isatty()):
        warnings.filterwarnings("default", category=UserWarning, module="histnetq")
        warnings.simplefilter("error", TrainingInterrupted)
        warnings.simplefilter("always", LearnedNothing)
        warnings.showwarning = _tell_warning
        yield


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt a command as Ctrl-C does, with its own exit code."""
    terminated = False

    def terminate(number: int, frame: Any) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except Interrupted as error:
        if terminated:
            raise Terminated(error.message) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Give a look-alike of the first character that cannot be shown, or else its number, from which it is known."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = error.object[error.start]
    return _ASCII.get(first, first.encode("ascii", "backslashreplace").decode()), error.start + 1


@contextlib.contextmanager
def _logged(shown: bool) -> Iterator[None]:
    """Write the lines about progress to the standard error."""
    if not shown:
        yield
        return
    handler, level = logging.StreamHandler(sys.stderr), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)


def _tell_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning of ours as a plain line, and those of others with the place that they come from."""
    if category is UserWarning or category.__module__.startswith("histnetq."):
        echo(f"Warning: {message}", err=True)
    else:
        echo(warnings.formatwarning(message, category, filename, lineno, line).rstrip("\n"), err=True)
