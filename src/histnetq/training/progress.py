"""Progress of long work: lines of the logger ``histnetq.progress``, and events for a listener.

The logger is silent until ``logging.getLogger("histnetq.progress").setLevel("INFO")`` is called. The command line calls
this if it cannot show a progress bar, because its output is not a terminal. Events are dicts that `listening` sends to
a function.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

LOG = logging.getLogger("histnetq.progress")
Listener = Callable[[dict[str, Any]], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_EVERY = 30.0  # seconds between two lines
_UNITS = ((5400, 3600, "hours"), (90, 60, "minutes"), (0, 1, "seconds"))  # least seconds, seconds per unit, name


class ProgressLines:
    """Log lines about the progress of a piece of work, one every half minute.

    Parameters
    ----------
    work : str
        Name of the work.
    unit : str
        Name of a step.
    total : int
        Number of steps.
    done : int, default=0
        Number of steps that were done before.
    """

    def __init__(self, work: str, unit: str, total: int, done: int = 0) -> None:
        self.work, self.unit, self.total, self.done = work, unit, total, done
        self.began = self.logged = time.monotonic()

    def step(self, done: int, found: str) -> None:
        """Log the number of finished steps, their result so far, and the estimated time left."""
        now = time.monotonic()
        if now - self.logged < _EVERY or done <= self.done:
            return
        self.logged = now
        left = (now - self.began) / (done - self.done) * (self.total - done)
        LOG.info("%s: %s %d of %d, %s, about %s left.", self.work, self.unit, done, self.total, found, in_words(left))


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Send the events of all work inside to a listener; None keeps the listener that is there."""
    token = _listener.set(_listener.get() if listener is None else listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_event(kind: str, **facts: Any) -> None:
    """Send an event to the listener, if there is one: its kind, and facts that JSON can hold.

    Kinds are "note" (a sentence for people, `text`), "methods", "method" and "judged" (of a comparison), "fitting",
    "epoch" (of a network), "calibrating" and "saving".
    """
    listener = _listener.get()
    if listener is not None:
        listener({"kind": kind, **facts})


def in_words(seconds: float) -> str:
    """Format a time in whole hours, minutes or seconds.

    Examples
    --------
    >>> in_words(200), in_words(61), in_words(7000)
    ('3 minutes', '61 seconds', '2 hours')
    """
    size, name = next((size, name) for least, size, name in _UNITS if seconds >= least)
    number = round(seconds / size)
    return f"{number} {name if number != 1 else name.removesuffix('s')}"
