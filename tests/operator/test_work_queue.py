"""The work queue: each key once, serial per key, later after failures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from drillcore_operator.work_queue import FIRST_BACKOFF_S, MAX_BACKOFF_S, WorkQueue


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, timeout=10))


def test_key_added_twice_is_got_once() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add("a")
        queue.add("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0

    run(test())


def test_key_added_while_it_is_worked_on_comes_after_that() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        assert len(queue) == 0, "not while it is worked on"
        queue.done(key)
        assert await queue.get() == "a"

    run(test())


def test_no_key_is_worked_on_twice_at_a_time_and_none_is_lost() -> None:
    async def test() -> None:
        queue: WorkQueue[int] = WorkQueue()
        running: set[int] = set()
        seen: Counter[int] = Counter()

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in running
                running.add(key)
                await asyncio.sleep(0)
                seen[key] += 1
                running.discard(key)
                queue.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(4)]
        for number in range(300):
            queue.add(number % 7)
            if number % 3 == 0:
                await asyncio.sleep(0)
        while len(queue) or running:
            await asyncio.sleep(0)
        for task in workers:
            task.cancel()
        assert set(seen) == set(range(7))

    run(test())


def test_earliest_of_several_later_looks_counts() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 60)
        queue.add_after("a", 0.01)
        queue.add_after("a", 30)
        assert await queue.get() == "a"
        queue.done("a")
        assert len(queue) == 0, "the other wishes are gone"

    run(test())


def test_look_now_replaces_a_later_one() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 0.02)
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        await asyncio.sleep(0.05)
        assert len(queue) == 0

    run(test())


def test_back_off_doubles_to_its_limit_and_is_forgotten_after_success() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue(random_unit=lambda: 0.0)
        loop = asyncio.get_running_loop()
        delays = []
        for _ in range(12):
            queue.add_failed("a")
            delays.append(queue._timers.pop("a").when() - loop.time())
        assert abs(delays[1] - 2 * FIRST_BACKOFF_S) < 0.1
        assert abs(delays[-1] - MAX_BACKOFF_S) < 0.1
        queue.forget_failures("a")
        queue.add_failed("a")
        assert queue._timers["a"].when() - loop.time() < FIRST_BACKOFF_S + 0.1

    run(test())


def test_back_off_waits_at_least_as_long_as_the_server_asks() -> None:
    async def test() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_failed("a", at_least_s=50)
        assert queue._timers["a"].when() - asyncio.get_running_loop().time() > 49

    run(test())
