"""How far jobs were over time, in memory that does not grow with their duration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drillcore_status.views import ThroughputSample

MAX_SAMPLES: Final = 96
FIRST_INTERVAL_S: Final = 2.0


class ThroughputHistory:
    """Samples of one job; when they are too many, every second one goes and new ones come half as often."""

    def __init__(self) -> None:
        self._samples: list[ThroughputSample] = []
        self._interval_s = FIRST_INTERVAL_S

    def add(self, sample: ThroughputSample) -> None:
        """Takes a sample, or lets it replace the last one when that is too young."""
        if len(self._samples) > 1 and sample.time_seconds - self._samples[-2].time_seconds < self._interval_s:
            self._samples[-1] = sample
            return
        self._samples.append(sample)
        if len(self._samples) > MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._interval_s *= 2

    def samples(self) -> Sequence[ThroughputSample]:
        """Oldest first."""
        return tuple(self._samples)
