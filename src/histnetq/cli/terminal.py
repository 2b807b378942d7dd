"""Output of commands on any terminal and in logs, warnings, progress and interruptions."""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import IO, Any

import click

from histnetq.cli.wording import in_options
from histnetq.errors import InputWarning
from histnetq.tables.files import is_first_process
from histnetq.training.options import LearnedNothing, TrainingInterrupted
from histnetq.training.progress import LOG

_ASCII = {
    "≤": "<=", "≥": ">=", "…": "...", "±": "+-", "−": "-", "–": "-", "×": "x", "·": "*", "→": "->", "█": "#",
    "⁹": "^9", "∞": "inf", "†": "+", "‡": "++",
}  # fmt: skip

# Control characters except tab and newline, and marks without width, which change the direction of text or end a line.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Write invisible characters as escapes, so that names from files can neither control the terminal nor hide.

    Tabs and newlines stay. The escape of DEL is also valid in JSON, which does not escape this character itself.

    Examples
    --------
    >>> print(visible("cod\x1b[2J \u202eeel\x7f"))
    cod\x1b[2J \u202eeel\u007f
    """
    return _INVISIBLE.sub(_escaped, text)


def visible_line(text: str) -> str:
    r"""Write invisible characters, newlines and tabs as escapes, so that a name cannot begin another line.

    Examples
    --------
    >>> print(visible_line("cod\nError: eel"))
    cod\nError: eel
    """
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _escaped(found: re.Match[str]) -> str:
    return "\\u007f" if found[0] == "\x7f" else found[0].encode("unicode_escape").decode("ascii")


class VisibleFormatter(logging.Formatter):
    """Format log records with invisible characters as escapes; only a traceback has several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class UserError(click.ClickException):
    """A sentence about a wrong command."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        super().show(sys.stderr if file is None else file)


class Interrupted(click.ClickException):
    """A sentence about the results that an interrupted command has kept."""

    exit_code = 128 + signal.SIGINT

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, err=True)


class Terminated(Interrupted):
    """A sentence about a command that another process ended."""

    exit_code = 128 + signal.SIGTERM


def echo(text: str, err: bool = False) -> None:
    """Print a text; invisible characters become escapes, and a terminal without Unicode gets ASCII look-alikes."""
    # click would write UTF-8 without `file`, also to a terminal that has only ASCII.
    click.echo(visible(text), file=sys.stderr if err else sys.stdout)


@contextlib.contextmanager
def speaking(progress: bool) -> Iterator[None]:
    """Set up printing and warnings: plain lines for any terminal, and only from the first process of several.

    With `progress`, lines report the progress if there is no terminal; a terminal shows bars instead.
    """
    codecs.register_error("histnetq", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="histnetq")
    silent = contextlib.nullcontext() if is_first_process() else contextlib.redirect_stdout(io.StringIO())
    logged = _logged() if progress and not sys.stderr.isatty() else contextlib.nullcontext()
    with silent, warnings.catch_warnings(), logged:
        warnings.filterwarnings("default", category=UserWarning, module="histnetq")
        warnings.simplefilter("error", TrainingInterrupted)
        warnings.simplefilter("always", LearnedNothing)
        warnings.showwarning = _print_warning
        yield


@contextlib.contextmanager
def visible_errors() -> Iterator[None]:
    """Turn the message of an error, which may repeat arguments and names, into one visible line."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = visible_line(error.message)  # click declares it final
        raise


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
    """Return a look-alike or the code of the first character that cannot be shown, and the next position."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    first = error.object[error.start]
    return _ASCII.get(first, first.encode("ascii", "backslashreplace").decode()), error.start + 1


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Write lines about progress to standard error."""
    handler, level = logging.StreamHandler(sys.stderr), LOG.level
    handler.setFormatter(VisibleFormatter())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning of this package as a plain line, and warnings of other packages with their place in the code."""
    if isinstance(message, InputWarning) and (context := click.get_current_context(silent=True)) is not None:
        message = in_options(message, context.command.params)
    if category is UserWarning or category.__module__.startswith("histnetq."):
        echo(visible_line(f"Warning: {message}"), err=True)
    else:
        echo(warnings.formatwarning(message, category, filename, lineno, line).rstrip("\n"), err=True)
