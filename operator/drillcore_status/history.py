"""How far jobs were over time, in memory that does not grow with their duration."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from drillcore_status.views import ThroughputSample

MAX_SAMPLES: Final = 64
FIRST_INTERVAL_S: Final = 2.0


class ThroughputHistory:
    """Samples of one job; when they are too many, every second one goes and new ones come half as often."""

    def __init__(self) -> None:
        self._columns = tuple(array("d") for _ in range(4))
        """Time, rows done, tokens and bytes: 32 bytes a sample, exact up to 2^53."""
        self._interval_s = FIRST_INTERVAL_S

    def add(self, sample: ThroughputSample) -> None:
        """Takes a sample, or lets it replace the last one when that is too young."""
        times = self._columns[0]
        is_young = len(times) > 1 and sample.time_seconds - times[-2] < self._interval_s
        values = (sample.time_seconds, sample.rows_done, sample.tokens, sample.bytes)
        for column, value in zip(self._columns, values, strict=True):
            if is_young:
                column[-1] = value
            else:
                column.append(value)
        if len(times) > MAX_SAMPLES:
            self._columns = tuple(column[::2] for column in self._columns)
            self._interval_s *= 2

    def samples(self) -> Sequence[ThroughputSample]:
        """Oldest first."""
        return tuple(
            ThroughputSample(time_seconds=time_s, rows_done=int(rows), tokens=int(tokens), bytes=int(size))
            for time_s, rows, tokens, size in zip(*self._columns, strict=True)
        )
