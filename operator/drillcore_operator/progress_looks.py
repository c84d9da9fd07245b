"""Looks at jobs of which nothing but progress is known: evenly apart, and only while nothing else waits.

News of conditions never stands behind them. When the API server or the machine is slow, statuses follow progress later
instead of a queue growing.
"""

from __future__ import annotations

import asyncio

from drillcore_operator.keys import JobKey
from drillcore_operator.work_queue import WorkQueue


class ProgressLooks:
    """Puts one job after another into the queue; belongs to the queue's event loop."""

    def __init__(self, queue: WorkQueue[JobKey], looks_per_second: float, least_delay_s: float) -> None:
        self._queue = queue
        self._interval_s = 1 / looks_per_second
        self._least_delay_s = least_delay_s
        """No status is written sooner after another one."""
        self._due_s: dict[JobKey, float] = {}
        """Job to the time from which it may be looked at, the earliest first."""

    def wish(self, key: JobKey) -> None:
        """Asks for a look at a job that reported; it has no use for one beside another that comes soon."""
        if not self._queue.is_due_within(key, self._least_delay_s):
            self._due_s.setdefault(key, _loop_time_s() + self._least_delay_s)

    async def run(self) -> None:
        """Has jobs looked at for ever."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._due_s and not len(self._queue):
                self._look_at_first()

    def _look_at_first(self) -> None:
        key, due_s = next(iter(self._due_s.items()))
        if due_s <= _loop_time_s():
            del self._due_s[key]
            self._queue.add(key)


def _loop_time_s() -> float:
    return asyncio.get_running_loop().time()
