"""Reports of pods: taken from the shard's own pod only, and told to the queue not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from drillcore_operator.api.metrics import ReportMetrics
from drillcore_operator.api.progress_sink import ClusterProgressSink
from drillcore_operator.api.throughput_book import ThroughputBook
from drillcore_operator.errors import Unavailable as ClusterUnavailable
from drillcore_operator.keys import JobKey
from drillcore_operator.progress import ProgressBook
from drillcore_spec import names
from drillcore_spec.messages import ProgressReport
from drillcore_status import PodIdentity
from drillcore_status.errors import Forbidden, NotFound, Unavailable

KEY = JobKey("team-a", "job")
PLACE = ("team-a", "job")


class PlayedApi:
    def __init__(self) -> None:
        self.uid: str | None = "uid-1"
        self.num_reads = 0
        self.error: Exception | None = None

    async def get_resource(self, namespace: str, name: str):
        self.num_reads += 1
        if self.error:
            raise self.error
        return None if self.uid is None else {"metadata": {"uid": self.uid}}


class PlayedQueue:
    def __init__(self) -> None:
        self.wishes: list[tuple[JobKey, float]] = []

    def add_after(self, key: JobKey, delay_s: float) -> None:
        self.wishes.append((key, delay_s))


class PlayedLooks:
    def __init__(self) -> None:
        self.wishes: list[JobKey] = []

    def wish(self, key: JobKey) -> None:
        self.wishes.append(key)


class Setup:
    def __init__(self) -> None:
        self.api, self.queue, self.looks, self.now_s = PlayedApi(), PlayedQueue(), PlayedLooks(), 0.0
        self.progress, self.throughput, self.registry = ProgressBook(), ThroughputBook(), CollectorRegistry()
        metrics = ReportMetrics(self.registry)
        clock: Callable[[], float] = lambda: self.now_s  # noqa: E731
        self.sink = ClusterProgressSink(
            self.api,
            self.queue,
            self.progress,
            self.throughput,
            metrics,
            looks=self.looks,
            clock_s=clock,
            unix_time_s=clock,
        )

    def take(self, seq: int = 0, *, shard: int = 0, pod: str | None = None, **fields: object) -> None:
        counts = {"rowsTotal": 10, "rowsDone": seq, "rowsQuarantined": 0, "tokens": 10 * seq, "bytes": 100 * seq}
        report = {"shard": shard, "attempt": "00000001", "seq": seq, "state": "Running"} | counts | fields
        name = pod or f"{names.child_name('job', self.api.uid or '')}-{shard}-abcde"
        asyncio.run(self.sink.take(*PLACE, PodIdentity("team-a", name), ProgressReport.model_validate(report)))


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_a_report_is_in_the_book_and_a_look_at_the_job_is_wished_for(setup):
    setup.take(3)
    assert setup.progress.seen(KEY, "uid-1").shards[0].rows_done == 3
    assert (setup.looks.wishes, setup.queue.wishes) == ([KEY], [])


def test_a_commit_is_looked_at_at_once(setup):
    setup.take(3, state="Committed")
    assert (setup.looks.wishes, setup.queue.wishes) == ([], [(KEY, 1.0)])


def test_a_report_that_is_no_news_wakes_nobody(setup):
    setup.take(3)
    setup.take(3)
    assert setup.looks.wishes == [KEY]


@pytest.mark.parametrize(
    "pod",
    [
        "other-0-abcde",
        names.child_name("job", "uid-1") + "-1-abcde",
        names.child_name("job", "uid-1") + "-01-abcde",
        names.child_name("job", "uid-1"),
        names.child_name("job", "older-uid") + "-0-abcde",
    ],
)
def test_a_pod_reports_for_its_own_shard_only(setup, pod):
    with pytest.raises(Forbidden):
        setup.take(3, pod=pod)
    assert setup.progress.seen(KEY, "uid-1").shards == {}
    assert (setup.looks.wishes, setup.queue.wishes) == ([], [])


def test_the_uid_is_read_once_for_many_reports(setup):
    for seq in range(5):
        setup.take(seq)
    assert setup.api.num_reads == 1


def test_a_job_that_was_made_anew_is_known_by_its_pods(setup):
    setup.take(3)
    setup.api.uid = "uid-2"
    setup.take(1)
    assert setup.progress.seen(KEY, "uid-2").shards[0].rows_done == 1


def test_a_job_that_is_gone_is_not_found(setup):
    setup.api.uid = None
    with pytest.raises(NotFound):
        setup.take(1)


def test_an_api_server_that_is_away_makes_the_pod_try_again(setup):
    setup.api.error = ClusterUnavailable("no answer")
    with pytest.raises(Unavailable):
        setup.take(1)


def test_throughput_is_the_sum_over_shards(setup):
    setup.take(2)
    setup.now_s = 30.0
    setup.take(5, shard=1)
    first, last = setup.throughput.samples("uid-1")
    assert (first.time_seconds, first.rows_done) == (0.0, 2)
    assert (last.time_seconds, last.rows_done, last.tokens, last.bytes) == (30.0, 7, 70, 700)


def test_metrics_count_what_was_added_and_not_what_was_there_before(setup):
    setup.take(6)
    setup.take(8)
    assert setup.registry.get_sample_value("drillcore_progress_reports_total") == 2
    assert setup.registry.get_sample_value("drillcore_rows_done_total") == 2
    assert setup.registry.get_sample_value("drillcore_tokens_total") == 20
