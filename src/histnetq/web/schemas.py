"""Types of requests and responses, which validate requests and make the OpenAPI schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from histnetq import registry
from histnetq.uncertainty.row_samples import FEWEST_LABELS

if TYPE_CHECKING:
    PERIOD = str
    MISSING = str
    INTERVAL = str
    WEIGHT_KIND = str
else:
    PERIOD = Literal[tuple(registry.PERIODS)]
    MISSING = Literal[tuple(registry.MISSING)]
    INTERVAL = Literal[tuple(registry.INTERVALS)]
    WEIGHT_KIND = Literal["survey", "count"]


def _plain(text: str) -> str:
    if "\0" in text or (not text.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in text)):
        raise ValueError("expected text without NUL and unpaired surrogates")
    return text


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("expected every column once")
    return names


Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_plain)]
Columns = Annotated[list[Text], Field(max_length=100), AfterValidator(_different)]
Coverage = Annotated[float, Field(gt=0, lt=1)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EstimateJob(_Asked):
    """Estimate the bags of a table.

    With `sample`, that many rows of each bag are drawn for labelling. With `audited`, the key of a table with their
    labels, estimates come from the labels. With `time`, the chunks of time are compared, and with `accuracy` the
    expected accuracy of the classifier is added to each of them.
    """

    kind: Literal["estimate"]
    table: Text
    model: Text
    bag: Columns = []
    missing: MISSING = "refuse"
    coverage: Coverage | None = None
    time: Text | None = None
    period: PERIOD = "W"
    reference: Text | None = None
    by: Columns = []
    accuracy: bool = False
    sample: Annotated[int, Field(ge=FEWEST_LABELS, le=100_000)] | None = None
    audited: Text | None = None


class LearnJob(_Asked):
    """Learn a model from a table with labels, or from a table and the proportions of its bags."""

    kind: Literal["learn"]
    name: Text
    table: Text
    bag: Columns = []
    label: Text | None = None
    proportions_table: Text | None = None
    counts: bool = False
    ignore: Annotated[list[Text], Field(max_length=10_000)] = []
    missing: MISSING = "refuse"
    method: Annotated[str, Field(pattern=r"^[a-z]{1,30}$")] = "auto"
    bag_size: Annotated[list[Annotated[int, Field(ge=1, le=1_000_000_000)]], Field(max_length=20)] = []


AskedJob = Annotated[EstimateJob | LearnJob, Field(discriminator="kind")]


class Failure(BaseModel):
    """The reason why a request was refused, in one sentence."""

    error: str


class Card(BaseModel):
    """A model: its training data, classes, expected columns, errors and intervals."""

    name: str
    problem: str | None = None
    method: str | None = None
    classes: list[str | bool | int | float] | None = None
    train_prevalences: list[float] | None = None
    learned_from: dict[str, Any] | None = None
    columns: list[dict[str, Any]] | None = None
    scores: bool | None = None
    errors: dict[str, Any] | None = None
    intervals: dict[str, Any] | None = None
    left_out: dict[str, str] | None = None
    why: str | None = None
    warning: str | None = None


class Cards(BaseModel):
    """All models, and the limits of the server."""

    models: list[Card]
    can_learn: bool
    learns_into: str
    limits: dict[str, int]


class TableAbout(BaseModel):
    """An uploaded table."""

    id: str
    name: str
    bytes: int
    rows: int
    rows_exact: bool
    columns: list[dict[str, str]]
    preview: list[list[str | None]]
    guess: dict[str, Any]
    expires_in: float


class JobAbout(BaseModel):
    """A job: its progress, and its result once it is done."""

    id: str
    kind: Literal["estimate", "learn"]
    asked: dict[str, Any]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: float
    seconds_left: float | None
    seconds: float
    stage: str
    messages: list[str]
    error: str | None
    methods: list[dict[str, Any]]
    result: dict[str, Any] | None
    expires_in: float


class JobList(BaseModel):
    """All jobs, the newest first, without their results."""

    jobs: list[JobAbout]


class Prediction(BaseModel):
    """Estimates: one entry per bag and class, or one per bag with `wide`."""

    model: str
    bags: int
    doubted: int
    messages: list[str]
    estimates: list[dict[str, Any]]


class Health(BaseModel):
    """Health of the server: its status, version, number of workers, and whether it needs a token."""

    status: Literal["ok", "busy", "degraded"]
    version: str
    token: bool
    workers: int
    job_workers: int
    waiting: int
