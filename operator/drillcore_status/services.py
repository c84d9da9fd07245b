"""What the API needs of whoever serves it: jobs, a judgement about tokens, and somebody who takes progress.

Each method that talks to a cluster may also raise `errors.Unavailable`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry

from drillcore_spec.messages import ProgressReport
from drillcore_status.views import Job, JobEvent, Login, Shard, ThroughputSample

HealthCheck = Callable[[], Awaitable[str | None]]
"""What is wrong; None: nothing."""

STREAM_INTERVAL_S = 2.0


class JobSource(Protocol):
    """What is known of jobs. Answers may be as old as a few seconds."""

    async def list_jobs(self, namespace: str) -> Sequence[Job]:
        """The jobs of a namespace, by name; none for a namespace that is not served."""

    async def get_job(self, namespace: str, name: str) -> Job:
        """One job; raises `errors.NotFound`."""

    async def list_shards(self, namespace: str, name: str) -> Sequence[Shard]:
        """Its shards by index; raises `errors.NotFound`."""

    async def list_events(self, namespace: str, name: str) -> Sequence[JobEvent]:
        """What was told about it, the newest last; raises `errors.NotFound`."""

    async def throughput(self, namespace: str, name: str) -> Sequence[ThroughputSample]:
        """How far it was over time, oldest first; raises `errors.NotFound`."""


@dataclass(frozen=True)
class PodIdentity:
    """The pod that a token was made for."""

    namespace: str
    name: str


class Authorizer(Protocol):
    """Judges the tokens of readers; a token is never kept in clear, logged, or told to anybody but the cluster."""

    async def check_reader(self, token: str | None, namespace: str) -> None:
        """Raises `errors.Unauthorized` or `errors.Forbidden` unless the owner may get jobs of the namespace."""


class PodAuthorizer(Protocol):
    """Judges the tokens of pods."""

    async def identify_pod(self, token: str | None, namespace: str, name: str) -> PodIdentity:
        """The pod that holds a token for this job's progress; raises `errors.Unauthorized` or `errors.Forbidden`."""


class ProgressSink(Protocol):
    """Takes the reports of shards."""

    async def take(self, namespace: str, name: str, pod: PodIdentity, report: ProgressReport) -> None:
        """Takes a report; raises `errors.Forbidden` if the pod is not this shard's."""


class OpenAuthorizer:
    """Lets everybody read: for a server that only this machine reaches."""

    async def check_reader(self, token: str | None, namespace: str) -> None:
        """Nothing to check."""


@dataclass(frozen=True)
class PodReports:
    """Where reports go, and who judges their tokens."""

    sink: ProgressSink
    authorizer: PodAuthorizer


@dataclass(frozen=True)
class Services:
    """Everything that `create_app` is given."""

    source: JobSource
    authorizer: Authorizer
    reports: PodReports | None = None
    """None: nobody posts progress over HTTP, and the route does not exist."""
    login: Login = field(default_factory=Login)
    allowed_hosts: frozenset[str] | None = None
    """Host names under which the server may be asked. A server that trusts whoever reaches it needs them: a
    foreign web page could else reach it through a name of its own (DNS rebinding). None: any.
    """
    live_check: HealthCheck | None = None
    """For /healthz."""
    ready_check: HealthCheck | None = None
    """For /readyz."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """Metrics of the process; the API adds its own."""
    stream_interval_s: float = STREAM_INTERVAL_S
    """How often a stream looks for something new."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set from any thread before the server is told to end: streams then end in good order."""
