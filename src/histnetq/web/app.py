"""The routes: what each address answers. The work is done elsewhere, in threads or processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pyarrow import parquet
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from histnetq.web import documentation
from histnetq.web.answers import (
    SHOWN_BAGS,
    Reading,
    collect_warnings,
    csv_parts,
    estimate_file,
    is_trusted,
    json_parts,
)  # fmt: skip
from histnetq.web.estimate_jobs import ESTIMATES, MONITOR_CSV, MONITOR_PAGE, REPORT, EstimateWork
from histnetq.web.jobs import Job, Jobs
from histnetq.web.json_rows import rows_as_table
from histnetq.web.learning import Learner, check_learning
from histnetq.web.limits import Limits, is_parquet
from histnetq.web.metrics import Labels, Metrics
from histnetq.web.refusals import LOG, RefusedError, told_to_users
from histnetq.web.schemas import (
    INTERVAL,
    MISSING,
    AskedJob,
    Card,
    Cards,
    Columns,
    Coverage,
    EstimateJob,
    Failure,
    Health,
    JobAbout,
    JobList,
    LearnJob,
    Prediction,
    TableAbout,
    Text,
)  # fmt: skip
from histnetq.web.security import Door, Guard
from histnetq.web.shelf import Shelf
from histnetq.web.spool import Body, Spool
from histnetq.web.tables import StoredTable, Tables
from histnetq.web.workers import GRACE, Stop, Workers

_ASSETS = Path(__file__).parent / "assets"
_SECONDS = 120.0  # for the work of one request
_PART = 1 << 18  # bytes of a file that are answered together
_LARGEST_JSON = 32 << 20  # bytes of rows as JSON, which take much more memory than others
_CSV, _PARQUET, _JSON = "text/csv", "application/vnd.apache.parquet", "application/json"
_KINDS = {
    _CSV: ".csv", "application/csv": ".csv", _PARQUET: ".parquet", "application/x-parquet": ".parquet",
    "application/parquet": ".parquet", _JSON: ".json", "application/octet-stream": ".parquet",
}  # fmt: skip
_MEDIA = {ESTIMATES: _CSV, MONITOR_CSV: _CSV, REPORT: "text/html", MONITOR_PAGE: "text/html"}
_ROWS = {"type": "string", "format": "binary"}
_BODY = {"content": {_CSV: {"schema": _ROWS}, _PARQUET: {"schema": _ROWS}, _JSON: {"schema": {
    "type": "array", "items": {"type": "object"}}}}, "required": True}  # fmt: skip


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Failure} for status in (400, 401, 403, 404, 405, 408, 413, 421, 422, *statuses)}


class Json(Response):
    """Data as JSON in ASCII: also halves of characters, which a request may hold, can be written back."""

    media_type = _JSON

    def render(self, content: Any) -> bytes:
        """Give the text."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


@dataclass(frozen=True)
class Settings:
    """How the service runs.

    Attributes
    ----------
    models : Path
        A directory of models, or the directory of one.
    door : Door
        Who may come in.
    threads : int
        How many requests are worked on at the same time.
    waiting : int
        How many more may wait.
    upload_bytes : int
        How large an uploaded table may be.
    body_bytes : int
        How large the body of a request for estimates may be.
    learn_bytes : int, optional
        Memory that learning may take; default: three quarters of the machine's memory.
    """

    models: Path
    door: Door
    threads: int = 2
    waiting: int = 64
    upload_bytes: int = 4 << 30
    body_bytes: int = 256 << 20
    learn_bytes: int | None = None


class Service:
    """What the routes share: models, tables, jobs and threads."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings, self.shelf, self.metrics = settings, Shelf(settings.models), metrics
        self.table_limits = Limits(settings.upload_bytes)
        self.body_limits = Limits(min(settings.body_bytes, settings.upload_bytes))
        self.spool = Spool(Path(tempfile.gettempdir()), "histnetq-serve-")
        self.tables, self.jobs = Tables(self.spool, self.table_limits), Jobs(self.spool)
        self.works: dict[str, EstimateWork] = {}
        self.workers = Workers(settings.threads, settings.waiting, "predict")
        self.job_workers = Workers(max(1, settings.threads // 2), 8, "job")
        self.learner = Learner(self.shelf, self.table_limits, settings.learn_bytes)
        self.n_uploads = 0

    async def close(self) -> None:
        """End jobs, finish what runs, and delete what was kept."""
        self.jobs.cancel_all()
        await self.learner.close()
        await asyncio.to_thread(self.workers.close)
        await asyncio.to_thread(self.job_workers.close)
        self.spool.close()

    def predict(
        self, name: str, path: Path, stop: Stop, wide: bool, as_text: bool, options: dict[str, Any]
    ) -> Response:
        """Estimate the bags of a body that was received; called in a thread."""
        stop.check()
        found, messages = estimate_file(self.shelf.model(name), Reading(path, self.body_limits, stop), **options)
        self.metrics.note_estimates(name, found, float(found.about["n"].sum()))
        with told_to_users():
            parts = (csv_parts if as_text else json_parts)(found, wide)
            rows = list(self.body_limits.answered(parts, "send fewer bags, or ask for wide=true"))
        if as_text:
            return Response(b"".join(rows), media_type=_CSV)
        doubted = int((~is_trusted(found)).sum())
        told = json.dumps({"model": name, "bags": len(found), "doubted": doubted, "messages": messages})
        return Response(b"".join([told[:-1].encode(), b',"estimates":', *rows, b"}"]), media_type=_JSON)

    def start(self, asked: EstimateJob | LearnJob) -> Job:
        """Start a job."""
        table = self.tables.get(asked.table)
        told = {**asked.model_dump(), "table_name": table.name}
        if isinstance(asked, EstimateJob):
            self.shelf.find(asked.model)
            self.job_workers.require_room()
            job = self.jobs.add("estimate", told)
            self.works = {key: work for key, work in self.works.items() if work.job.folder.is_dir()}
            self.works[job.id] = work = EstimateWork(job, asked, table, self.shelf, self.table_limits, self.metrics)
            loop = asyncio.get_running_loop()
            table.n_users += 1
            future = self.job_workers.submit(work)
            future.add_done_callback(lambda _: _call_in(loop, table.release))
            job.on_cancel = lambda: _end_early(loop, future, job)
            return job
        self.shelf.refuse_name(asked.name)
        check_learning(asked, table)
        self.learner.require_room()
        proportions = None if asked.proportions_table is None else self.tables.get(asked.proportions_table)
        job = self.jobs.add("learn", told)
        for used in (table, proportions):
            if used is not None:
                used.n_users += 1
        self.learner.add(job, asked, table, proportions)
        return job


def _end_early(loop: asyncio.AbstractEventLoop, future: Future[None], job: Job) -> None:
    """Free the place of work that has not begun; interrupt what goes on in spite of being told to stop."""
    future.cancel()
    _call_in(loop, lambda: loop.call_later(GRACE, job.stop.interrupt))


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)


@contextlib.contextmanager
def _counted(service: Service) -> Any:
    """Refuse more bodies at the same time than there is work for."""
    most = service.workers.most
    if service.n_uploads >= most:
        raise RefusedError(429, f"server: {most} bodies are being received; try again in 1 s.", Retry_After="1")
    service.n_uploads += 1
    try:
        yield
    finally:
        service.n_uploads -= 1


def make_app(settings: Settings) -> Guard:
    """Make the application, by ASGI."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        collect_warnings()
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
    return Guard(app, settings.door, metrics)


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_ASSETS / "index.html", media_type="text/html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(documentation.page(app.openapi()), media_type="text/html")

    @app.get("/healthz", response_model=Health, responses=_refusals())
    async def health() -> Json:
        """Tell that the server works."""
        needs = app.state.service.settings.door.token is not None
        return Json({"status": "ok", "version": app.version, "token": needs})

    @app.get("/metrics", response_class=Response, responses=_refusals())
    async def metrics() -> Response:
        """Tell what was counted, as Prometheus reads it."""
        service: Service = app.state.service
        workers = {"predict": service.workers, "jobs": service.job_workers}
        busy: dict[Labels, float] = {(("of", name),): some.n_busy for name, some in workers.items()}
        jobs: dict[Labels, float] = {(("state", state),): n for state, n in service.jobs.count().items()}
        text = service.metrics.expose(histnetq_busy=busy, histnetq_jobs=jobs)
        return Response(text, media_type="text/plain; version=0.0.4")


def _add_models(app: FastAPI) -> None:
    @app.get("/v1/models", response_model=Cards, responses=_refusals())
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

    @app.get("/v1/models/{name}", response_model=Card, responses=_refusals())
    async def model(name: str) -> Json:
        """Describe a model."""
        return Json(await asyncio.to_thread(app.state.service.shelf.card, name))

    @app.post(
        "/v1/models/{name}/predict", response_model=Prediction, responses=_refusals(406, 415, 429, 503),
        openapi_extra={"requestBody": _BODY},
    )  # fmt: skip
    async def predict(
        request: Request, name: str, bag: Annotated[Columns, Query()] = [],  # noqa: B006
        coverage: Coverage | None = None, interval: INTERVAL | None = None, weight: Text | None = None,
        missing: MISSING = "refuse", wide: bool = False,
    ) -> Response:  # fmt: skip
        """Estimate the bags of a table: CSV, Parquet or a list of JSON objects, one for each row."""
        service: Service = app.state.service
        service.shelf.find(name)
        service.workers.require_room()
        suffix, as_text = _body_suffix(request), _wants_csv(request)
        options = {"bag": bag, "coverage": coverage, "interval": interval, "weight": weight, "missing": missing}
        with _counted(service), _request_folder(service.spool) as folder:
            path = folder / f"body{suffix}"
            limits = service.body_limits
            if suffix == ".json":
                limits = Limits(min(limits.bytes, _LARGEST_JSON))
            limits.check_bytes(_content_length(request))
            body = Body(path, counts=suffix == ".csv")

            def work(stop: Stop) -> Response:
                stop.check()
                body.finish()
                limits.check_rows(body.n_lines)
                file = _json_as_parquet(path, limits) if suffix == ".json" else path
                return service.predict(name, file, stop, wide, as_text, options)

            with contextlib.closing(body):
                await body.receive(request.stream(), limits)
                return await service.workers.run(work, _SECONDS)


def _add_jobs(app: FastAPI) -> None:
    @app.post(
        "/v1/tables", status_code=201, response_model=TableAbout, responses=_refusals(415, 429),
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": _ROWS}}, "required": True}},
    )  # fmt: skip
    async def add_table(request: Request, name: Annotated[str, Query(max_length=1000)]) -> Json:
        """Receive a CSV or Parquet file, and tell its columns and first rows."""
        service: Service = app.state.service
        tables, limits = service.tables, service.table_limits
        _refuse_packed(request)
        with _counted(service):
            n_bytes = _content_length(request)
            limits.check_bytes(n_bytes)
            table = tables.begin(name, n_bytes or limits.bytes)
            body = Body(table.path, counts=not is_parquet(table.path))
            try:
                with contextlib.closing(body):
                    await body.receive(request.stream(), limits)
                    await asyncio.to_thread(tables.finish, table, body)
            except BaseException:
                tables.drop(table)
                raise
        return Json(table.describe(), 201)

    @app.get("/v1/tables/{key}", response_model=TableAbout, responses=_refusals())
    async def table(key: str) -> Json:
        """Tell the columns and first rows of a table that was received."""
        return Json(app.state.service.tables.get(key).describe())

    @app.delete("/v1/tables/{key}", status_code=204, responses=_refusals(409))
    async def drop_table(key: str) -> Response:
        """Delete a table."""
        found: StoredTable = app.state.service.tables.get(key)
        if found.n_users:
            raise RefusedError(409, "table: a job uses it; cancel the job first.")
        app.state.service.tables.drop(found)
        return Response(status_code=204)

    @app.post("/v1/jobs", status_code=202, response_model=JobAbout, responses=_refusals(409, 415, 429))
    async def add_job(asked: AskedJob) -> Json:
        """Start to estimate a table, or to learn a model."""
        return Json(app.state.service.start(asked).describe(), 202)

    @app.get("/v1/jobs", response_model=JobList, responses=_refusals())
    async def jobs() -> Json:
        """List the jobs."""
        return Json({"jobs": [job.describe(result=False) for job in app.state.service.jobs.listed()]})

    @app.get("/v1/jobs/{key}", response_model=JobAbout, responses=_refusals())
    async def job(key: str) -> Json:
        """Tell how far a job is, and what it found."""
        return Json(app.state.service.jobs.get(key).describe())

    @app.delete("/v1/jobs/{key}", response_model=JobAbout, responses=_refusals())
    async def cancel(key: str) -> Json:
        """Cancel a job; or forget it and its files, if it has ended."""
        found: Job = app.state.service.jobs.get(key)
        if found.is_over:
            app.state.service.jobs.drop(found)
        found.cancel()
        return Json(found.describe(result=False))

    @app.get("/v1/jobs/{key}/{file}", response_class=FileResponse, responses=_refusals(409, 429, 503))
    async def download(key: str, file: str) -> Response:
        """Fetch a file that a job has made."""
        service: Service = app.state.service
        found = service.jobs.get(key)
        if found.state != "done":
            raise RefusedError(409, "job: it is not done; ask for its files when it is.")
        if file not in (found.result or {"downloads": []})["downloads"]:
            raise RefusedError(404, "file: the job has none of this name; see downloads in its result.")
        path = found.folder / file
        if file == REPORT:
            path = await service.workers.run(lambda stop: service.works[key].write_report(), _SECONDS)
        try:
            opened = path.open("rb")  # it can be read to its end even if the job is forgotten meanwhile
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
        return Json({"error": "server: an internal error happened, which is in its log; try again."}, 500)


@contextlib.contextmanager
def _request_folder(spool: Spool) -> Any:
    folder = spool.make(f"r_{uuid.uuid4().hex}")
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # late work may still write there
            for file in os.listdir(folder):
                os.unlink(folder / file)
            folder.rmdir()


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
        raise RefusedError(415, f"Content-Type: expected {_CSV}, {_PARQUET} or {_JSON}; name one of them.")
    return _KINDS[given]


def _wants_csv(request: Request) -> bool:
    """Whether CSV is preferred to JSON by the header Accept; refuse where neither is accepted."""
    weights = {_JSON: 0.0, _CSV: 0.0}
    for part in request.headers.get("accept", "*/*").split(",") or ["*/*"]:
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


def _json_as_parquet(path: Path, limits: Limits) -> Path:

    table = rows_as_table(path.read_bytes(), limits)
    made = path.with_suffix(".parquet")
    parquet.write_table(table, made)
    return made
