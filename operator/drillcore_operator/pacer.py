"""Slows down what somebody else keeps undoing, such as Kueue where it manages jobs without a queue.

The cluster then settles on one of the two wills, and a fight of controllers costs a write now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drillcore_operator.keys import JobKey

FREE = 3
"""So many in a row cost no wait: users change their minds."""
FIRST_WAIT_S = 2.0
MAX_WAIT_S = 300.0
CALM_S = 600.0
"""After so long without one, all is forgotten."""


@dataclass(frozen=True)
class _Past:
    count: int
    last_s: float


class Pacer:
    """Says how long a repeated action has to wait; belongs to one event loop."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._past: dict[JobKey, _Past] = {}

    def wait_s(self, key: JobKey) -> float:
        """Seconds until the next one is due; 0: now."""
        past = self._past.get(key)
        if past is None or past.count < FREE:
            return 0.0
        wait_s = min(FIRST_WAIT_S * 2.0 ** (past.count - FREE), MAX_WAIT_S)
        return max(0.0, past.last_s + wait_s - self._clock_s())

    def did(self, key: JobKey) -> None:
        """It was done once more."""
        now_s = self._clock_s()
        past = self._past.get(key)
        is_new = past is None or now_s - past.last_s > CALM_S
        self._past[key] = _Past(1 if is_new or past is None else past.count + 1, now_s)

    def forget(self, key: JobKey) -> None:
        """The job is gone."""
        self._past.pop(key, None)
