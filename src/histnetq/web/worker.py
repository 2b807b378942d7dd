"""A worker process, which does one task at a time for the server and may be killed at any time.

Tasks arrive as frames on standard input. Events and answers go back as frames on standard output. Printed text goes to
standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from histnetq.web import frames
from histnetq.web.children import end_with, keep_memory, limit_memory
from histnetq.web.errors import INTERNAL, LOG, RefusedError


def main(parent: int, models: str, memory: int) -> None:
    """Do tasks until the server closes the pipe."""
    end_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a terminal; the server ends this one
        signal.signal(number, signal.SIG_IGN)
    limit_memory(memory)
    keep_memory()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the frames

    from histnetq.web.model_store import Shelf
    from histnetq.web.tasks import TASKS

    shelf = Shelf(Path(models))
    _send(answers, {"kind": "ready"})
    while True:
        try:
            asked, _ = frames.read(sys.stdin.buffer)
        except EOFError:
            return
        work = partial(TASKS[asked["task"]], shelf, **asked["arguments"])
        _send(answers, *_work(work, answers))


def _work(work: Callable[..., tuple[frames.Message, bytes]], answers: IO[bytes]) -> tuple[frames.Message, bytes]:
    """Do a task, and return the answer."""

    def send(kind: str, **facts: Any) -> None:
        _send(answers, {"kind": kind, **facts})

    try:
        facts, content = work(send=send)
    except RefusedError as error:
        return {"kind": "refused", "status": error.status, "sentence": error.sentence, "headers": error.headers}, b""
    except Exception as error:
        LOG.error("A worker failed.", exc_info=error)
        return {"kind": "refused", "status": 500, "sentence": INTERNAL, "headers": {}}, b""
    return {"kind": "done", **facts}, content


def _send(answers: IO[bytes], message: frames.Message, content: bytes = b"") -> None:
    try:
        answers.write(frames.pack(message, content))
        answers.flush()
    except BrokenPipeError:  # the server has ended
        os._exit(0)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
