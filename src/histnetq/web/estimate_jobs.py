"""`EstimateJobs`: jobs that estimate uploaded tables in worker processes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

from histnetq.web.jobs import Job
from histnetq.web.limits import TableLimits
from histnetq.web.metrics import Metrics
from histnetq.web.schemas import EstimateJob
from histnetq.web.tables import StoredTable
from histnetq.web.workers import Workers


class EstimateJobs:
    """Runs jobs that estimate tables in `workers`, within `limits`, and counts them in `metrics`."""

    def __init__(self, workers: Workers, limits: TableLimits, metrics: Metrics) -> None:
        self.workers, self.limits, self.metrics, self._tasks = workers, limits, metrics, set[asyncio.Task[None]]()

    def add(
        self,
        job: Job,
        asked: EstimateJob,
        table: StoredTable,
        labelled: StoredTable | None,
        client: str,
        ended: Callable[[], None],
    ) -> None:
        """Run a job on a table, and on labels of its rows if there are any, then call `ended`."""
        tables = [table] if labelled is None else [table, labelled]
        job.work = {
            "asked": asked.model_dump(),
            "folder": str(job.folder),
            "path": str(table.path),
            "n_rows": table.n_rows,
            "limits": dataclasses.asdict(self.limits),
            "audited": None if labelled is None else str(labelled.path),
        }
        for used in tables:
            used.n_users += 1
        task = asyncio.create_task(self._run(job, asked.model, client))
        job.on_cancel = task.cancel

        def release(_: Any) -> None:
            self._tasks.discard(task)
            for used in tables:
                used.release()
            ended()

        self._tasks.add(task)
        task.add_done_callback(release)

    async def close(self) -> None:
        """Wait for cancelled jobs to end."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, job: Job, model: str, client: str) -> None:
        try:
            answer, content = await self.workers.run(
                "estimate", job.work, seconds=None, client=client, on_event=lambda event: _update(job, event)
            )
            self.metrics.note_estimates(model, answer["summary"])
            job.finish(json.loads(content))
        except Exception as error:
            job.fail(error)


def _update(job: Job, event: dict[str, Any]) -> None:
    """Update the progress of a job."""
    kind = event["kind"]
    if kind == "began":
        job.start("Reading the table")
    elif kind == "messages":
        job.add_messages(*event["messages"])
    elif kind == "stage":
        job.stage = event["stage"]
    elif kind == "part":
        job.progress = part = event["part"]
        seconds = time.monotonic() - job.began
        if seconds > 1 and part > 0.02:
            job.expect(seconds * (1 - part) / part)
