"""Errors of the service: a refused request gets an HTTP status and one sentence."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histnetq.errors import StructuredError, in_request
from histnetq.tables.budget import TooLargeError

LOG = logging.getLogger("histnetq.web")
_LONGEST = 2000  # characters of a sentence
INTERNAL = "server: an internal error happened, which is in its log; try again."
_MEMORY = "memory: the rows need more than a worker may use; send fewer rows, or start the server with more --memory."


class RefusedError(Exception):
    """A request that is refused.

    Parameters
    ----------
    status : int
        HTTP status of the response.
    sentence : str
        The error message: argument, expected, got, remedy.
    **headers : str
        Headers of the response, with ``_`` for ``-``.
    """

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class StoppedError(Exception):
    """Work that was cancelled, or that took too long."""


@contextmanager
def as_refusals(*places: Path) -> Iterator[None]:
    """Turn the library's errors about tables and values into refusals, without the directories of this machine."""
    try:
        yield
    except TooLargeError as error:
        raise RefusedError(413, in_one_sentence(str(error), *places)) from error
    except (ArithmeticError, LookupError, UnicodeError) as error:
        LOG.warning("A table was refused because of an unexpected error: %.500r", error)
        raise RefusedError(422, "table: its values cannot be worked with; check the columns that are used.") from error
    except (ValueError, TypeError, OSError, ImportError) as error:
        message = in_request(error) if isinstance(error, StructuredError) else str(error)
        raise RefusedError(422, in_one_sentence(message, *places)) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):  # torch's MemoryError
            raise
        raise RefusedError(422, _MEMORY) from error


def in_one_sentence(message: str, *places: Path) -> str:
    """Return a message as one line that names files without their directories.

    Examples
    --------
    >>> in_one_sentence("path: /tmp/x/rows.csv: has no rows; check the file.", Path("/tmp/x"))
    'rows.csv: has no rows; check the file.'
    """
    for place in places:
        message = message.replace(f"{place}/", "")
    message = re.sub(r"^(path|source): ", "", " ".join(message.split()))
    if len(message) > _LONGEST:  # names in the request may be long
        message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
    return message
