"""The routes of the service. Worker processes do the work."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from histnetq.registry import FORMATS
from histnetq.web import documentation, schemas
from histnetq.web.children import machine_memory, resident_bytes
from histnetq.web.errors import INTERNAL, LOG, RefusedError
from histnetq.web.estimate_jobs import EstimateJobs
from histnetq.web.estimate_work import ESTIMATES, MONITOR_CSV, MONITOR_PAGE, REPORT, SAMPLE
from histnetq.web.jobs import Job, Jobs
from histnetq.web.learning import Learner, LearnTask, check_learning
from histnetq.web.limits import TableLimits, is_csv
from histnetq.web.metrics import Metrics
from histnetq.web.model_store import Shelf
from histnetq.web.places import Places
from histnetq.web.security import Door, Guard
from histnetq.web.serializers import SHOWN_BAGS
from histnetq.web.tables import StoredTable, Tables
from histnetq.web.uploads import Body, Spool
from histnetq.web.workers import Workers

_ASSETS = Path(__file__).parent / "assets"
_JOBS_WAITING = 8
_PART = 1 << 18  # bytes of a file that are sent together
_LARGEST_JSON = 32 << 20  # bytes of rows as JSON, which take much more memory than CSV or Parquet
_CSV, _JSON = FORMATS["csv"].media_types[0], "application/json"
_KINDS = {
    **{media: known.endings[0] for known in FORMATS.values() for media in known.media_types},
    _JSON: ".json",
    "application/octet-stream": FORMATS["parquet"].endings[0],
}
_MEDIA = {ESTIMATES: _CSV, SAMPLE: _CSV, MONITOR_CSV: _CSV, REPORT: "text/html", MONITOR_PAGE: "text/html"}
_ROWS = {"type": "string", "format": "binary"}
_TABLES = [known.media_types[0] for known in FORMATS.values()]
_OBJECTS = {"schema": {"type": "array", "items": {"type": "object"}}}
_BODY = {"content": {**{media: {"schema": _ROWS} for media in _TABLES}, _JSON: _OBJECTS}, "required": True}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": schemas.Failure} for status in (400, 401, 403, 404, 405, 408, 413, 421, 422, 431, *statuses)
    }


class Json(Response):
    """JSON in ASCII, which can also repeat unpaired surrogates from a request."""

    media_type = _JSON

    def render(self, content: Any) -> bytes:
        """Return the content as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True)
class Settings:
    """Settings of the service.

    Attributes
    ----------
    models : Path
        A directory of models, or the directory of a single model.
    door : Door
        Which requests are accepted.
    workers : int
        Number of worker processes for requests; half as many more, at least one, work on jobs.
    waiting : int
        Number of further requests that may wait.
    seconds : float
        Time limit for the work on one request.
    memory : int
        Bytes of memory that each worker process may use.
    upload_bytes : int
        Largest size of an uploaded table.
    body_bytes : int
        Largest size of the body of a request for estimates.
    learn_memory : int
        Bytes of memory that learning may use; default: three quarters of the machine's memory.
    """

    models: Path
    door: Door
    workers: int = 2
    waiting: int = 64
    seconds: float = 120.0
    memory: int = field(default_factory=lambda: machine_memory() // 2)
    upload_bytes: int = 4 << 30
    body_bytes: int = 256 << 20
    learn_memory: int = field(default_factory=lambda: machine_memory() // 4 * 3)


class Service(Collector):
    """The objects that the routes share: models, tables, jobs and workers."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.shelf, self.metrics = settings, Shelf(settings.models), metrics
        self.table_limits = TableLimits(settings.upload_bytes)
        self.body_limits = TableLimits(min(settings.body_bytes, settings.upload_bytes))
        self.spool = Spool(Path(tempfile.gettempdir()), "histnetq-serve-")
        self.tables, self.jobs = Tables(self.spool, self.table_limits), Jobs(self.spool)
        n_workers, n_job_workers = settings.workers, max(1, settings.workers // 2)
        self.places, self.job_places = Places(n_workers, settings.waiting), Places(n_job_workers, _JOBS_WAITING)
        self.workers = Workers(n_workers, settings.models, settings.memory)
        self.job_workers = Workers(n_job_workers, settings.models, settings.memory)
        self.estimate_jobs = EstimateJobs(self.job_workers, self.table_limits, metrics)
        self.learner = Learner(self.shelf, self.table_limits, settings.learn_memory)
        metrics.registry.register(self)

    async def close(self) -> None:
        """End jobs and workers, and delete all uploaded tables and results."""
        self.jobs.cancel_all()
        closing = (self.learner, self.estimate_jobs, self.workers, self.job_workers)
        await asyncio.gather(*(part.close() for part in closing))
        self.spool.close()

    async def run(self, request: Request, task: str, **arguments: Any) -> tuple[dict[str, Any], bytes]:
        """Run a task of a request in a worker process."""
        return await self.workers.run(task, arguments, seconds=self.settings.seconds, client=self.client(request))

    def client(self, request: Request) -> str:
        """Return the client that sent a request."""
        return self.settings.door.client(request.scope)

    def health(self) -> str:
        """Return "ok"; "busy" if every request worker has long been on its task; "degraded" if no worker can start."""
        is_degraded = "degraded" in (self.workers.status, self.job_workers.status)
        return "degraded" if is_degraded else self.workers.status

    def collect(self) -> list[Metric]:
        """Return the metrics that are measured when Prometheus asks for them."""
        busy = GaugeMetricFamily("histnetq_busy", "Pieces of work that run or wait.", labels=["of"])
        jobs = GaugeMetricFamily("histnetq_jobs", "Jobs that are known, by their state.", labels=["state"])
        alive = GaugeMetricFamily("histnetq_workers", "Worker processes that are alive.", labels=["of"])
        about = "Worker processes that were killed or died, by the reason."
        ended = CounterMetricFamily("histnetq_workers_ended", about, labels=["of", "reason"])
        about = "Memory that the server and its workers use."
        memory = GaugeMetricFamily("histnetq_memory_bytes", about, labels=["process"])
        for state, n in self.jobs.count().items():
            jobs.add_metric([state], n)
        pids = {"server": os.getpid()}
        pools = {"predict": (self.workers, self.places), "jobs": (self.job_workers, self.job_places)}
        for name, (workers, places) in pools.items():
            busy.add_metric([name], places.n_taken)
            alive.add_metric([name], workers.n_alive)
            pids |= {f"{name} {i}": pid for i, pid in enumerate(workers.pids())}
            for reason, n in workers.n_ended.items():
                ended.add_metric([name, reason], n)
        for process, pid in pids.items():
            if (n_bytes := resident_bytes(pid)) is not None:
                memory.add_metric([process], n_bytes)
        return [busy, jobs, alive, ended, memory]

    def start(self, asked: schemas.EstimateJob | schemas.LearnJob, client: str) -> Job:
        """Start a job."""
        table = self.tables.get(asked.table)
        described = {**asked.model_dump(), "table_name": table.name}
        if isinstance(asked, schemas.EstimateJob):
            self.shelf.find(asked.model)
            labelled = None if asked.audited is None else self.tables.get(asked.audited)
            release = self.job_places.claim(client)
            try:
                job = self.jobs.add("estimate", described)
            except RefusedError:
                release()
                raise
            self.estimate_jobs.add(job, asked, table, labelled, client, release)
            return job
        self.shelf.refuse_name(asked.name)
        check_learning(asked, table)
        self.learner.require_room()
        others = [] if asked.proportions_table is None else [self.tables.get(asked.proportions_table)]
        job = self.jobs.add("learn", described)
        self.learner.add(job, LearnTask(asked, (table, *others)))
        return job


def make_app(settings: Settings) -> Guard:
    """Return the ASGI application."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.service = Service(settings, metrics)
        yield
        await app.state.service.close()

    metrics = Metrics()
    app = FastAPI(
        title="histnetq", version=metadata.version("histnetq"), lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Estimates how common each class is in bags of rows.", redirect_slashes=False,
    )  # fmt: skip
    _add_page(app)
    _add_models(app)
    _add_jobs(app)
    _add_errors(app)
    app.mount("/assets", StaticFiles(directory=_ASSETS), name="assets")
    return Guard(app, settings.door, metrics, lambda: app.state.service.places.end())


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_ASSETS / "index.html", media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(documentation.page(app.openapi()), media_type="text/html")

    @app.get("/healthz", response_model=schemas.Health, responses={**_refusals(), 503: {"model": schemas.Health}})
    async def health() -> Json:
        """Return the status: ok, busy (every worker has long been on its current task) or, with code 503, degraded."""
        service: Service = app.state.service
        status, needs = service.health(), service.settings.door.token is not None
        alive = {"workers": service.workers.n_alive, "job_workers": service.job_workers.n_alive}
        about = {"status": status, "version": app.version, "token": needs, "waiting": service.workers.n_waiting}
        return Json({**about, **alive}, 503 if status == "degraded" else 200)

    @app.get("/metrics", response_class=Response, responses=_refusals())
    async def metrics() -> Response:
        """Return counts and measurements in the text format of Prometheus."""
        text = generate_latest(app.state.service.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4")


def _add_models(app: FastAPI) -> None:
    @app.get("/v1/models", response_model=schemas.Cards, responses=_refusals())
    async def models() -> Json:
        """List the models."""
        service: Service = app.state.service
        limits = service.table_limits
        return Json({
            "models": await asyncio.to_thread(service.shelf.cards), "can_learn": not service.shelf.single,
            "learns_into": str(service.shelf.place),
            "limits": {"upload_bytes": limits.bytes, "rows": limits.rows, "columns": limits.columns,
                       "cell_bytes": limits.cell_bytes, "shown_bags": SHOWN_BAGS},
        })  # fmt: skip

    @app.get("/v1/models/{name}", response_model=schemas.Card, responses=_refusals())
    async def model(name: str) -> Json:
        """Describe a model."""
        return Json(await asyncio.to_thread(app.state.service.shelf.card, name))

    @app.post(
        "/v1/models/{name}/predict", response_model=schemas.Prediction, responses=_refusals(406, 415, 429, 500, 503),
        openapi_extra={"requestBody": _BODY},
    )  # fmt: skip
    async def predict(
        request: Request, name: str, bag: Annotated[schemas.Columns, Query()] = [],  # noqa: B006
        coverage: schemas.Coverage | None = None, interval: schemas.INTERVAL | None = None,
        weight: schemas.Text | None = None, missing: schemas.MISSING = "refuse", wide: bool = False,
        weight_kind: schemas.WEIGHT_KIND = "survey",
    ) -> Response:  # fmt: skip
        """Estimate the bags of a table: CSV, Parquet, Excel, or a list with one JSON object per row."""
        service: Service = app.state.service
        service.shelf.find(name)
        suffix, as_text = _body_suffix(request), _wants_csv(request)
        options = {"bag": bag, "coverage": coverage, "interval": interval, "weight": weight, "missing": missing}
        options["weight_kind"] = weight_kind
        with service.places.take(service.client(request)), service.spool.temporary() as folder:
            path = folder / f"body{suffix}"
            limits = service.body_limits
            if suffix == ".json":
                limits = TableLimits(min(limits.bytes, _LARGEST_JSON))
            limits.check_bytes(_content_length(request))
            body = Body(path, counts=suffix == ".csv")
            await _receive(body, request, limits)
            limits.check_rows(body.n_lines)
            answer, content = await service.run(
                request, "predict", model=name, path=str(path), limits=dataclasses.asdict(limits), wide=wide,
                as_text=as_text, options=options,
            )  # fmt: skip
        service.metrics.note_estimates(name, answer["summary"])
        return Response(content, media_type=_CSV if as_text else _JSON)


def _add_jobs(app: FastAPI) -> None:
    @app.post(
        "/v1/tables", status_code=201, response_model=schemas.TableAbout, responses=_refusals(415, 429, 500, 503),
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": _ROWS}}, "required": True}},
    )  # fmt: skip
    async def add_table(request: Request, name: Annotated[str, Query(max_length=1000)]) -> Json:
        """Receive a CSV, Parquet or Excel file, and describe its columns and first rows."""
        service: Service = app.state.service
        tables, limits = service.tables, service.table_limits
        _refuse_packed(request)
        with service.places.take(service.client(request)):
            n_bytes = _content_length(request)
            limits.check_bytes(n_bytes)
            table = tables.begin(name, n_bytes or limits.bytes)
            body = Body(table.path, counts=is_csv(table.path))
            try:
                await _receive(body, request, limits)
                answer, _ = await service.run(
                    request, "look", path=str(table.path), n_lines=body.n_lines, limits=dataclasses.asdict(limits)
                )
                tables.keep(table, body.n_bytes, answer["about"])
            except BaseException:
                tables.drop(table)
                raise
        return Json(table.describe(), 201)

    @app.get("/v1/tables/{key}", response_model=schemas.TableAbout, responses=_refusals())
    async def table(key: str) -> Json:
        """Describe the columns and first rows of an uploaded table."""
        return Json(app.state.service.tables.get(key).describe())

    @app.delete("/v1/tables/{key}", status_code=204, responses=_refusals(409))
    async def drop_table(key: str) -> Response:
        """Delete a table."""
        found: StoredTable = app.state.service.tables.get(key)
        if found.n_users:
            raise RefusedError(409, "table: a job uses it; cancel the job first.")
        app.state.service.tables.drop(found)
        return Response(status_code=204)

    @app.post("/v1/jobs", status_code=202, response_model=schemas.JobAbout, responses=_refusals(409, 415, 429))
    async def add_job(request: Request, asked: schemas.AskedJob) -> Json:
        """Start a job that estimates a table or learns a model."""
        service: Service = app.state.service
        return Json(service.start(asked, service.client(request)).describe(), 202)

    @app.get("/v1/jobs", response_model=schemas.JobList, responses=_refusals())
    async def jobs() -> Json:
        """List the jobs."""
        return Json({"jobs": [job.describe(result=False) for job in app.state.service.jobs.listed()]})

    @app.get("/v1/jobs/{key}", response_model=schemas.JobAbout, responses=_refusals())
    async def job(key: str) -> Json:
        """Return the progress of a job, and its result once it is done."""
        return Json(app.state.service.jobs.get(key).describe())

    @app.delete("/v1/jobs/{key}", response_model=schemas.JobAbout, responses=_refusals())
    async def cancel(key: str) -> Json:
        """Cancel a job, or delete it and its files if it has ended."""
        found: Job = app.state.service.jobs.get(key)
        if found.is_over:
            app.state.service.jobs.drop(found)
        found.cancel()
        return Json(found.describe(result=False))

    @app.get("/v1/jobs/{key}/{file}", response_class=FileResponse, responses=_refusals(409, 429, 500, 503))
    async def download(request: Request, key: str, file: str) -> Response:
        """Download a file of a job."""
        service: Service = app.state.service
        found = service.jobs.get(key)
        if found.state != "done":
            raise RefusedError(409, "job: it is not done; ask for its files when it is.")
        if file not in (found.result or {"downloads": []})["downloads"]:
            raise RefusedError(404, "file: the job has none of this name; see downloads in its result.")
        path = found.folder / file
        if file == REPORT and not path.is_file():
            with service.places.take(service.client(request)):
                await service.run(request, "report", **found.work)
        try:
            opened = path.open("rb")  # an open file can be read to its end even if the job is deleted meanwhile
        except FileNotFoundError:
            raise RefusedError(404, "job: it was forgotten meanwhile; start it again.") from None
        headers = {
            "Content-Length": str(os.fstat(opened.fileno()).st_size),
            "Content-Disposition": f'attachment; filename="{file}"',
        }
        return StreamingResponse(_parts(opened), media_type=_MEDIA[file], headers=headers)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RefusedError)
    async def refused(request: Request, error: RefusedError) -> Json:
        return Json({"error": error.sentence}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def refused_by_framework(request: Request, error: HTTPException) -> Json:
        sentences = {404: "address: there is nothing here; see /docs.", 405: "method: not for this address; see /docs."}
        sentence = sentences.get(error.status_code, f"request: {error.detail}; see /docs.")
        return Json({"error": sentence}, error.status_code, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def misfit(request: Request, error: RequestValidationError) -> Json:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
        status = 400 if first["type"] == "json_invalid" else 422
        return Json({"error": f"{place[:200] or 'body'}: {first['msg']}; see /docs."}, status)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Json:
        return Json({"error": "body: the connection ended before all of it came; send it again."}, 400)

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> Json:
        LOG.error("A request failed.", exc_info=error)
        return Json({"error": INTERNAL}, 500)


async def _receive(body: Body, request: Request, limits: TableLimits) -> None:
    """Receive a body and write it to its file."""
    with contextlib.closing(body):
        await body.receive(request.stream(), limits)
        await asyncio.to_thread(body.finish)


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART):
            yield part


def _content_length(request: Request) -> int:
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _refuse_packed(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RefusedError(415, "Content-Encoding: expected the bytes of the file as they are; send them unpacked.")


def _body_suffix(request: Request) -> str:
    _refuse_packed(request)
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in _KINDS:
        raise RefusedError(415, f"Content-Type: expected {', '.join(_TABLES)} or {_JSON}; name one of them.")
    return _KINDS[given]


def _wants_csv(request: Request) -> bool:
    """Return whether the header Accept prefers CSV to JSON; refuse if it accepts neither."""
    weights = {_JSON: 0.0, _CSV: 0.0}
    for part in request.headers.get("accept", "*/*").split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            value = float(weight)
        except ValueError:
            value = 0.0
        for known in weights:
            if kind in (known, "*/*", f"{known.partition('/')[0]}/*"):
                weights[known] = max(weights[known], value if kind == known else 0.99 * value)
    if max(weights.values()) <= 0:
        raise RefusedError(406, f"Accept: expected {_JSON} or {_CSV}; name one of them.")
    return weights[_CSV] > weights[_JSON]
