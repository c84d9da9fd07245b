"""Answers that stay good for a while, asked for once however many wait."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def spread_s(most_s: float, random_unit: Callable[[], float] = random.random) -> float:
    """A time of between half and all of `most_s`: answers that were asked for at once do not end at once."""
    return most_s * (1 - random_unit() / 2)


class TimedCache(Generic[K, V]):
    """Belongs to one event loop. Failures are not kept: the next one asks again."""

    def __init__(self, clock_s: Callable[[], float], max_entries: int) -> None:
        self._clock_s = clock_s
        self._max_entries = max_entries
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()
        """Answer and the time until which it is good; the one asked for last is last."""
        self._asking: dict[K, asyncio.Task[tuple[V, float]]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[tuple[V, float]]]) -> V:
        """The kept answer, or that of `ask`, which gives it with the seconds that it is good for.

        Raises:
            Exception: whatever `ask` raised, for everybody who waited for it.
        """
        kept = self._entries.get(key)
        if kept is not None and self._clock_s() < kept[1]:
            self._entries.move_to_end(key)
            return kept[0]
        task = self._asking.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, ask))
            self._asking[key] = task
        # One who leaves does not cancel the question of the others.
        answer, _ = await asyncio.shield(task)
        return answer

    def forget(self, key: K) -> None:
        """The answer is no longer good."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[tuple[V, float]]]) -> tuple[V, float]:
        try:
            answer, good_for_s = await ask()
        finally:
            del self._asking[key]
        self._entries[key] = (answer, self._clock_s() + good_for_s)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return answer, good_for_s
