"""`status` of an ExtractionJob: what the operator has observed.

Succeeded is the summary: Unknown while the job is active, then True or False for good.
Source: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from drillcore_spec.base import SpecModel

Total = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]
Time = Annotated[
    str,
    StringConstraints(strict=True, max_length=64),
    Field(json_schema_extra={"format": "date-time"}),
]
StatusText = Annotated[str, StringConstraints(strict=True, max_length=1024)]


class ConditionType(StrEnum):
    """The conditions of a job; all are present from the operator's first visit."""

    ACCEPTED = "Accepted"
    """The spec can be carried out."""
    OUTPUT_READY = "OutputReady"
    """The output's claim is there and can be mounted as the job needs it."""
    SUSPENDED = "Suspended"
    """The job is suspended, by its user or by its queue."""
    PODS_READY = "PodsReady"
    """The pods that should run are running."""
    PROGRESSING = "Progressing"
    """Rows are being extracted."""
    DISRUPTED = "Disrupted"
    """Pods were lost to drains, evictions or broken nodes, and their shards are run again."""
    OUTPUT_VERIFIED = "OutputVerified"
    """Every shard's commit was reported."""
    SUCCEEDED = "Succeeded"
    """The summary."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionReason(StrEnum):
    """Reasons of conditions that come from the cluster; those of a shard's end are in `reasons.Reason`."""

    PENDING = "Pending"
    ACCEPTED = "Accepted"
    BOUND = "Bound"
    QUEUED = "Queued"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    STARTING = "Starting"
    RUNNING = "Running"
    READY = "Ready"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"
    NOT_DISRUPTED = "NotDisrupted"
    VERIFIED = "Verified"
    VERIFIED_BY_EXIT_CODE = "VerifiedByExitCode"
    NOT_VERIFIED = "NotVerified"
    IMAGE_PULL_ERROR = "ImagePullError"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_REJECTED = "AdmissionRejected"
    INVALID_POD_TEMPLATE = "InvalidPodTemplate"
    FEATURE_NOT_BUILT = "FeatureNotBuilt"
    PVC_NOT_FOUND = "PVCNotFound"
    PVC_PENDING = "PVCPending"
    ACCESS_MODE = "AccessMode"
    VOLUME_MOUNT_FAILED = "VolumeMountFailed"
    SECRET_NOT_FOUND = "SecretNotFound"
    NAME_CONFLICT = "NameConflict"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    SHARDS_FAILED = "ShardsFailed"
    STALLED = "Stalled"
    DRAINED = "Drained"
    NODE_LOST = "NodeLost"


class Condition(SpecModel):
    """One aspect of the job's state (metav1.Condition)."""

    type: Annotated[str, StringConstraints(strict=True, max_length=316)]
    """Accepted, OutputReady, Suspended, PodsReady, Progressing, Disrupted, OutputVerified or Succeeded."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[
        str,
        StringConstraints(
            strict=True, min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
        ),
    ]
    """Why, in one word for programs."""
    message: Annotated[str, StringConstraints(strict=True, max_length=32768)]
    """Why, for people: the cluster's own message where there is one, and what to do."""
    last_transition_time: Time
    """When the status last changed."""
    observed_generation: Total = 0
    """The metadata.generation that this was observed for."""


class Phase(StrEnum):
    """One word for printing, derived from the conditions; programs read the conditions."""

    PENDING = "Pending"
    QUEUED = "Queued"
    SUSPENDED = "Suspended"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ProgressStatus(SpecModel):
    """Rows, tokens and bytes so far; never goes back."""

    rows_done: Total = 0
    """Rows that are durable or quarantined."""
    rows_total: Total | None = None
    """All rows; absent until every shard has counted its own."""
    rows_quarantined: Total = 0
    """Rows that could not be extracted."""
    percentage: Annotated[int, Field(strict=True, ge=0, le=100)] | None = None
    """rowsDone of rowsTotal, rounded down; without reports, shards done of all shards."""
    summary: StatusText | None = None
    """The percentage for printing, such as 42%."""
    tokens: Total = 0
    """Tokens of the rows that are durable."""
    bytes: Total = 0
    """Bytes of the rows that are durable."""
    estimated_remaining_seconds: Total | None = None
    """Time to go at the present speed; absent while unknown."""


class ShardsStatus(SpecModel):
    """Shards by state."""

    total: Total = 0
    """All shards."""
    active: Total = 0
    """Shards with a running pod."""
    succeeded: Total = 0
    """Shards that are committed."""
    failed: Total = 0
    """Shards that have failed for good."""
    failed_indexes: StatusText | None = None
    """Failed shards as Kubernetes writes indexes: 1,3-5."""
    summary: StatusText | None = None
    """Succeeded of total for printing, such as 3/16."""


class DisruptionsStatus(SpecModel):
    """Pods lost to drains, evictions, preemption and broken nodes."""

    count: Total = 0
    """How many so far, as far as the operator saw them."""
    last_time: Time | None = None
    """When the last of them was disrupted; earlier ones are not counted again."""


class OutputStatus(SpecModel):
    """What has been written."""

    uri: StatusText | None = None
    """pvc://CLAIM/PATH of the output."""
    bytes: Total = 0
    """Bytes of the rows that are durable."""


class ExtractionJobStatus(SpecModel):
    """What the operator has observed."""

    observed_generation: Total | None = None
    """The metadata.generation that the operator has seen last."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """Accepted, OutputReady, Suspended, PodsReady, Progressing, Disrupted, OutputVerified and the summary,
    Succeeded.
    """
    phase: Phase | None = None
    """One word for printing; programs read the conditions."""
    job_name: StatusText | None = None
    """Name of the child Job."""
    start_time: Time | None = None
    """When the operator first saw the job."""
    completion_time: Time | None = None
    """When the job succeeded or failed."""
    progress: ProgressStatus | None = None
    """Rows, tokens and bytes so far."""
    shards: ShardsStatus | None = None
    """Shards by state."""
    output: OutputStatus | None = None
    """What has been written."""
    disruptions: DisruptionsStatus | None = None
    """Pods lost to drains, evictions, preemption and broken nodes."""
    retries: Total | None = None
    """Retries of shards that count against failurePolicy.backoffLimitPerShard, over all shards."""
