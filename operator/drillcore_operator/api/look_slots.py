"""When to look at mere progress: no sooner than a status may be written, and evenly apart for all jobs together."""

from __future__ import annotations

from collections.abc import Callable


class LookSlots:
    """Gives moments to looks. Many jobs get them further apart, so that news of conditions never waits behind them."""

    def __init__(self, looks_per_second: float, least_delay_s: float, clock_s: Callable[[], float]) -> None:
        self._interval_s = 1 / looks_per_second
        self._least_delay_s = least_delay_s
        self._clock_s = clock_s
        self._next_s = 0.0

    def take(self) -> float:
        """Seconds from now until the next free moment, which is taken with it."""
        now_s = self._clock_s()
        slot_s = max(now_s + self._least_delay_s, self._next_s)
        self._next_s = slot_s + self._interval_s
        return slot_s - now_s
