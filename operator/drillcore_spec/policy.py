"""`spec.failurePolicy` and `spec.queue`."""

from __future__ import annotations

from typing import Annotated

from drillcore_spec.base import SpecModel
from drillcore_spec.forms import QueueName, integer, number


class FailurePolicy(SpecModel):
    """When a shard, and when the job, has failed. There is no partial success."""

    backoff_limit_per_shard: Annotated[int, integer(0, 1000)] = 3
    """Retries of a shard, disruptions not counted."""
    max_failed_shards: Annotated[int, integer(0, 100_000)] | None = None
    """The job stops at one failed shard more than this. Default: every shard is tried first."""
    max_quarantined_percent: Annotated[float, number(0, 100)] = 1.0
    """A shard fails with TooManyQuarantined when more of its rows than this could not be extracted."""


class Queue(SpecModel):
    """Kueue's queue for this job."""

    name: QueueName
    """LocalQueue in the job's namespace."""
