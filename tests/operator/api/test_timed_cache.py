"""Answers that stay good for a while."""

from __future__ import annotations

import asyncio

import pytest

from drillcore_operator.api.timed_cache import TimedCache


def test_a_failure_reaches_all_who_wait_and_is_not_kept():
    answers = iter([RuntimeError("no"), 7])

    async def ask() -> tuple[int, float]:
        await asyncio.sleep(0)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer, 1.0

    async def run() -> None:
        cache: TimedCache[str, int] = TimedCache(lambda: 0.0, max_entries=2)
        results = await asyncio.gather(*(cache.get("k", ask) for _ in range(3)), return_exceptions=True)
        assert [str(result) for result in results] == ["no"] * 3
        assert await cache.get("k", ask) == 7

    asyncio.run(run())


def test_one_who_leaves_does_not_cancel_the_question_of_the_others():
    async def run() -> None:
        cache: TimedCache[str, int] = TimedCache(lambda: 0.0, max_entries=2)
        released = asyncio.Event()

        async def ask() -> tuple[int, float]:
            await released.wait()
            return 1, 1.0

        leaver, other = (asyncio.create_task(cache.get("k", ask)) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()
        released.set()
        assert await other == 1
        with pytest.raises(asyncio.CancelledError):
            await leaver

    asyncio.run(run())


def test_the_one_that_was_asked_for_longest_ago_goes_first():
    async def run() -> list[int]:
        cache: TimedCache[int, int] = TimedCache(lambda: 0.0, max_entries=2)
        asked: list[int] = []

        def ask(key: int):
            async def answer() -> tuple[int, float]:
                asked.append(key)
                return key, 1.0

            return answer

        for key in (1, 2, 1, 3, 1, 2):
            await cache.get(key, ask(key))
        assert len(cache) == 2
        return asked

    assert asyncio.run(run()) == [1, 2, 3, 2]
