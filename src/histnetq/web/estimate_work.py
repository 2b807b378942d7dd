"""What a worker does for the job that estimates an uploaded table, and the files that can be fetched afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from histnetq.report.monitor_page import page
from histnetq.report.table_report import report_table
from histnetq.web.errors import RefusedError, told_to_users
from histnetq.web.limits import Limits
from histnetq.web.model_store import Shelf
from histnetq.web.schemas import EstimateJob
from histnetq.web.serializers import (
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
)
from histnetq.workflows.estimating import Estimates

ESTIMATES, REPORT, MONITOR_CSV, MONITOR_PAGE = "estimates.csv", "report.html", "monitor.csv", "monitor.html"
_LARGEST_REPORT = 1 << 30  # bytes of a table, whose rows a report holds in memory
_TELLING = 0.1  # seconds between two events


class EstimateWork:
    """Estimates a table by a model, and with times also watches the mix over time.

    Parameters
    ----------
    shelf : Shelf
        The models.
    tell : callable
        Sends an event to the server.
    asked : dict
        What was asked for, as in `EstimateJob`.
    folder, path : str
        The directory that files go to, and the table.
    n_rows : int
        Number of rows of the table.
    limits : dict
        Limits of the table.
    """

    def __init__(
        self,
        shelf: Shelf,
        tell: Callable[..., None],
        *,
        asked: dict[str, Any],
        folder: str,
        path: str,
        n_rows: int,
        limits: dict[str, int],
    ) -> None:
        self.shelf, self.tell, self.asked = shelf, tell, EstimateJob(**asked)
        self.folder, self.path, self.n_rows, self.limits = Path(folder), Path(path), n_rows, Limits(**limits)
        self._n_read, self._told = 0, 0.0

    def estimate(self) -> tuple[Estimates, dict[str, Any]]:
        """Write the files, and return the estimates and what is told of them."""
        asked = self.asked
        model = self.shelf.model(asked.model)
        reading = Reading(self.path, self.limits, self._step)
        found, messages = estimate_file(
            model, reading, bag=list(asked.bag), missing=asked.missing, coverage=asked.coverage
        )
        self.tell("messages", messages=messages)
        with collected() as warned, (self.folder / ESTIMATES).open("wb") as file:
            file.writelines(self.limits.answered(csv_parts(found, wide=False), "send fewer bags"))
        self.tell("messages", messages=[message for message in warned if message not in messages])
        told = tell_estimates(found)
        intervals, method = told["intervals"], type(model).__name__
        result = {
            "command": self._command("predict", coverage=asked.coverage, output=ESTIMATES),
            "model": asked.model,
            "method": method,
            "table": self.path.name,
            **told,
            "coverage": (asked.coverage or COVERAGE) if intervals else None,
            "monitoring": None,
            "downloads": [ESTIMATES, REPORT],
        }
        if asked.time is not None:
            self.tell("stage", stage="Looking at the mix over time")
            try:
                result["monitoring"] = self._monitor(model, asked.time, reading)
                result["downloads"] += [MONITOR_CSV, MONITOR_PAGE]
            except RefusedError as error:
                result["monitoring"] = {"error": error.sentence}
        return found, result

    def _monitor(self, model: Any, time_: str, reading: Reading) -> dict[str, Any]:
        asked, coverage = self.asked, self.asked.coverage or COVERAGE
        table, reference, messages = monitor_file(
            model,
            reading,
            time=time_,
            period=asked.period,
            reference=asked.reference,
            by=asked.by,
            coverage=coverage,
            missing=asked.missing,
        )
        self.tell("messages", messages=messages)
        with collected() as warned:
            (self.folder / MONITOR_CSV).write_text(as_csv(table), encoding="utf-8", newline="\n")
        self.tell("messages", messages=[message for message in warned if message not in messages])
        line = self._command(
            "monitor",
            time=time_,
            period=asked.period,
            reference=reference,
            by=list(asked.by),
            coverage=asked.coverage,
            csv=MONITOR_CSV,
        )
        self._write_monitor_page(table, model, reference, coverage, line)
        chunks = tell_chunks(table, len(model.classes_))
        return {
            "command": line,
            "period": asked.period,
            "reference": reference,
            "segments": list(asked.by),
            "n_alerts": sum(any(chunk["alert"]) for chunk in chunks),
            "chunks": chunks,
        }

    def _write_monitor_page(self, table: Any, model: Any, reference: str, coverage: float, line: str) -> None:
        self.tell("stage", stage="Drawing")
        with told_to_users():
            text = page(
                table,
                method=type(model).__name__,
                reference=reference,
                false_alarms=FALSE_ALARMS,
                coverage=coverage,
                checked=model.trust_ is not None,
                command=line.replace(f"--csv {MONITOR_CSV}", f"-o {MONITOR_PAGE}"),
            )
        (self.folder / MONITOR_PAGE).write_text(text, encoding="utf-8", newline="\n")

    def _command(self, name: str, **options: Any) -> str:
        asked = self.asked
        missing = None if asked.missing == "refuse" else asked.missing
        place = self.shelf.place if self.shelf.single else self.shelf.place / asked.model
        bag = {} if name == "monitor" else {"bag": list(asked.bag)}
        return command(name, place, self.path.name, **bag, missing=missing, **options)

    def _step(self, n_rows: int) -> None:
        self._n_read += n_rows
        if time.monotonic() - self._told < _TELLING:
            return
        self._told = time.monotonic()
        passes = 2 if self.asked.time is not None else 1
        self.tell("part", part=min(0.95, self._n_read / max(1, passes * self.n_rows)))

    def write_report(self) -> None:
        """Write the report about the model and the bags."""
        asked = self.asked
        with told_to_users(self.path.parent, self.folder):
            if not self.path.is_file():
                raise RefusedError(404, "table: it has expired; send the file again.")
            if self.path.stat().st_size > _LARGEST_REPORT:
                raise RefusedError(422, "table: it is too large for a report here; use histnetq report.")
            with Reading(self.path, self.limits)():
                report_table(
                    self.folder / REPORT,
                    self.shelf.find(asked.model),
                    [str(self.path)],
                    bag=list(asked.bag),
                    missing=asked.missing,
                    coverage=asked.coverage or COVERAGE,
                    command=self._command("report", output=REPORT),
                    sources=[self.path.name],
                    overwrite=True,
                )
