"""The job that estimates an uploaded table, and the files that can be fetched afterwards."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from histnetq.data.table_files import release_memory
from histnetq.monitoring.page import page
from histnetq.report.estimating import report
from histnetq.web.answers import (
    COVERAGE,
    FALSE_ALARMS,
    Reading,
    as_csv,
    collected,
    command,
    csv_parts,
    estimate_file,
    monitor_file,
    tell_chunks,
    tell_estimates,
)  # fmt: skip
from histnetq.web.jobs import Job
from histnetq.web.limits import Limits
from histnetq.web.metrics import Metrics
from histnetq.web.refusals import RefusedError, told_to_users
from histnetq.web.schemas import EstimateJob
from histnetq.web.shelf import Shelf
from histnetq.web.tables import StoredTable
from histnetq.web.workers import Stop

ESTIMATES, REPORT, MONITOR_CSV, MONITOR_PAGE = "estimates.csv", "report.html", "monitor.csv", "monitor.html"
_LARGEST_REPORT = 1 << 30  # bytes of a table, whose rows a report holds in memory
_drawing = threading.Lock()  # matplotlib's settings are those of all threads


class EstimateWork:
    """Estimates a table by a model, and with times also watches the mix over time.

    Parameters
    ----------
    job : Job
        What is told of it.
    asked : EstimateJob
        What was asked for.
    table : StoredTable
        The table.
    shelf, limits, metrics
        Those of the server.
    """

    def __init__(
        self, job: Job, asked: EstimateJob, table: StoredTable, shelf: Shelf, limits: Limits, metrics: Metrics
    ) -> None:
        self.job, self.asked, self.table, self.shelf = job, asked, table, shelf
        self.limits, self.metrics, self._n_read = limits, metrics, 0

    def __call__(self) -> None:
        """Do it, and end the job."""
        try:
            with self.job.stop.working():
                self.job.start("Reading the table")
                result = self._estimate()
            self.job.finish(result)
        except Exception as error:
            self.job.fail(error)
        finally:
            release_memory()

    def _estimate(self) -> dict[str, Any]:
        asked, job = self.asked, self.job
        model = self.shelf.model(asked.model)
        reading = Reading(self.table.path, self.limits, job.stop, self._step)
        found, messages = estimate_file(
            model, reading, bag=list(asked.bag), missing=asked.missing, coverage=asked.coverage
        )
        job.tell(*messages)
        self.metrics.note_estimates(asked.model, found, float(found.about["n"].sum()))
        with collected() as warned, (job.folder / ESTIMATES).open("wb") as file:
            file.writelines(self.limits.answered(csv_parts(found, wide=False), "send fewer bags"))
        job.tell(*warned)
        told = tell_estimates(found)
        intervals, method = told["intervals"], type(model).__name__
        result = {
            "command": self._command("predict", coverage=asked.coverage, output=ESTIMATES), "model": asked.model,
            "method": method, "table": self.table.name, **told,
            "coverage": (asked.coverage or COVERAGE) if intervals else None, "monitoring": None,
            "downloads": [ESTIMATES, REPORT],
        }  # fmt: skip
        if asked.time is not None:
            job.stage = "Looking at the mix over time"
            try:
                result["monitoring"] = self._monitor(model, asked.time, reading)
                result["downloads"] += [MONITOR_CSV, MONITOR_PAGE]
            except RefusedError as error:
                result["monitoring"] = {"error": error.sentence}
        return result

    def _monitor(self, model: Any, time_: str, reading: Reading) -> dict[str, Any]:
        asked, coverage = self.asked, self.asked.coverage or COVERAGE
        table, reference, messages = monitor_file(
            model, reading, time=time_, period=asked.period, reference=asked.reference, by=asked.by,
            coverage=coverage, missing=asked.missing,
        )  # fmt: skip
        self.job.tell(*messages)
        with collected() as warned:
            (self.job.folder / MONITOR_CSV).write_text(as_csv(table), encoding="utf-8", newline="\n")
        self.job.tell(*(message for message in warned if message not in self.job.messages))
        line = self._command(
            "monitor", time=time_, period=asked.period, reference=reference, by=list(asked.by),
            coverage=asked.coverage, csv=MONITOR_CSV,
        )  # fmt: skip
        self._write_monitor_page(table, model, reference, coverage, line)
        chunks = tell_chunks(table, len(model.classes_))
        return {
            "command": line, "period": asked.period, "reference": reference, "segments": list(asked.by),
            "n_alerts": sum(any(chunk["alert"]) for chunk in chunks), "chunks": chunks,
        }  # fmt: skip

    def _write_monitor_page(self, table: Any, model: Any, reference: str, coverage: float, line: str) -> None:
        self.job.stage = "Drawing"
        with told_to_users(), _drawing:
            text = page(
                table, method=type(model).__name__, reference=reference, false_alarms=FALSE_ALARMS, coverage=coverage,
                checked=hasattr(model, "trust_"), command=line.replace(f"--csv {MONITOR_CSV}", f"-o {MONITOR_PAGE}"),
            )  # fmt: skip
        (self.job.folder / MONITOR_PAGE).write_text(text, encoding="utf-8", newline="\n")

    def _command(self, name: str, **options: Any) -> str:
        asked = self.asked
        missing = None if asked.missing == "refuse" else asked.missing
        place = self.shelf.place if self.shelf.single else self.shelf.place / asked.model
        bag = {} if name == "monitor" else {"bag": list(asked.bag)}
        return command(name, place, self.table.name, **bag, missing=missing, **options)

    def _step(self, n_rows: int) -> None:
        self._n_read += n_rows
        passes = 2 if self.asked.time is not None else 1
        part = min(0.95, self._n_read / max(1, passes * self.table.n_rows))
        seconds = time.monotonic() - self.job.began
        self.job.progress = part
        if seconds > 1 and part > 0.02:
            self.job.expect(seconds * (1 - part) / part)

    def write_report(self) -> Path:
        """Write the report about the model and the bags, unless it is there."""
        path, asked = self.job.folder / REPORT, self.asked
        reading = Reading(self.table.path, self.limits, Stop())
        with told_to_users(self.table.path.parent, self.job.folder), _drawing:
            if path.is_file():
                return path
            if not self.table.path.is_file():
                raise RefusedError(404, "table: it has expired; send the file again.")
            if self.table.path.stat().st_size > _LARGEST_REPORT:
                raise RefusedError(422, "table: it is too large for a report here; use histnetq report.")
            with reading():
                report(
                    path, self.shelf.find(asked.model), [str(self.table.path)], bag=list(asked.bag),
                    missing=asked.missing, coverage=asked.coverage or COVERAGE,
                    command=self._command("report", output=REPORT), sources=[self.table.name],
                )  # fmt: skip
        return path
