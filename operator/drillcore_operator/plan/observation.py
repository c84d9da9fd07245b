"""Everything that a decision about one job rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from pydantic import ValidationError

from drillcore_operator.errors import Unreadable
from drillcore_operator.observed import ChildJob, Claim, ClusterEvent, Pod
from drillcore_operator.observed.fields import parse_time
from drillcore_spec.messages import Counts, ProgressReport
from drillcore_spec.status import ConditionStatus, ConditionType, ExtractionJobStatus


@dataclass(frozen=True)
class Resource:
    """The ExtractionJob as stored."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    document: Mapping[str, Any]
    """The whole object; the spec is read, and may be refused, by the plan."""
    status: ExtractionJobStatus
    """What the operator has said so far."""
    is_deleted: bool = False

    @classmethod
    def from_api(cls, document: Mapping[str, Any]) -> Self:
        """Reads an ExtractionJob of the API server.

        Raises:
            Unreadable: its status is not one of this version.
        """
        metadata = document["metadata"]
        created = parse_time(metadata["creationTimestamp"])
        assert created is not None
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            created=created,
            document=document,
            status=_read_status(document),
            is_deleted="deletionTimestamp" in metadata,
        )

    @property
    def is_terminal(self) -> bool:
        """Whether it has succeeded or failed, which is for good."""
        return any(
            c.type == ConditionType.SUCCEEDED and c.status is not ConditionStatus.UNKNOWN
            for c in self.status.conditions
        )


def _read_status(document: Mapping[str, Any]) -> ExtractionJobStatus:
    """A status that is not understood is not taken for empty: that would run an ended job again."""
    try:
        return ExtractionJobStatus.model_validate(document.get("status") or {})
    except ValidationError as error:
        metadata = document["metadata"]
        raise Unreadable(f"status of {metadata['namespace']}/{metadata['name']}: {error}") from error


@dataclass(frozen=True)
class ShardProgress:
    """How far one shard is; counts never go down."""

    rows_total: int = 0
    rows_done: int = 0
    rows_quarantined: int = 0
    tokens: int = 0
    bytes: int = 0
    is_committed: bool = False

    @classmethod
    def from_report(cls, report: ProgressReport) -> Self:
        """From what the sidecar posted."""
        return cls(
            rows_total=report.rows_total,
            rows_done=report.rows_done,
            rows_quarantined=report.rows_quarantined,
            tokens=report.tokens,
            bytes=report.bytes,
            is_committed=report.state == "Committed",
        )

    @classmethod
    def from_commit(cls, counts: Counts) -> Self:
        """From the termination message of a server that saw its shard's commit."""
        return cls(
            rows_total=counts.rows_in,
            rows_done=counts.rows_out + counts.rows_quarantined,
            rows_quarantined=counts.rows_quarantined,
            tokens=counts.tokens,
            bytes=counts.bytes,
            is_committed=True,
        )

    def at_least(self, other: ShardProgress) -> ShardProgress:
        """The larger of each count."""
        return ShardProgress(
            rows_total=max(self.rows_total, other.rows_total),
            rows_done=max(self.rows_done, other.rows_done),
            rows_quarantined=max(self.rows_quarantined, other.rows_quarantined),
            tokens=max(self.tokens, other.tokens),
            bytes=max(self.bytes, other.bytes),
            is_committed=self.is_committed or other.is_committed,
        )


@dataclass(frozen=True)
class ProgressSeen:
    """What the sidecars of a job have reported."""

    shards: Mapping[int, ShardProgress] = field(default_factory=dict)
    rows_per_second: float | None = None
    """Present speed of the whole job; None while unknown."""


@dataclass(frozen=True)
class Refusal:
    """What the API server said when the child was to be created."""

    is_invalid: bool
    """The template itself is wrong: no retry can help."""
    message: str


@dataclass(frozen=True)
class Observation:
    """What was seen of one job at one moment."""

    resource: Resource
    child: ChildJob | None = None
    pods: tuple[Pod, ...] = ()
    """Listed only while something is not ready, and once at the end."""
    events: tuple[ClusterEvent, ...] = ()
    """About the child and its pods; read only while something is not ready."""
    claims: Mapping[str, Claim | None] = field(default_factory=dict)
    """The job's claims that were looked up; None: there is none of that name."""
    progress: ProgressSeen = ProgressSeen()
    refusal: Refusal | None = None
