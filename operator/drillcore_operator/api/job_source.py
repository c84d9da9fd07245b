"""Jobs of the cluster for the job-status API: read from the API server, with the newest progress on top."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from drillcore_operator.api.live_progress import with_live_progress
from drillcore_operator.api.shards import shards_of
from drillcore_operator.api.throughput_book import ThroughputBook
from drillcore_operator.api.timed_cache import TimedCache
from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import ClusterError
from drillcore_operator.keys import JobKey
from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.observer import pods_of
from drillcore_operator.plan.acceptance import SpecProblem, read_spec
from drillcore_operator.progress import ProgressBook
from drillcore_spec import names
from drillcore_spec.status import ExtractionJobStatus
from drillcore_status.errors import NotFound, Unavailable
from drillcore_status.views import Job, JobEvent, JobMetadata, Shard, ThroughputSample

FRESH_S: Final = 2.0
"""Answers may be this old: many listeners of one job cost as much as one."""
PODS_FRESH_S: Final = 10.0
EVENTS_FRESH_S: Final = 5.0
MAX_ENTRIES: Final = 2000
RETRY_AFTER_S: Final = 5

Document = dict[str, Any]
T = TypeVar("T")


class ClusterJobSource:
    """`JobSource` over the API server; asks with no more rights than the operator has anyway."""

    def __init__(
        self,
        api: ClusterApi,
        progress: ProgressBook,
        throughput: ThroughputBook,
        namespaces: Sequence[str] = (),
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._progress = progress
        self._throughput = throughput
        self._namespaces = frozenset(namespaces)
        self._lists: TimedCache[str, list[Document]] = TimedCache(clock_s, MAX_ENTRIES)
        self._resources: TimedCache[JobKey, Document | None] = TimedCache(clock_s, MAX_ENTRIES)
        self._events: TimedCache[JobKey, list[Document]] = TimedCache(clock_s, MAX_ENTRIES)
        self._children: TimedCache[JobKey, tuple[ChildJob | None, tuple[Pod, ...]]] = TimedCache(clock_s, MAX_ENTRIES)

    async def list_jobs(self, namespace: str) -> Sequence[Job]:
        """The jobs of a namespace, by name; none for one that this operator does not serve."""
        if not self._serves(namespace):
            return ()
        documents = await self._lists.get(namespace, lambda: _asked(self._api.list_resources(namespace), FRESH_S))
        return [self._job(document) for document in sorted(documents, key=lambda d: str(d["metadata"]["name"]))]

    async def get_job(self, namespace: str, name: str) -> Job:
        """One job; raises NotFound."""
        return self._job(await self._document(JobKey(namespace, name)))

    async def list_shards(self, namespace: str, name: str) -> Sequence[Shard]:
        """Its shards; none for a spec that this operator cannot read. Raises NotFound."""
        key = JobKey(namespace, name)
        document = await self._document(key)
        spec = read_spec(document)
        if isinstance(spec, SpecProblem):
            return ()
        uid = document["metadata"]["uid"]
        child, pods = await self._children.get(key, lambda: _asked(self._child(key, uid), PODS_FRESH_S))
        return shards_of(spec, child, pods, self._progress.seen(key, uid))

    async def list_events(self, namespace: str, name: str) -> Sequence[JobEvent]:
        """Events about it, the newest last; raises NotFound."""
        key = JobKey(namespace, name)
        uid = (await self._document(key))["metadata"]["uid"]
        ask = self._api.list_events
        documents = await self._events.get(key, lambda: _asked(ask(namespace, names.KIND, name), EVENTS_FRESH_S))
        own = [_event(d) for d in documents if d["involvedObject"].get("uid") == uid]
        return sorted(own, key=lambda event: event.last_time)

    async def throughput(self, namespace: str, name: str) -> Sequence[ThroughputSample]:
        """What was reported since the operator's start; raises NotFound."""
        document = await self._document(JobKey(namespace, name))
        return self._throughput.samples(document["metadata"]["uid"])

    def _serves(self, namespace: str) -> bool:
        return not self._namespaces or namespace in self._namespaces

    def _job(self, document: Document) -> Job:
        metadata = document["metadata"]
        seen = self._progress.seen(JobKey(metadata["namespace"], metadata["name"]), metadata["uid"])
        return Job(
            metadata=JobMetadata.model_validate(metadata),
            spec=document["spec"],
            status=with_live_progress(_status(document), seen),
        )

    async def _document(self, key: JobKey) -> Document:
        document = None
        if self._serves(key.namespace):
            document = await self._resources.get(key, lambda: _asked(self._api.get_resource(*key), FRESH_S))
        if document is None:
            raise NotFound(f"{names.PLURAL}.{names.API_GROUP} {key.name!r} not found in namespace {key.namespace}")
        return document

    async def _child(self, key: JobKey, uid: str) -> tuple[ChildJob | None, tuple[Pod, ...]]:
        job = await self._api.get_job(key.namespace, names.child_name(key.name, uid))
        child = ChildJob.from_api(job) if job else None
        if child is None or child.owner_uid != uid:
            return None, ()
        return child, await pods_of(self._api, key, child)


def _status(document: Document) -> ExtractionJobStatus:
    """The stored status; one of a later version is shown as none, because one job must not hide the others."""
    try:
        return ExtractionJobStatus.model_validate(document.get("status") or {})
    except ValidationError:
        return ExtractionJobStatus()


async def _asked(question: Awaitable[T], good_for_s: float) -> tuple[T, float]:
    """The answer and how long it is good for."""
    try:
        return await question, good_for_s
    except ClusterError as error:
        raise Unavailable("the API server does not answer now", retry_after_s=RETRY_AFTER_S) from error


def _event(event: Mapping[str, Any]) -> JobEvent:
    created = event["metadata"].get("creationTimestamp") or ""
    return JobEvent(
        type="Warning" if event.get("type") == "Warning" else "Normal",
        reason=event.get("reason") or "",
        message=event.get("message") or "",
        count=event.get("count") or 1,
        first_time=event.get("firstTimestamp") or created,
        last_time=event.get("lastTimestamp") or event.get("eventTime") or created,
    )
