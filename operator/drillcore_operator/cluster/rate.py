"""A rate that all users of one event loop share."""

from __future__ import annotations

import asyncio

BURST_S = 1.0
"""Unused turns of this long are kept for a burst."""


class Rate:
    """Gives turns, at most `per_second` of them on average, first come first served."""

    def __init__(self, per_second: float) -> None:
        self._interval_s = 1 / per_second
        self._next_s = 0.0

    async def turn(self) -> None:
        """Waits for a turn."""
        now_s = asyncio.get_running_loop().time()
        turn_s = max(self._next_s, now_s - BURST_S)
        self._next_s = turn_s + self._interval_s
        if turn_s > now_s:
            await asyncio.sleep(turn_s - now_s)
