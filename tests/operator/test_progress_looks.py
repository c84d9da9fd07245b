"""Looks at mere progress: at most so many a second, each job once, and none while anything else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from drillcore_operator.keys import JobKey
from drillcore_operator.progress_looks import ProgressLooks
from drillcore_operator.work_queue import WorkQueue

JOBS = [JobKey("default", f"job-{n}") for n in range(5)]
NEWS = JobKey("default", "news")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, timeout=10))


@asynccontextmanager
async def running(looks: ProgressLooks) -> AsyncIterator[None]:
    task = asyncio.create_task(looks.run())
    yield
    task.cancel()


def test_jobs_are_looked_at_one_after_another() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        looks = ProgressLooks(queue, looks_per_second=100.0, least_delay_s=0.0)
        begun_s = asyncio.get_running_loop().time()
        for key in (*JOBS, *JOBS):
            looks.wish(key)
        async with running(looks):
            assert [await queue.get() for _ in JOBS] == JOBS
            assert asyncio.get_running_loop().time() - begun_s >= len(JOBS) / 100
            await asyncio.sleep(0.05)
            assert len(queue) == 0, "two wishes for one job are one look"

    run(test())


def test_none_comes_before_a_status_may_be_written() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        looks = ProgressLooks(queue, looks_per_second=1000.0, least_delay_s=0.2)
        begun_s = asyncio.get_running_loop().time()
        looks.wish(JOBS[0])
        async with running(looks):
            assert await queue.get() == JOBS[0]
        assert asyncio.get_running_loop().time() - begun_s >= 0.2

    run(test())


def test_a_slow_cluster_makes_no_queue_of_them() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        looks = ProgressLooks(queue, looks_per_second=1000.0, least_delay_s=0.0)
        for key in JOBS:
            looks.wish(key)
        async with running(looks):
            await asyncio.sleep(0.05)
            assert len(queue) == 1, "no worker came: one waits, the others are held back"
            queue.add(NEWS)
            assert [await queue.get(), await queue.get()] == [JOBS[0], NEWS]

    run(test())


def test_a_job_that_is_looked_at_soon_anyway_takes_no_turn() -> None:
    async def test() -> None:
        queue: WorkQueue[JobKey] = WorkQueue()
        looks = ProgressLooks(queue, looks_per_second=1000.0, least_delay_s=0.5)
        soon, late = JOBS[:2]
        queue.add_after(soon, 0.4)
        queue.add_after(late, 60.0)
        looks.wish(soon)
        looks.wish(late)
        async with running(looks):
            assert [await queue.get(), await queue.get()] == [soon, late]
            queue.done(soon)
            await asyncio.sleep(0.3)
            assert len(queue) == 0

    run(test())
