"""The ExtractionJob resource: what `kubectl apply` and `drillcore run` read."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from drillcore_spec.base import SpecModel
from drillcore_spec.containers import ServerContainer, SidecarContainer
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.engine import EngineOptions, Ring, Shards
from drillcore_spec.enums import LossMaskKind, OutputLayout, PositionsKind
from drillcore_spec.extraction import Extraction, Generation
from drillcore_spec.forms import Flag, Seconds, ShardCount
from drillcore_spec.model_source import ModelSource
from drillcore_spec.names import API_VERSION, KIND, MAX_JOB_NAME_LENGTH
from drillcore_spec.output import Output
from drillcore_spec.pod_template import PodTemplate
from drillcore_spec.policy import FailurePolicy, Queue
from drillcore_spec.quantity import quantity_bytes
from drillcore_spec.rules import Got, Rule
from drillcore_spec.status import ExtractionJobStatus

MUTABLE_FIELDS = frozenset({"suspend", "parallelism", "ttlSecondsAfterFinished"})
"""The fields of the spec that may change after creation."""

_NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


class ExtractionJobSpec(SpecModel):
    """What to extract, from what, to where, and with which means."""

    model: ModelSource
    """The language model whose states are taken."""
    dataset: DatasetSource
    """The rows that go through the model."""
    extraction: Extraction
    """Which states are taken."""
    generation: Generation = Field(default_factory=Generation)
    """Completions that are sampled before the states are taken."""
    output: Output
    """Where the states are written."""
    engine: EngineOptions = Field(default_factory=EngineOptions)
    """Limits of the inference engine."""
    shards: Shards = Field(default_factory=Shards)
    """How the rows are split."""
    parallelism: ShardCount = 1
    """Shards that run at once; may be changed while the job runs."""
    suspend: Flag = False
    """true: the job's pods are removed until it is false again; committed rows are kept."""
    ring: Ring = Field(default_factory=Ring)
    """The shared memory between the two containers of a shard."""
    start_deadline_seconds: Seconds = 1800
    """The job fails when its pods have not become ready after this time, suspended and queued time not
    counted.
    """
    active_deadline_seconds: Seconds | None = None
    """The job fails when it has run for longer than this. Default: no limit."""
    ttl_seconds_after_finished: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] | None = None
    """The ExtractionJob and its Job are deleted this long after they have finished; outputs never are.
    Default: kept.
    """
    failure_policy: FailurePolicy = Field(default_factory=FailurePolicy)
    """When a shard, and when the job, has failed."""
    queue: Queue | None = None
    """Kueue's queue for this job. Default: not queued."""
    server: ServerContainer = Field(default_factory=ServerContainer)
    """The container that runs the model."""
    sidecar: SidecarContainer = Field(default_factory=SidecarContainer)
    """The container that writes."""
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    """What is added to every shard's pod."""

    rules = (
        Rule(
            cel="self.parallelism <= self.shards.count",
            holds=lambda self: self.parallelism <= self.shards.count,
            expected="parallelism to be at most shards.count",
            field=("parallelism",),
            got=Got(
                "%d with %d shards",
                ("self.parallelism", "self.shards.count"),
                lambda self: (self.parallelism, self.shards.count),
            ),
        ),
        Rule(
            cel="!has(self.failurePolicy.maxFailedShards) || self.failurePolicy.maxFailedShards <= self.shards.count",
            holds=lambda self: (self.failure_policy.max_failed_shards or 0) <= self.shards.count,
            expected="failurePolicy.maxFailedShards to be at most shards.count",
            field=("failurePolicy",),
        ),
        Rule(
            cel="quantity(self.ring.size).isLessThan(quantity(self.server.resources.memory))",
            holds=lambda self: quantity_bytes(self.ring.size) < quantity_bytes(self.server.resources.memory),
            expected="ring.size to be less than server.resources.memory, of which the ring is a part",
            field=("ring",),
            got=Got(
                "%s and %s",
                ("self.ring.size", "self.server.resources.memory"),
                lambda self: (self.ring.size, self.server.resources.memory),
            ),
        ),
        Rule(
            cel="self.output.layout != 'PerSample' || self.extraction.positions == 'All'",
            holds=lambda self: (
                self.output.layout is not OutputLayout.PER_SAMPLE or self.extraction.positions is PositionsKind.ALL
            ),
            expected="extraction.positions All with output.layout PerSample",
            field=("extraction",),
        ),
        Rule(
            cel="self.extraction.positions != 'LossMask' || self.dataset.lossMask != 'None'"
            " && (has(self.dataset.columns.lossMask) || has(self.dataset.columns.messages))",
            holds=lambda self: self.extraction.positions is not PositionsKind.LOSS_MASK or self.has_loss_mask,
            expected="columns.lossMask or columns.messages, and lossMask other than None,"
            " with extraction.positions LossMask",
            field=("dataset",),
        ),
        Rule(
            cel="self.engine.tensorParallelSize == 1 || self.engine.tensorParallelSize <= self.server.resources.gpus",
            holds=lambda self: (
                self.engine.tensor_parallel_size == 1 or self.engine.tensor_parallel_size <= self.server.resources.gpus
            ),
            expected="engine.tensorParallelSize to be at most server.resources.gpus",
            field=("engine",),
        ),
    )

    @property
    def has_loss_mask(self) -> bool:
        """Whether rows have a loss mask, after lossMask Auto is resolved."""
        columns = self.dataset.columns
        has_source = columns.loss_mask is not None or columns.messages is not None
        return has_source and self.dataset.loss_mask is not LossMaskKind.NONE

    def to_json(self) -> str:
        """The spec as one line of JSON with defaults filled in, as it goes into DRILLCORE_JOB."""
        return self.model_dump_json()


class ObjectMeta(SpecModel):
    """Kubernetes' own metadata; what the API server adds to it is accepted and not used."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(strict=True)]
    """Name of the job."""
    namespace: str | None = None
    """Namespace of the job; not used by `drillcore run`."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the resource."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the resource."""


class ExtractionJob(SpecModel):
    """Hidden states of chosen layers, for every token of a dataset, written to a volume."""

    api_version: Literal["drillcore.dev/v1alpha1"] = API_VERSION
    kind: Literal["ExtractionJob"] = KIND
    metadata: ObjectMeta
    spec: ExtractionJobSpec
    """What to extract, from what, to where, and with which means."""
    status: ExtractionJobStatus | None = None
    """What the operator has observed."""

    rules = (
        Rule(
            cel=f"size(self.metadata.name) <= {MAX_JOB_NAME_LENGTH}",
            holds=lambda self: len(self.metadata.name) <= MAX_JOB_NAME_LENGTH,
            expected=f"metadata.name of at most {MAX_JOB_NAME_LENGTH} characters, so that the names of pods fit",
            field=("metadata", "name"),
            got=Got("%d", ("size(self.metadata.name)",), lambda self: (len(self.metadata.name),)),
        ),
        Rule(
            cel=f"self.metadata.name.matches('{_NAME_PATTERN}')",
            holds=lambda self: re.fullmatch(_NAME_PATTERN.strip("^$"), self.metadata.name) is not None,
            expected="metadata.name of lower-case letters, digits and `-`, that begins with a letter"
            " and ends with a letter or digit (RFC 1035)",
            field=("metadata", "name"),
            got=Got("%s", ("self.metadata.name",), lambda self: (self.metadata.name,)),
        ),
    )

    @classmethod
    def from_resource(cls, resource: dict[str, Any]) -> Self:
        """The job from an object of the API server, which has validated it; `load_job` is for files."""
        return cls.model_validate(resource, by_alias=True, by_name=False)
