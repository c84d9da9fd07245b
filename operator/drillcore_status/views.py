"""What the API answers with: camelCase JSON in the shape of Kubernetes objects."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from drillcore_spec import names
from drillcore_spec.status import ExtractionJobStatus


class View(BaseModel):
    """JSON with camelCase keys, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        frozen=True,
        use_attribute_docstrings=True,
    )


class JobMetadata(View):
    """What identifies a job."""

    name: str
    namespace: str
    uid: str = ""
    """Empty for a job that runs on one machine."""
    creation_timestamp: str | None = None
    """RFC 3339."""
    generation: int = 0
    """Grows with each change of the spec."""


class Job(View):
    """An ExtractionJob: its spec as the user wrote it, and its status with the newest progress."""

    api_version: str = names.API_VERSION
    kind: str = names.KIND
    metadata: JobMetadata
    spec: dict[str, Any]
    status: ExtractionJobStatus = ExtractionJobStatus()


class JobList(View):
    """The jobs of a namespace."""

    api_version: str = names.API_VERSION
    kind: str = f"{names.KIND}List"
    items: tuple[Job, ...]


class ShardPhase(StrEnum):
    """Where a shard stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMMITTED = "Committed"
    FAILED = "Failed"


class Shard(View):
    """One shard of a job."""

    index: int
    phase: ShardPhase = ShardPhase.PENDING
    rows_total: int | None = None
    """Rows of this shard; null until it has counted them."""
    rows_done: int = 0
    """Rows that are durable or quarantined."""
    rows_quarantined: int = 0
    tokens: int = 0
    bytes: int = 0
    reason: str = ""
    """Why its last attempt failed, in one word; empty: none did, as far as is known."""
    message: str = ""
    """The same for people."""


class ShardList(View):
    """The shards of a job, by index."""

    kind: str = "ShardList"
    items: tuple[Shard, ...]


class JobEvent(View):
    """Something that was told about a job; the same again is counted."""

    type: Literal["Normal", "Warning"] = "Normal"
    reason: str
    message: str
    count: int = 1
    first_time: str
    """RFC 3339."""
    last_time: str
    """RFC 3339."""


class JobEventList(View):
    """What was told about a job, the newest last."""

    kind: str = "EventList"
    items: tuple[JobEvent, ...]


class ThroughputSample(View):
    """How far a job was at one moment."""

    time_seconds: float
    """Unix time."""
    rows_done: int
    tokens: int
    bytes: int


class Throughput(View):
    """How far a job was over time, oldest first; rates are differences of neighbours."""

    kind: str = "Throughput"
    items: tuple[ThroughputSample, ...]


class StatusCause(View):
    """One thing that was wrong with a request."""

    field: str
    message: str


class StatusDetails(View):
    """Which field was wrong, or when to come back."""

    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int | None = None


class Status(View):
    """Kubernetes' answer to a request that did not succeed (metav1.Status)."""

    api_version: str = "v1"
    kind: str = "Status"
    metadata: dict[str, str] = Field(default_factory=dict)
    status: str = "Failure"
    message: str
    reason: str
    code: int
    details: StatusDetails | None = None


class LoginKind(StrEnum):
    """How a person logs in."""

    TOKEN = "Token"
    """With a token of the cluster."""
    NONE = "None"
    """Not at all."""


class Login(View):
    """What the page needs to know before anybody has logged in."""

    kind: LoginKind = LoginKind.TOKEN
    namespace: str = "default"
    """The namespace to begin with."""
