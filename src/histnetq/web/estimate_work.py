"""`EstimateWork`: the work of a job that estimates an uploaded table, and the files that it writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from histnetq.report.monitor_page import page
from histnetq.report.table_report import report_table
from histnetq.web import serializers
from histnetq.web.errors import RefusedError, as_refusals
from histnetq.web.limits import TableLimits
from histnetq.web.model_store import Shelf
from histnetq.web.schemas import EstimateJob
from histnetq.workflows.estimating import Estimates

ESTIMATES, REPORT, MONITOR_CSV, MONITOR_PAGE = "estimates.csv", "report.html", "monitor.csv", "monitor.html"
SAMPLE = "sample.csv"
_LARGEST_REPORT = 1 << 30  # bytes of a table: a report holds all rows in memory
_EVENT_SECONDS = 0.1  # between two events about progress


class EstimateWork:
    """Estimates a table with a model, and the mix over time if the table has a time column.

    Parameters
    ----------
    shelf : Shelf
        The models.
    send : callable
        Sends an event to the server.
    asked : dict
        The fields of an `EstimateJob`.
    folder, path : str
        The directory for written files, and the path of the table.
    n_rows : int
        Number of rows of the table.
    limits : dict
        The fields of `TableLimits`.
    audited : str, default=None
        Path of a table with labels of some rows.
    """

    def __init__(
        self,
        shelf: Shelf,
        send: Callable[..., None],
        *,
        asked: dict[str, Any],
        folder: str,
        path: str,
        n_rows: int,
        limits: dict[str, int],
        audited: str | None = None,
    ) -> None:
        self.shelf, self.send, self.asked = shelf, send, EstimateJob(**asked)
        self.folder, self.path, self.n_rows, self.limits = Path(folder), Path(path), n_rows, TableLimits(**limits)
        self.audited = None if audited is None else serializers.UploadedFile(Path(audited), self.limits)
        self._n_read, self._sent = 0, 0.0

    def estimate(self) -> tuple[Estimates, dict[str, Any]]:
        """Write the files, and return the estimates and the result of the job."""
        asked = self.asked
        model = self.shelf.model(asked.model)
        file = serializers.UploadedFile(self.path, self.limits, self._step)
        options = asked.model_dump(include={"bag", "missing", "coverage"})
        if self.audited is None:
            found, messages = serializers.estimate_file(model, file, **options)
        else:
            found, messages = serializers.audit_file(model, file, self.audited, **options)
        with self._sent_messages(messages), (self.folder / ESTIMATES).open("wb") as written:
            written.writelines(self.limits.answered(serializers.csv_parts(found, wide=False), "send fewer bags"))
        shown = serializers.describe_estimates(found)
        result = {
            "command": self._command("predict", **self._labels(), coverage=asked.coverage, output=ESTIMATES),
            "model": asked.model,
            "method": type(model).__name__,
            "table": self.path.name,
            **shown,
            "coverage": (asked.coverage or serializers.COVERAGE) if shown["intervals"] else None,
            "monitoring": None,
            "downloads": [ESTIMATES] if self.audited else [ESTIMATES, REPORT],  # a report knows no labels
        }
        if asked.sample is not None:
            self._write_sample(model, file, asked.sample)
            result["downloads"].append(SAMPLE)
        if asked.time is not None:
            self.send("stage", stage="Looking at the mix over time")
            try:
                result["monitoring"] = self._monitor(model, asked.time, file)
                result["downloads"] += [MONITOR_CSV, MONITOR_PAGE]
            except RefusedError as error:
                result["monitoring"] = {"error": error.sentence}
        return found, result

    def _labels(self) -> dict[str, str]:
        return {} if self.audited is None else {"audited": self.audited.path.name}

    def _write_sample(self, model: Any, file: serializers.UploadedFile, n: int) -> None:
        self.send("stage", stage="Drawing rows for labelling")
        rows, messages = serializers.sample_file(model, file, n, bag=self.asked.bag, missing=self.asked.missing)
        with self._sent_messages(messages), (self.folder / SAMPLE).open("wb") as written:
            written.writelines(self.limits.answered([serializers.as_csv(rows)], "draw fewer rows"))

    @contextmanager
    def _sent_messages(self, messages: list[str]) -> Iterator[None]:
        """Send messages, then those that the block adds to them."""
        self.send("messages", messages=messages)
        with serializers.collected() as more:
            yield
        self.send("messages", messages=[message for message in more if message not in messages])

    def _monitor(self, model: Any, time_: str, file: serializers.UploadedFile) -> dict[str, Any]:
        asked, coverage = self.asked, self.asked.coverage or serializers.COVERAGE
        options = asked.model_dump(include={"period", "reference", "by", "missing", "accuracy"})
        table, reference, messages = serializers.monitor_file(model, file, time=time_, coverage=coverage, **options)
        with self._sent_messages(messages):
            (self.folder / MONITOR_CSV).write_text(serializers.as_csv(table), encoding="utf-8", newline="\n")
        shown = {"period": asked.period, "reference": reference, "by": asked.by, "coverage": asked.coverage}
        line = self._command("monitor", time=time_, **shown, accuracy=asked.accuracy or None, csv=MONITOR_CSV)
        self._write_monitor_page(table, model, reference, coverage, line)
        chunks = serializers.describe_chunks(table, len(model.classes_))
        return {
            "command": line,
            "period": asked.period,
            "reference": reference,
            "segments": asked.by,
            "n_alerts": sum(any(chunk["alert"]) for chunk in chunks),
            "chunks": chunks,
        }

    def _write_monitor_page(self, table: Any, model: Any, reference: str, coverage: float, line: str) -> None:
        self.send("stage", stage="Drawing")
        with as_refusals():
            text = page(
                table,
                method=type(model).__name__,
                reference=reference,
                false_alarms=serializers.FALSE_ALARMS,
                coverage=coverage,
                checked=model.trust_ is not None,
                command=line.replace(f"--csv {MONITOR_CSV}", f"-o {MONITOR_PAGE}"),
            )
        (self.folder / MONITOR_PAGE).write_text(text, encoding="utf-8", newline="\n")

    def _command(self, name: str, **options: Any) -> str:
        asked = self.asked
        missing = None if asked.missing == "refuse" else asked.missing
        place = self.shelf.place if self.shelf.single else self.shelf.place / asked.model
        bag = {} if name == "monitor" else {"bag": asked.bag}
        return serializers.command(name, place, self.path.name, **bag, missing=missing, **options)

    def _step(self, n_rows: int) -> None:
        self._n_read += n_rows
        if time.monotonic() - self._sent < _EVENT_SECONDS:
            return
        self._sent = time.monotonic()
        passes = 1 + (self.asked.time is not None) + (self.asked.sample is not None)
        self.send("part", part=min(0.95, self._n_read / max(1, passes * self.n_rows)))

    def write_report(self) -> None:
        """Write the report about the model and the bags."""
        asked = self.asked
        with as_refusals(self.path.parent, self.folder):
            if not self.path.is_file():
                raise RefusedError(404, "table: it has expired; send the file again.")
            if self.path.stat().st_size > _LARGEST_REPORT:
                raise RefusedError(422, "table: it is too large for a report here; use histnetq report.")
            with serializers.UploadedFile(self.path, self.limits).reading():
                report_table(
                    self.folder / REPORT,
                    self.shelf.find(asked.model),
                    [str(self.path)],
                    bag=asked.bag,
                    missing=asked.missing,
                    coverage=asked.coverage or serializers.COVERAGE,
                    command=self._command("report", output=REPORT),
                    sources=[self.path.name],
                    overwrite=True,
                )
