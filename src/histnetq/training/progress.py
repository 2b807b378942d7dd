"""Lines for logs that tell how far long work is: the logger ``histnetq.progress``, which is silent unless it is asked.

``logging.getLogger("histnetq.progress").setLevel("INFO")`` asks it, as does the command line without a terminal.
A program that started this process may read the same as events: one line of JSON each, from a pipe.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import threading
import time
from typing import Any

LOG = logging.getLogger("histnetq.progress")
EVENTS = "HISTNETQ_PROGRESS_PIPE"  # variable with the number of the pipe's descriptor
_EVERY = 30.0  # seconds between two lines
_UNITS = ((5400, 3600, "hours"), (90, 60, "minutes"), (0, 1, "seconds"))  # at least, seconds of one, name


class ProgressLines:
    """Log how far a piece of work is, every half minute.

    Parameters
    ----------
    work : str
        Name of the work.
    unit : str
        Name of a step.
    total : int
        Number of steps.
    done : int, default=0
        Steps that were done before.
    """

    def __init__(self, work: str, unit: str, total: int, done: int = 0) -> None:
        self.work, self.unit, self.total, self.done = work, unit, total, done
        self.began = self.told = time.monotonic()

    def step(self, done: int, found: str) -> None:
        """Log the number of steps that are done, what they have found, and the time that the others will take."""
        now = time.monotonic()
        if now - self.told < _EVERY or done <= self.done:
            return
        self.told = now
        left = (now - self.began) / (done - self.done) * (self.total - done)
        LOG.info("%s: %s %d of %d, %s, about %s left.", self.work, self.unit, done, self.total, found, in_words(left))


def tell_event(kind: str, **facts: Any) -> None:
    """Write an event to the pipe of the program that started this process, if it gave one.

    Where that program is gone, nobody wants the result: this counts as an interruption.
    """
    pipe = os.environ.get(EVENTS)
    if pipe is None:
        return
    try:
        os.write(int(pipe), json.dumps({"kind": kind, **facts}).encode() + b"\n")
    except BrokenPipeError:
        raise KeyboardInterrupt from None


def end_with_listener() -> None:
    """Let this process be told to end when the program that reads its events is gone; it may be busy with a long step.

    Called once, when a process starts that does nothing else.
    """
    pipe = os.environ.get(EVENTS)
    if pipe is None:
        return

    def wait() -> None:
        watched = select.poll()
        watched.register(int(pipe), 0)  # reports that the other end was closed, whatever is asked for
        watched.poll()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def in_words(seconds: float) -> str:
    """Give a time in whole hours, minutes or seconds.

    Examples
    --------
    >>> in_words(200), in_words(61), in_words(7000)
    ('3 minutes', '61 seconds', '2 hours')
    """
    size, name = next((size, name) for least, size, name in _UNITS if seconds >= least)
    number = round(seconds / size)
    return f"{number} {name if number != 1 else name.removesuffix('s')}"
