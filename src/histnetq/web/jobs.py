"""Jobs, which take longer than a request: their progress, cancellation and results."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histnetq.web.errors import INTERNAL, LOG, RefusedError, StoppedError
from histnetq.web.uploads import Spool

_KEPT = 3600.0  # seconds after the end
_MOST = 200
_MOST_ASKED = 16 << 20  # characters of the requests of all jobs, which the list of jobs repeats
_ENDED = ("done", "failed", "cancelled")
_MOST_MESSAGES = 200
_RESULT = "result.json"


@dataclass
class Job:
    """A piece of work.

    Attributes
    ----------
    kind : str
        "estimate" or "learn".
    folder : Path
        Directory of its files.
    asked : dict
        The fields of the request, and `table_name`.
    n_asked : int
        Number of characters of `asked` as JSON.
    state : str
        "queued", "running", "done", "failed" or "cancelled".
    progress, shown : float
        The part that is done, from 0 to 1; and the part that was last shown to a client, which never falls.
    stage : str
        The current step in words.
    left : (float, float) or None
        Estimated remaining seconds, and the time of this estimate.
    methods : list of dict
        The methods that are compared.
    work : dict
        The arguments of the worker's task.
    """

    kind: str
    folder: Path
    id: str
    asked: dict[str, Any]
    n_asked: int = 0
    state: str = "queued"
    progress: float = 0.0
    shown: float = 0.0
    stage: str = "Waiting"
    left: tuple[float, float] | None = None
    messages: list[str] = field(default_factory=list)
    error: str | None = None
    methods: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    on_cancel: Callable[[], object] = lambda: None
    work: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, which is kept in a file because the results of many jobs need much memory."""
        try:
            return json.loads((self.folder / _RESULT).read_text()) if self.state == "done" else None
        except FileNotFoundError:  # the job was deleted meanwhile
            return None

    @property
    def is_over(self) -> bool:
        """True once the job has ended."""
        return self.state in _ENDED

    def start(self, stage: str) -> None:
        """Start the job, unless it was cancelled."""
        self.check()
        self.state, self.stage, self.began = "running", stage, time.monotonic()

    def check(self) -> None:
        """Raise StoppedError if the job was cancelled."""
        if self.state == "cancelled":
            raise StoppedError

    def add_messages(self, *messages: str) -> None:
        """Add sentences for the client."""
        self.messages += messages[: _MOST_MESSAGES - len(self.messages)]

    def expect(self, seconds: float | None) -> None:
        """Set the estimated remaining seconds."""
        self.left = None if seconds is None else (seconds, time.monotonic())

    def finish(self, result: dict[str, Any]) -> None:
        """End the job with a result, unless it was cancelled."""
        self.check()
        (self.folder / _RESULT).write_text(json.dumps(result))
        self.progress, self.stage = 1.0, "Done"
        self._end("done")

    def fail(self, error: BaseException) -> None:
        """End the job with an error message."""
        if isinstance(error, StoppedError) or self.state == "cancelled":
            self.cancel()
            return
        if isinstance(error, RefusedError):
            self.error = error.sentence
        else:
            LOG.error("A job failed.", exc_info=error)
            self.error = INTERNAL
        self._end("failed")

    def cancel(self) -> None:
        """Cancel the job, unless it has ended."""
        if not self.is_over:
            self.stage = "Cancelled"
            self._end("cancelled")
            self.on_cancel()

    def describe(self, result: bool = True) -> dict[str, Any]:
        """Return the progress of the job, and its result if `result` is true."""
        now = time.monotonic()
        passed = 0.0 if self.left is None else now - self.left[1]
        left = 0.0 if self.left is None or self.is_over else self.left[0] - passed
        if self.left is not None and self.left[0] > 0:  # between two steps, the progress follows the time
            self.shown = max(self.shown, self.progress + (1 - self.progress) * min(0.95, passed / self.left[0]))
        self.shown = max(self.shown, self.progress)
        end = now if self.ended is None else self.ended
        return {
            "id": self.id, "kind": self.kind, "asked": self.asked, "state": self.state,
            "progress": round(self.shown, 4), "seconds_left": left if left > 0 else None,
            "seconds": round(end - self.began, 2),
            "stage": self.stage, "messages": list(self.messages), "error": self.error,
            "methods": [dict(method) for method in self.methods], "result": self.result if result else None,
            "expires_in": _KEPT if self.ended is None else max(0.0, round(_KEPT - (now - self.ended), 1)),
        }  # fmt: skip

    def _end(self, state: str) -> None:
        self.left, self.ended = None, time.monotonic()
        self.state = state


class Jobs:
    """Jobs by their ids. Their files are in `spool`."""

    def __init__(self, spool: Spool) -> None:
        self.spool, self._jobs = spool, dict[str, Job]()

    def add(self, kind: str, asked: dict[str, Any]) -> Job:
        """Create a queued job; delete ended jobs if there are too many."""
        self.expire()
        over, n_asked = [job for job in self._jobs.values() if job.is_over], len(json.dumps(asked))
        while len(self._jobs) >= _MOST or sum(job.n_asked for job in self._jobs.values()) + n_asked > _MOST_ASKED:
            if not over:
                raise RefusedError(
                    429, f"jobs: {len(self._jobs)} of them run or wait, which is the most; try again later.",
                    Retry_After="10",
                )  # fmt: skip
            self.drop(over.pop(0))
        key = f"j_{uuid.uuid4().hex}"
        self._jobs[key] = job = Job(kind, self.spool.make(key), key, asked, n_asked)
        return job

    def get(self, key: str) -> Job:
        """Return a job that has not expired."""
        self.expire()
        if key not in self._jobs:
            raise RefusedError(404, "job: there is none of this id, or it has expired; start it again.")
        return self._jobs[key]

    def listed(self) -> list[Job]:
        """Return all jobs, the newest first."""
        self.expire()
        return list(self._jobs.values())[::-1]

    def drop(self, job: Job) -> None:
        """Delete a job and its files."""
        self._jobs.pop(job.id, None)
        shutil.rmtree(job.folder, ignore_errors=True)

    def expire(self) -> None:
        """Delete jobs that ended more than an hour ago."""
        before = time.monotonic() - _KEPT
        for job in [j for j in self._jobs.values() if j.ended is not None and j.ended < before]:
            self.drop(job)

    def count(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        states = [job.state for job in self._jobs.values()]
        return {state: states.count(state) for state in ("queued", "running", *_ENDED)}

    def cancel_all(self) -> None:
        """Cancel all jobs that have not ended."""
        for job in list(self._jobs.values()):
            job.cancel()
