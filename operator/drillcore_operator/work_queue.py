"""Keys to be looked at: each once, one worker at a time for a key, with back-off for those that failed.

The rules are client-go's workqueue (https://pkg.go.dev/k8s.io/client-go/util/workqueue): a key that is added
while it waits is not added again; a key that is added while it is worked on waits until that is done.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 20.0
"""Short enough that a job is looked at within a minute of the API server's return."""
JITTER = 0.2
"""Part of a back-off that is random, so that keys that failed together do not come back together."""


class WorkQueue(Generic[K]):
    """Belongs to one event loop; `get` is awaited by several workers."""

    def __init__(self, random_unit: Callable[[], float] = random.random) -> None:
        self._random_unit = random_unit
        self._waiting: dict[K, float] = {}
        """Key to the time it was added, in the order of adding."""
        self._running: set[K] = set()
        self._again: set[K] = set()
        """Keys that were added while they were worked on."""
        self._timers: dict[K, asyncio.TimerHandle] = {}
        """The earliest later look at each key."""
        self._failures: dict[K, int] = {}
        self._not_empty = asyncio.Event()
        self.on_delay: Callable[[float], object] = lambda _: None
        """Told how many seconds each key had waited when it was got."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Asks for a look at the key as soon as possible."""
        self._cancel_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = _loop_time_s()
            self._not_empty.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Asks for a look in a while; of several such wishes for a key, the earliest counts."""
        due_s = _loop_time_s() + delay_s
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due_s:
            return
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_at(due_s, self._add_due, key)

    def is_due_within(self, key: K, delay_s: float) -> bool:
        """Whether a later look at the key is wished for already, in this time."""
        timer = self._timers.get(key)
        return timer is not None and timer.when() <= _loop_time_s() + delay_s

    def add_failed(self, key: K, at_least_s: float = 0.0) -> None:
        """Asks for another look after a failure, each time later, up to `MAX_BACKOFF_S`."""
        num_failures = self._failures.get(key, 0)
        self._failures[key] = num_failures + 1
        backoff_s = min(FIRST_BACKOFF_S * 2.0 ** min(num_failures, 16), MAX_BACKOFF_S)
        backoff_s *= 1 - JITTER * self._random_unit()
        self.add_after(key, max(backoff_s, at_least_s))

    def forget_failures(self, key: K) -> None:
        """The key was worked on with success."""
        self._failures.pop(key, None)

    def discard(self, key: K) -> None:
        """Drops every wish for a key that does not exist any more, but for one that came meanwhile."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The key that has waited longest; the caller owes a `done` for it."""
        while not self._waiting:
            self._not_empty.clear()
            await self._not_empty.wait()
        key = next(iter(self._waiting))
        self.on_delay(_loop_time_s() - self._waiting.pop(key))
        self._running.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker is through with the key."""
        self._running.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _add_due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()


def _loop_time_s() -> float:
    return asyncio.get_running_loop().time()
