"""Jobs for the API: what the cluster stores, with the newest progress on top."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drillcore_operator.api.job_source import ClusterJobSource
from drillcore_operator.api.throughput_book import ThroughputBook
from drillcore_operator.errors import Unavailable as ClusterUnavailable
from drillcore_operator.keys import JobKey
from drillcore_operator.progress import ProgressBook
from drillcore_spec import names
from drillcore_spec.messages import ProgressReport
from drillcore_status.errors import NotFound, Unavailable

SPEC = {
    "model": {"uri": "pvc://models/tiny"},
    "dataset": {"uri": "pvc://datasets/*.jsonl", "columns": {"text": "text"}},
    "extraction": {"layers": [1, 2]},
    "output": {"claimName": "states"},
    "shards": {"count": 3},
}
CREATED = "2026-01-01T12:00:00Z"


class PlayedApi:
    """Answers like the API server, and counts."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self.job: dict[str, Any] | None = None
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.num_reads = 0
        self.error: Exception | None = None

    def add(self, name: str, status: dict[str, Any] | None = None) -> None:
        metadata = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "creationTimestamp": CREATED}
        self.resources.append({"metadata": metadata, "spec": SPEC, "status": status or {}})

    async def list_resources(self, namespace: str):
        return self._read([r for r in self.resources if r["metadata"]["namespace"] == namespace])

    async def get_resource(self, namespace: str, name: str):
        found = await self.list_resources(namespace)
        return next((r for r in found if r["metadata"]["name"] == name), None)

    async def get_job(self, namespace: str, name: str):
        return self._read(self.job)

    async def list_pods(self, namespace: str, job_uid: str):
        return self._read(self.pods)

    async def list_events(self, namespace: str, kind: str, name: str):
        return self._read(self.events)

    def _read(self, answer: Any) -> Any:
        self.num_reads += 1
        if self.error:
            raise self.error
        return answer


class Setup:
    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.api, self.progress, self.now_s = PlayedApi(), ProgressBook(), 0.0
        self.source = ClusterJobSource(self.api, self.progress, ThroughputBook(), namespaces, lambda: self.now_s)

    def report(self, name: str, shard: int, rows_done: int) -> None:
        fields = {"shard": shard, "attempt": "00000001", "seq": rows_done, "rowsTotal": 100, "rowsDone": rows_done}
        rest = {"rowsQuarantined": 1, "tokens": 10 * rows_done, "bytes": 7, "state": "Running"}
        report = ProgressReport.model_validate(fields | rest)
        self.progress.record(JobKey("team-a", name), f"uid-{name}", report, self.now_s)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_jobs_are_listed_by_name(setup):
    setup.api.add("b")
    setup.api.add("a")
    jobs = asyncio.run(setup.source.list_jobs("team-a"))
    assert [job.metadata.name for job in jobs] == ["a", "b"]
    assert jobs[0].metadata.creation_timestamp == CREATED


def test_a_namespace_that_is_not_served_is_empty_and_never_asked_for():
    setup = Setup(namespaces=("team-b",))
    setup.api.add("a")
    assert list(asyncio.run(setup.source.list_jobs("team-a"))) == []
    with pytest.raises(NotFound):
        asyncio.run(setup.source.get_job("team-a", "a"))
    assert setup.api.num_reads == 0


def test_progress_is_newer_than_the_stored_status_and_never_lower(setup):
    stored = {"rowsDone": 50, "rowsTotal": 300, "rowsQuarantined": 0, "percentage": 16, "tokens": 0, "bytes": 0}
    setup.api.add("a", {"phase": "Running", "progress": stored, "output": {"uri": "pvc://states"}})
    setup.report("a", 0, 40)
    assert asyncio.run(setup.source.get_job("team-a", "a")).status.progress.rows_done == 50
    setup.report("a", 1, 60)
    status = asyncio.run(setup.source.get_job("team-a", "a")).status
    assert (status.progress.rows_done, status.progress.percentage, status.progress.summary) == (100, 33, "33%")
    assert (status.progress.rows_quarantined, status.output.bytes) == (2, 14)


def test_one_hundred_per_cent_is_for_the_operator_to_say(setup):
    setup.api.add("a", {"phase": "Running", "progress": {"rowsDone": 0, "rowsTotal": 100, "percentage": 0}})
    setup.report("a", 0, 100)
    assert asyncio.run(setup.source.get_job("team-a", "a")).status.progress.percentage == 99


def test_a_job_that_is_over_is_as_it_is_stored(setup):
    setup.api.add("a", {"phase": "Failed", "progress": {"rowsDone": 5}})
    setup.report("a", 0, 40)
    assert asyncio.run(setup.source.get_job("team-a", "a")).status.progress.rows_done == 5


def test_a_status_of_a_later_version_hides_no_other_job(setup):
    setup.api.add("a", {"phase": "Levitating"})
    setup.api.add("b")
    first, second = asyncio.run(setup.source.list_jobs("team-a"))
    assert (first.metadata.name, second.metadata.name) == ("a", "b")
    assert first.status.phase is None


def test_many_listeners_cost_as_much_as_one(setup):
    setup.api.add("a")

    async def crowd() -> None:
        await asyncio.gather(*(setup.source.get_job("team-a", "a") for _ in range(50)))

    asyncio.run(crowd())
    assert setup.api.num_reads == 1
    setup.now_s += 2.1
    asyncio.run(crowd())
    assert setup.api.num_reads == 2


def test_shards_show_counts_reports_and_the_last_failure(setup):
    setup.api.add("a")
    name = names.child_name("a", "uid-a")
    owner = {"uid": "uid-a", "controller": True}
    setup.api.job = {
        "metadata": {"name": name, "uid": "job-uid", "ownerReferences": [owner]},
        "spec": {"completions": 3},
        "status": {"completedIndexes": "0", "failedIndexes": "2"},
    }
    annotations = {"batch.kubernetes.io/job-completion-index": "2"}
    message = '{"code": 66, "reason": "ShardUnreadable", "message": "d.jsonl is cut"}'
    ended = {"name": "server", "state": {"terminated": {"exitCode": 66, "message": message}}}
    setup.api.pods = [
        {
            "metadata": {
                "name": f"{name}-2-x",
                "creationTimestamp": CREATED,
                "annotations": annotations,
                "ownerReferences": [{"uid": "job-uid", "controller": True}],
            },
            "spec": {},
            "status": {"phase": "Failed", "containerStatuses": [ended]},
        }
    ]
    setup.report("a", 1, 40)
    first, second, third = asyncio.run(setup.source.list_shards("team-a", "a"))
    assert (first.phase, second.phase, third.phase) == ("Committed", "Pending", "Failed")
    assert (second.rows_done, second.rows_total) == (40, 100)
    assert third.reason == "ShardUnreadable"
    assert "d.jsonl is cut" in third.message


def test_a_job_of_somebody_else_under_our_childs_name_tells_nothing(setup):
    setup.api.add("a")
    setup.api.job = {"metadata": {"name": "x", "uid": "y"}, "spec": {}, "status": {"completedIndexes": "0"}}
    shards = asyncio.run(setup.source.list_shards("team-a", "a"))
    assert {shard.phase for shard in shards} == {"Pending"}


def test_events_are_those_of_this_uid_the_newest_last(setup):
    setup.api.add("a")
    for uid, reason, last in (("uid-a", "B", "2"), ("older", "X", "3"), ("uid-a", "A", "1")):
        metadata = {"creationTimestamp": "0"}
        event = {"involvedObject": {"uid": uid}, "metadata": metadata, "reason": reason, "lastTimestamp": last}
        setup.api.events.append(event | {"message": "m", "type": "Warning", "count": 4})
    events = asyncio.run(setup.source.list_events("team-a", "a"))
    assert [event.reason for event in events] == ["A", "B"]
    assert (events[0].type, events[0].count) == ("Warning", 4)


def test_an_api_server_that_is_away_is_said_so(setup):
    setup.api.error = ClusterUnavailable("no answer")
    for question in (setup.source.list_jobs("team-a"), setup.source.get_job("team-a", "a")):
        with pytest.raises(Unavailable):
            asyncio.run(question)
