"""The job that learns a model in a separate process, one at a time.

The process (`learn_process`) works in a hidden directory next to the models. The finished model is moved to its final
path by one rename, so a kill leaves no partial model; the next start deletes the directories of killed servers. The
process sends its progress through a pipe, and ends with the server.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histnetq.web.children import environment, send
from histnetq.web.errors import RefusedError, in_one_sentence
from histnetq.web.jobs import Job
from histnetq.web.limits import TableLimits
from histnetq.web.model_store import Shelf
from histnetq.web.schemas import LearnJob
from histnetq.web.serializers import command
from histnetq.web.tables import StoredTable
from histnetq.web.uploads import Spool, delete_abandoned

_HIDDEN = ".learning-"
_MOST = 4  # jobs that run or wait
_NICE = 10
_GRACE = 10.0  # seconds that a cancelled process has to end
_LONGEST_LINE = 1 << 20  # bytes of an event
# Exit codes of processes that ran out of memory.
_OUT_OF_MEMORY = (-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)


@dataclass(frozen=True)
class LearnTask:
    """A request to learn a model, with the table of rows and optionally the table of proportions."""

    job: LearnJob
    tables: tuple[StoredTable, ...]

    @property
    def names(self) -> tuple[str, str | None]:
        """File names of the tables in the process, which differ even if the uploaded names are the same."""
        return self.tables[0].name, f"proportions-{self.tables[1].name}" if len(self.tables) > 1 else None

    @property
    def command(self) -> str:
        """The command line that learns the same model."""
        job, (source, proportions) = self.job, self.names
        return command(
            "fit", source, bag=job.bag, label=job.label, prevalences=proportions,
            counts=True if job.counts else None, ignore=_quoted(job.ignore),
            missing=None if job.missing == "refuse" else job.missing,
            method=None if job.method == "auto" else job.method,
            bag_size=[str(size) for size in job.bag_size] or None, output=job.name,
        )  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the process."""
        job, (source, proportions) = self.job, self.names
        reading = job.model_dump(include={"bag", "label", "missing", "counts"})
        reading |= {"ignore": job.ignore or None, "prevalences": proportions}
        about = {"command": self.command, "sources": [source]}
        how = {"method": job.method, "bag_size": job.bag_size or None, "about": about}
        return {"source": source, "output": job.name, "reading": reading, **how}


class Learner:
    """Learns one model at a time, within `limits` of the table and `memory` bytes, and adds it to `shelf`."""

    def __init__(self, shelf: Shelf, limits: TableLimits, memory: int) -> None:
        self.shelf, self._one, self._tasks = shelf, asyncio.Lock(), set[asyncio.Task[None]]()
        self.limits, self.memory = limits, memory
        if not shelf.single:
            delete_abandoned(shelf.place, _HIDDEN)

    def require_room(self) -> None:
        """Refuse a further job if too many are running or waiting."""
        if len(self._tasks) >= _MOST:
            raise RefusedError(429, f"server: {_MOST} models are learned or wait; try again later.", Retry_After="30")

    def add(self, job: Job, asked: LearnTask) -> None:
        """Learn as soon as all earlier jobs have ended."""
        for table in asked.tables:
            table.n_users += 1
        task = asyncio.create_task(self._learn(job, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for cancelled jobs to end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _learn(self, job: Job, asked: LearnTask) -> None:
        name = asked.job.name
        try:
            async with self._one:
                job.start("Reading the table in a separate process, which takes some seconds to start")
                with contextlib.closing(Spool(self.shelf.place, _HIDDEN)) as hidden:
                    place = hidden.make("work")
                    await _Process(job, asked, place).run(self.limits, self.memory)
                    job.check()
                    self.shelf.refuse_name(name)  # another model may have taken it meanwhile
                    os.rename(place / name, self.shelf.place / name)
            job.finish({"command": asked.command, "model": self.shelf.card(name), "downloads": []})
        except Exception as error:
            job.fail(error)
        finally:
            for table in asked.tables:
                table.release()


class _Process:
    """The process of a job, and its progress."""

    def __init__(self, job: Job, asked: LearnTask, place: Path) -> None:
        self.job, self.place, self._arguments = job, place, asked.arguments()
        self._now, self._began, self._errors = "", time.monotonic(), list[str]()
        for table, name in zip(asked.tables, asked.names, strict=False):
            os.symlink(table.path, place / str(name))

    async def run(self, limits: TableLimits, memory: int) -> None:
        """Learn within the limits and `memory` bytes; afterwards the model is in `place`."""
        variables = {**environment(), **limits.budget().to_environment()}
        arguments = json.dumps({**self._arguments, "parent": os.getpid()})
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "histnetq.web.learn_process", arguments,
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
                    self._update(json.loads(line))
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

    def _update(self, event: dict[str, Any]) -> None:
        """Update the progress of the job."""
        kind, job = event["kind"], self.job
        if kind == "note":
            job.add_messages(event["text"])
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
        """Return the part that is done: every method, the final fit and the calibration count the same."""
        n, n_done = len(self.job.methods), sum(method["state"] == "done" for method in self.job.methods)
        now = {"method": 0.0, "epoch": part, "calibrating": 1.0, "saving": 1.9}.get(kind, 0.0)
        return max(self.job.progress, min(0.99, (n_done + now) / (n + 2)))

    def _failure(self, code: int, memory: int) -> str:
        if self._errors and not _is_out_of_memory(self._errors[-1]):
            return in_one_sentence(self._errors[-1])
        if self._errors or code in _OUT_OF_MEMORY:
            return f"memory: learning needs more than the {memory >> 20:,} MB that it may take; use fewer rows."
        return f"server: learning ended with code {code}; try again."


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # the line is longer than the buffer
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace").rstrip()


def _bound_memory(process: int, memory: int) -> None:
    """Limit the memory of a process, if the system can limit other processes."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # the process may have ended
            resource.prlimit(process, resource.RLIMIT_DATA, (memory, memory))


def _is_out_of_memory(error: str) -> bool:
    """Return whether an error message reports a lack of memory; each library words it differently."""
    words = r"^memory: expected enough|(can't|cannot) allocate memory|alloc of size \d+ failed|bad_alloc"
    return re.search(words, error, re.IGNORECASE) is not None


def _quoted(columns: list[str]) -> list[str]:
    """Return names as the command line expects them: a single name with commas must be quoted."""
    if len(columns) != 1:
        return columns
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(columns)
    return [text.getvalue()]


def check_learning(asked: LearnJob, table: StoredTable) -> None:
    """Refuse a job whose columns do not fit its table, before anything is started."""
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
        raise RefusedError(422, "proportions_table: expected another table than the table of rows; send it, too.")
    special = {*asked.ignore, *asked.bag, asked.label}
    numbers = (column["name"] for column in columns if column["kind"] in ("number", "truth"))
    if asked.ignore and all(name in special for name in numbers):
        raise RefusedError(422, "ignore: no column of numbers is left to learn from; ignore fewer.")
