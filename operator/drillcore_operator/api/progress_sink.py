"""Takes the reports of pods: into the progress book, and the job onto the work queue, not too often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from drillcore_operator.api.metrics import ReportMetrics
from drillcore_operator.api.throughput_book import ThroughputBook
from drillcore_operator.api.timed_cache import TimedCache, spread_s
from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import ClusterError
from drillcore_operator.keys import JobKey
from drillcore_operator.progress import ProgressBook
from drillcore_operator.progress_looks import ProgressLooks
from drillcore_operator.work_queue import WorkQueue
from drillcore_spec import names
from drillcore_spec.enums import ShardState
from drillcore_spec.messages import ProgressReport
from drillcore_status import PodIdentity
from drillcore_status.errors import Forbidden, NotFound, Unavailable

UID_S: Final = 300.0
"""A job's uid is kept this long; a pod that does not fit it has it read again."""
MISSING_S: Final = 5.0
COMMITTED_S: Final = 1.0
"""A commit is looked at after this time: those of several shards together."""
MAX_JOBS: Final = 10_000
RETRY_AFTER_S: Final = 5


class ClusterProgressSink:
    """`ProgressSink` of the operator."""

    def __init__(
        self,
        api: ClusterApi,
        queue: WorkQueue[JobKey],
        progress: ProgressBook,
        throughput: ThroughputBook,
        metrics: ReportMetrics,
        *,
        looks: ProgressLooks,
        clock_s: Callable[[], float] = time.monotonic,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._queue = queue
        self._progress = progress
        self._throughput = throughput
        self._metrics = metrics
        self._looks = looks
        self._clock_s = clock_s
        self._unix_time_s = unix_time_s
        self._uids: TimedCache[JobKey, str | None] = TimedCache(clock_s, MAX_JOBS)

    async def take(self, namespace: str, name: str, pod: PodIdentity, report: ProgressReport) -> None:
        """Takes a report; raises Forbidden if the pod is not this shard's, NotFound if the job is gone."""
        key = JobKey(namespace, name)
        uid = await self._uid_for(key, pod, report.shard)
        before = self._progress.seen(key, uid).shards.get(report.shard)
        if not self._progress.record(key, uid, report, self._clock_s()):
            return
        seen = self._progress.seen(key, uid)
        self._throughput.record(uid, seen, self._unix_time_s())
        self._metrics.count(before, seen.shards[report.shard])
        if report.state is ShardState.COMMITTED:
            self._queue.add_after(key, COMMITTED_S)
        else:
            self._looks.wish(key)

    async def _uid_for(self, key: JobKey, pod: PodIdentity, shard: int) -> str:
        """The job's uid, if the pod is of its child; a job that was made anew has another child."""
        for is_last_try in (False, True):
            uid = await self._uids.get(key, lambda: self._read_uid(key))
            if uid is None:
                raise NotFound(f"there is no job {key}")
            if pod.name.startswith(f"{names.child_name(key.name, uid)}-{shard}-"):
                return uid
            if not is_last_try:
                self._uids.forget(key)
        raise Forbidden(f"pod {pod.name} does not run shard {shard} of {key}")

    async def _read_uid(self, key: JobKey) -> tuple[str | None, float]:
        try:
            document = await self._api.get_resource(*key)
        except ClusterError as error:
            raise Unavailable("the API server does not answer now", retry_after_s=RETRY_AFTER_S) from error
        return (None, MISSING_S) if document is None else (str(document["metadata"]["uid"]), spread_s(UID_S))
