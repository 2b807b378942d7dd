"""Errors about wrong input, with the argument, the expected value, the given value and a remedy.

An error keeps these parts, so that Python, the command line and the service can each word the options that a sentence
mentions as their users type them. ``str(error)`` is the sentence for Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

Surface = Literal["python", "command", "service"]


@dataclass(frozen=True)
class Option:
    """An option that a sentence mentions, such as ``missing='drop'``.

    Examples
    --------
    >>> option = Option("missing", "drop")
    >>> option.in_python, option.in_request
    ("missing='drop'", 'missing=drop')
    """

    name: str
    value: Any = ...  # none: the option is only named

    @property
    def in_python(self) -> str:
        return f"{self.name}={'' if self.value is ... else repr(self.value)}"

    @property
    def in_request(self) -> str:
        return self.name if self.value is ... else f"{self.name}={str(self.value).lower()}"

    @property
    def has_value(self) -> bool:
        """Return whether a value follows the name on the command line; a switch has none."""
        return self.value is not ... and not isinstance(self.value, bool)


@dataclass(frozen=True)
class Command:
    """A step that has a command: a function in Python, such as ``save()``, and ``histnetq fit`` in a terminal."""

    name: str
    function: str
    arguments: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def in_python(self) -> str:
        given = [*map(repr, self.arguments), *(option.in_python for option in self.options)]
        return f"{self.function}({', '.join(given)})" if given else self.function


@dataclass(frozen=True, init=False)
class Way:
    """Part of a sentence that is omitted if one of its options does not exist, or on surfaces that are not in `on`."""

    parts: tuple[str | Option | Command, ...]
    on: tuple[Surface, ...]

    def __init__(self, *parts: str | Option | Command, on: Iterable[Surface] = ("python", "command", "service")):
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "on", tuple(on))


Part = str | Option | Command | Way
Words = Part | tuple[Part, ...]


class StructuredError(Exception):
    """Base of errors with a sentence about one argument: ``argument: expected ..., got ...; remedy.``

    Parameters
    ----------
    argument : str
        Name of the argument, or of the file that is wrong.
    expected, got : words
        The expected value, and the given value.
    remedy : words
        How to solve the problem.
    problem : words, default=None
        The problem, instead of ``expected ..., got ...``.

    Examples
    --------
    >>> print(InputError("label", "a column", "'x'", ("rename it", Way(", or pass ", Option("counts", True)))))
    label: expected a column, got 'x'; rename it, or pass counts=True.
    """

    def __init__(
        self, argument: str, expected: Words = "", got: Any = "", remedy: Words = "", *, problem: Words | None = None
    ) -> None:
        self.argument, self.expected, self.got, self.remedy, self.problem = argument, expected, got, remedy, problem
        super().__init__(in_python(self))

    def __str__(self) -> str:
        return in_python(self)

    def __reduce__(self) -> Any:  # errors of worker processes
        return _rebuild, (type(self), self.argument, self.expected, self.got, self.remedy, self.problem)

    def render(
        self, surface: Surface, option: Callable[[Option], str | None], command: Callable[[Command], str]
    ) -> tuple[str, str]:
        """Return the argument, and the sentence about it; `option` returns None for options that do not exist."""

        def words_of(words: Any) -> str:
            parts = words if isinstance(words, tuple) else (words,)
            return "".join(filter(None, map(text_of, parts)))

        def text_of(part: Any) -> str | None:
            if isinstance(part, Option):
                return option(part)
            if isinstance(part, Command):
                return command(part)
            if not isinstance(part, Way):
                return str(part)
            texts = [text_of(inner) for inner in part.parts] if surface in part.on else [None]
            return None if None in texts else "".join(text for text in texts if text is not None)

        if self.problem is not None:
            sentence = words_of(self.problem)
        else:
            sentence = f"expected {words_of(self.expected)}, got {words_of(self.got)}"
        remedy = re.sub(r"^(, )?( ?or )?", "", words_of(self.remedy))  # if the first part was omitted
        return self.argument, f"{sentence}; {remedy}." if remedy else f"{sentence}."


def _rebuild(
    kind: type[StructuredError], argument: str, expected: Any, got: Any, remedy: Any, problem: Any
) -> StructuredError:
    return kind(argument, expected, got, remedy, problem=problem)


class InputError(StructuredError, ValueError):
    """A wrong value."""


class InputWarning(StructuredError, UserWarning):  # noqa: N818
    """A warning about input that can be used, but is likely to be wrong."""


class InputTypeError(StructuredError, TypeError):
    """A value of the wrong type."""


class FileInputError(StructuredError, OSError):
    """A file that cannot be read or written."""


class MissingFileError(StructuredError, FileNotFoundError):
    """A file or directory that does not exist, or lacks something."""


class ConnectingError(StructuredError, ConnectionError):
    """A server or a worker that cannot be reached."""


class ExistingFileError(StructuredError, FileExistsError):
    """A file or directory that exists and is not replaced."""


def in_python(error: StructuredError) -> str:
    """Return the sentence of an error for users of Python."""
    return joined(*error.render("python", lambda option: option.in_python, lambda command: command.in_python))


def joined(argument: str, sentence: str) -> str:
    """Return a sentence that begins with the name of its argument, if there is one."""
    return f"{argument}: {sentence}" if argument else sentence


def in_request(error: StructuredError, options: Iterable[str] | None = None) -> str:
    """Return the sentence of an error for users of the service, whose request has these options; None means any.

    Examples
    --------
    >>> in_request(InputError("x", "numbers", "NaN", ("correct it", Way(", or pass ", Option("missing", "drop")))))
    'x: expected numbers, got NaN; correct it, or pass missing=drop.'
    """
    known = None if options is None else set(options)

    def option(mentioned: Option) -> str | None:
        return mentioned.in_request if known is None or mentioned.name in known else None

    return joined(*error.render("service", option, lambda command: command.in_python))
