"""The job that learns a model in a separate process, one at a time.

The process (`learn_process`) works in a hidden directory beside the models. One rename puts the finished model in its
place, so a kill leaves no partial model; the next start deletes directories of killed servers. The process sends its
progress through a pipe, and ends with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from histnetq.web.children import environment, send
from histnetq.web.errors import RefusedError, in_one_sentence
from histnetq.web.jobs import Job
from histnetq.web.limits import Limits
from histnetq.web.model_store import Shelf
from histnetq.web.schemas import LearnJob
from histnetq.web.serializers import command
from histnetq.web.tables import StoredTable
from histnetq.web.uploads import Spool, delete_abandoned

_HIDDEN = ".learning-"
_MOST = 4  # jobs that run or wait
_NICE = 10
_GRACE = 10.0  # seconds to end in
_LONGEST_LINE = 1 << 20  # bytes of an event
_OUT_OF_MEMORY = (-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)  # how processes end without memory


class Learner:
    """Learns models one after the other.

    Parameters
    ----------
    shelf : Shelf
        Where they are put.
    limits : Limits
        Limits of a table, which the process keeps to as it reads.
    memory : int
        Bytes of memory that the process may take.
    """

    def __init__(self, shelf: Shelf, limits: Limits, memory: int) -> None:
        self.shelf, self._one, self._tasks = shelf, asyncio.Lock(), set[asyncio.Task[None]]()
        self.limits, self.memory = limits, memory
        if not shelf.single:
            delete_abandoned(shelf.place, _HIDDEN)

    def require_room(self) -> None:
        """Refuse more jobs than may wait."""
        if len(self._tasks) >= _MOST:
            raise RefusedError(429, f"server: {_MOST} models are learned or wait; try again later.", Retry_After="30")

    def add(self, job: Job, asked: LearnJob, table: StoredTable, proportions: StoredTable | None) -> None:
        """Learn as soon as those before have ended."""
        task = asyncio.create_task(self._learn(job, asked, table, proportions))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for the jobs to end, which were cancelled before."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _learn(self, job: Job, asked: LearnJob, table: StoredTable, proportions: StoredTable | None) -> None:
        used = [table] if proportions is None else [table, proportions]
        try:
            async with self._one:
                job.start("Reading the table in a process of its own, which takes some seconds to start")
                with contextlib.closing(Spool(self.shelf.place, _HIDDEN)) as hidden:
                    process = _Process(job, asked, table, proportions, hidden.make("work"))
                    await process.run(self.limits, self.memory)
                    job.check()
                    self._put(hidden.path / "work" / asked.name, asked.name)
            card, line = self.shelf.card(asked.name), _line(asked, table, proportions)
            job.finish({"command": line, "model": card, "downloads": []})
        except Exception as error:
            job.fail(error)
        finally:
            for one in used:
                one.release()

    def _put(self, made: Path, name: str) -> None:
        """Give a finished model its place, unless another has taken it meanwhile."""
        self.shelf.refuse_name(name)
        os.rename(made, self.shelf.place / name)


class _Process:
    """A process that learns for a job, and its progress."""

    def __init__(
        self, job: Job, asked: LearnJob, table: StoredTable, proportions: StoredTable | None, place: Path
    ) -> None:
        self.job, self.place, self._task = job, place, _task(asked, table, proportions)
        self._now, self._began, self._errors = "", time.monotonic(), list[str]()
        os.symlink(table.path, place / table.name)
        if proportions is not None:
            os.symlink(proportions.path, place / _proportions_name(proportions))

    async def run(self, limits: Limits, memory: int) -> None:
        """Learn within these limits and this many bytes of memory; the model is in the place then."""
        variables = {**environment(), **limits.budget().to_environment()}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "histnetq.web.learn_process", json.dumps({**self._task, "parent": os.getpid()}),
                cwd=self.place, env=variables, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                start_new_session=True, limit=_LONGEST_LINE,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise RefusedError(422, f"server: learning cannot be started ({error}); check the names.") from None
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        _bound_memory(process.pid, memory)
        self.job.on_cancel = lambda: send(process, signal.SIGTERM)
        if self.job.is_over:
            self.job.on_cancel()
        killer = asyncio.create_task(self._kill_if_late(process))
        try:
            assert process.stdout is not None
            async for line in _lines(process.stdout):
                with contextlib.suppress(ValueError, KeyError):
                    self._understand(json.loads(line))
            code = await process.wait()
        finally:
            killer.cancel()
            send(process, signal.SIGKILL)
        if code != 0:
            self.job.check()
            raise RefusedError(422, self._failure(code, memory))

    async def _kill_if_late(self, process: asyncio.subprocess.Process) -> None:
        while not self.job.is_over:
            await asyncio.sleep(0.5)
        await asyncio.sleep(_GRACE)
        send(process, signal.SIGKILL)

    def _understand(self, event: dict[str, Any]) -> None:
        """Bring the job up to date."""
        kind, job = event["kind"], self.job
        if kind == "note":
            job.tell(event["text"])
        elif kind == "error":
            self._errors.append(event["text"])
        elif kind == "methods":
            job.methods = [
                {"name": name, "state": "waiting", "progress": 0.0, "epoch": None, "epochs": None, "error": None,
                 "seconds": None} for name in event["names"]
            ]  # fmt: skip
            job.stage = "Comparing methods"
        elif kind == "method":
            self._begin(event["name"])
            self._method.update(state="running")
        elif kind == "judged":
            self._method.update(state="done", progress=1.0, error=event["error"], seconds=round(event["seconds"], 2))
            job.expect(event["left"])
        elif kind == "fitting":
            self._begin("")
            job.stage = f"Fitting {event['name']} to all rows"
        elif kind == "epoch":
            self._note_epoch(event)
        elif kind == "calibrating":
            job.stage = "Calibrating intervals by cross-validation"
            job.expect(event["left"])
        elif kind == "saving":
            job.stage = "Saving"
        job.progress = self._progress(kind, event.get("part", 0.0))

    def _begin(self, name: str) -> None:
        self._now, self._began = name, time.monotonic()

    @property
    def _method(self) -> dict[str, Any]:
        return next((method for method in self.job.methods if method["name"] == self._now), {})

    def _note_epoch(self, event: dict[str, Any]) -> None:
        part = float(event["part"])
        self._method.update(progress=part, epoch=event["done"], epochs=event["total"])
        if not self._now and part > 0.02:
            self.job.expect((time.monotonic() - self._began) * (1 - part) / part)

    def _progress(self, kind: str, part: float) -> float:
        """How much is done: methods count alike, and so do the last fit and calibration."""
        n, n_done = len(self.job.methods), sum(method["state"] == "done" for method in self.job.methods)
        now = {"method": 0.0, "epoch": part, "calibrating": 1.0, "saving": 1.9}.get(kind, 0.0)
        return max(self.job.progress, min(0.99, (n_done + now) / (n + 2)))

    def _failure(self, code: int, memory: int) -> str:
        if self._errors and not _tells_of_memory(self._errors[-1]):
            return in_one_sentence(self._errors[-1])
        if self._errors or code in _OUT_OF_MEMORY:
            return f"memory: learning needs more than the {memory >> 20:,} MB that it may take; use fewer rows."
        return f"server: learning ended with code {code}; try again."


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # it is longer than the buffer
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip()


def _bound_memory(process: int, memory: int) -> None:
    """Let a process have no more memory than this, where the system can tell it so."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # it may have ended
            resource.prlimit(process, resource.RLIMIT_DATA, (memory, memory))


def _tells_of_memory(error: str) -> bool:
    """Return whether an error of the process is a lack of memory; libraries word it differently."""
    words = r"^memory: expected enough|(can't|cannot) allocate memory|alloc of size \d+ failed|bad_alloc"
    return re.search(words, error, re.IGNORECASE) is not None


def _proportions_name(table: StoredTable) -> str:
    return f"proportions-{table.name}"


def _options(asked: LearnJob, proportions: StoredTable | None) -> dict[str, Any]:
    return {
        "bag": list(asked.bag), "label": asked.label,
        "prevalences": None if proportions is None else _proportions_name(proportions),
        "counts": True if asked.counts else None, "ignore": _named(asked.ignore),
        "missing": None if asked.missing == "refuse" else asked.missing,
        "method": None if asked.method == "auto" else asked.method, "output": asked.name,
    }  # fmt: skip


def _named(columns: list[str]) -> list[str]:
    """Names as the command line takes them: one alone is taken for several with commas, unless it is quoted."""
    if len(columns) != 1:
        return columns
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(columns)
    return [text.getvalue()]


def _task(asked: LearnJob, table: StoredTable, proportions: StoredTable | None) -> dict[str, Any]:
    """Return the arguments of the process."""
    reading = {
        "bag": list(asked.bag), "label": asked.label, "ignore": asked.ignore or None, "missing": asked.missing,
        "prevalences": None if proportions is None else _proportions_name(proportions), "counts": asked.counts,
    }  # fmt: skip
    about = {"command": _line(asked, table, proportions), "sources": [table.name]}
    return {"source": table.name, "method": asked.method, "output": asked.name, "about": about, "reading": reading}


def _line(asked: LearnJob, table: StoredTable, proportions: StoredTable | None) -> str:
    return command("fit", table.name, **_options(asked, proportions))


def check_learning(asked: LearnJob, table: StoredTable) -> None:
    """Refuse what cannot be learned, before anything is started."""
    columns = table.about["columns"]
    known = {column["name"] for column in columns}
    given = {"bag": asked.bag, "label": [asked.label] if asked.label else [], "ignore": asked.ignore}
    for argument, names in given.items():
        for name in names:
            if name not in known:
                raise RefusedError(422, f"{argument}: {table.name} has no column {name[:80]!r}; name one that it has.")
    if (asked.label is None) == (asked.proportions_table is None):
        raise RefusedError(422, "label: expected either a label column or a table of proportions; give one of them.")
    if asked.proportions_table is not None and not asked.bag:
        raise RefusedError(422, "bag: expected the bag column that the table of proportions has; name it.")
    if asked.proportions_table == asked.table:
        raise RefusedError(422, "proportions_table: expected another table than that of the rows; send it, too.")
    special = {*asked.ignore, *asked.bag, asked.label}
    numbers = (column["name"] for column in columns if column["kind"] in ("number", "truth"))
    if asked.ignore and all(name in special for name in numbers):
        raise RefusedError(422, "ignore: no column of numbers is left to learn from; ignore fewer.")
