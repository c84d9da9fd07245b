"""The loops over the queue: one job's trouble is nobody else's, and the safety net does not flood the queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from drillcore_operator.errors import ClusterError, Refused, Throttled, Unavailable
from drillcore_operator.keys import JobKey
from drillcore_operator.work_queue import WorkQueue
from drillcore_operator.workers import Failure, Resync, work

GOOD, BAD = JobKey("default", "good"), JobKey("default", "bad")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, timeout=10))


class Reconciler:
    """Fails for one job."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.looks: Counter[JobKey] = Counter()
        self.good_was_seen = asyncio.Event()

    async def reconcile(self, key: JobKey) -> None:
        self.looks[key] += 1
        if key == BAD:
            raise self.error
        self.good_was_seen.set()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Throttled("later", retry_after_s=60), Failure.THROTTLED),
        (Refused("no", is_invalid=False), Failure.REFUSED),
        (Unavailable("away"), Failure.UNAVAILABLE),
        (KeyError("name"), Failure.DEFECT),
    ],
)
def test_a_job_whose_look_fails_is_counted_and_the_next_one_served(error: Exception, why: Failure) -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        reconciler, failures = Reconciler(error), []
        queue.add(BAD)
        queue.add(GOOD)
        worker = asyncio.create_task(work(queue, reconciler, failures.append))
        await reconciler.good_was_seen.wait()
        worker.cancel()
        assert failures == [why]
        assert reconciler.looks == {BAD: 1, GOOD: 1}

    run(test())


class Jobs:
    """A cluster with some jobs, away at first if told so."""

    def __init__(self, count: int, failures: int = 0) -> None:
        self.keys = [JobKey("default", f"job-{n}") for n in range(count)]
        self.failures = failures

    async def list_keys(self, namespace: str | None) -> list[JobKey]:
        if self.failures:
            self.failures -= 1
            raise ClusterError("away")
        return self.keys


def test_the_first_list_has_every_job_looked_at_at_once() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        resync = asyncio.create_task(Resync(Jobs(20), queue, ()).run(interval_s=1000))
        got = {await queue.get() for _ in range(20)}
        assert len(got) == 20
        resync.cancel()

    run(test())


def test_later_lists_spread_their_looks() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        resync = Resync(Jobs(20), queue, ())
        await resync.list_once(spread_s=1000)
        await asyncio.sleep(0.05)
        assert len(queue) < 10
        assert resync.age_s() is not None

    run(test())


def test_delays_in_the_queue_are_told() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        delays: list[float] = []
        queue.on_delay = delays.append
        queue.add(GOOD)
        await asyncio.sleep(0.02)
        await queue.get()
        assert 0.01 < delays[0] < 5

    run(test())
