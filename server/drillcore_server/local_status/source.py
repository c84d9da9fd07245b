"""The one job that runs here, as a `JobSource`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from drillcore_server.local import Progress, ShardResult
from drillcore_server.local_status.run_state import RunState
from drillcore_spec import ExtractionJob
from drillcore_spec.reasons import Reason
from drillcore_status.errors import NotFound
from drillcore_status.history import ThroughputHistory
from drillcore_status.views import Job, JobEvent, JobMetadata, Shard, ThroughputSample

DEFAULT_NAMESPACE: Final = "default"


class LocalJobSource:
    """The supervisor's thread writes it, the server's thread reads it."""

    def __init__(self, job: ExtractionJob, output: Path, unix_time_s: Callable[[], float] = time.time) -> None:
        self.namespace = job.metadata.namespace or DEFAULT_NAMESPACE
        self.name = job.metadata.name
        self._spec = job.spec.model_dump(mode="json", exclude_none=True)
        self._unix_time_s = unix_time_s
        self._lock = threading.Lock()
        """Guards everything below."""
        self._state = RunState(job.spec.shards.count, self._now(), f"file://{output}")
        self._history = ThroughputHistory()
        self._events: tuple[JobEvent, ...] = ()

    def take_progress(self, shard: int, progress: Progress) -> None:
        """The latest counts of a shard."""
        with self._lock:
            counts = {**self._state.progress, shard: progress}
            self._state = replace(self._state, progress=counts)
            self._history.add(
                ThroughputSample(
                    time_seconds=self._unix_time_s(),
                    rows_done=self._state.num_rows_written,
                    tokens=sum(p.tokens for p in counts.values()),
                    bytes=sum(p.bytes for p in counts.values()),
                )
            )

    def take_sidecar_restart(self, shard: int) -> None:
        """A dead sidecar is started again."""
        now = self._now()
        message = f"the sidecar of shard {shard} ended and is started again"
        event = JobEvent(type="Warning", reason=Reason.SIDECAR_LOST, message=message, first_time=now, last_time=now)
        with self._lock:
            self._events = (*self._events, event)

    def take_results(self, results: Sequence[ShardResult]) -> None:
        """The run is over."""
        with self._lock:
            self._state = replace(self._state, results={result.shard: result for result in results})

    async def list_jobs(self, namespace: str) -> Sequence[Job]:
        """The job, in its namespace."""
        return [self._job()] if namespace == self.namespace else []

    async def get_job(self, namespace: str, name: str) -> Job:
        """The job; raises NotFound for another one."""
        self._check(namespace, name)
        return self._job()

    async def list_shards(self, namespace: str, name: str) -> Sequence[Shard]:
        """Its shards; raises NotFound for another job."""
        self._check(namespace, name)
        with self._lock:
            state = self._state
        return [state.shard(index) for index in range(state.num_shards)]

    async def list_events(self, namespace: str, name: str) -> Sequence[JobEvent]:
        """What went wrong and was mended; raises NotFound for another job."""
        self._check(namespace, name)
        with self._lock:
            return self._events

    async def throughput(self, namespace: str, name: str) -> Sequence[ThroughputSample]:
        """Since the start; raises NotFound for another job."""
        self._check(namespace, name)
        with self._lock:
            return self._history.samples()

    def _job(self) -> Job:
        with self._lock:
            state = self._state
        metadata = JobMetadata(name=self.name, namespace=self.namespace, creation_timestamp=state.start)
        return Job(metadata=metadata, spec=self._spec, status=state.status())

    def _check(self, namespace: str, name: str) -> None:
        if (namespace, name) != (self.namespace, self.name):
            raise NotFound(f"only {self.namespace}/{self.name} runs here")

    def _now(self) -> str:
        return datetime.fromtimestamp(self._unix_time_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
