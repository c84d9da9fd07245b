"""How far jobs were over time, by uid, for as many jobs as memory allows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from drillcore_operator.plan import ProgressSeen
from drillcore_status.history import ThroughputHistory
from drillcore_status.views import ThroughputSample

MAX_JOBS: Final = 4000
"""A job's history has some kilobytes; the one that reported longest ago goes first."""


class ThroughputBook:
    """Samples of all jobs."""

    def __init__(self) -> None:
        self._histories: OrderedDict[str, ThroughputHistory] = OrderedDict()

    def record(self, uid: str, seen: ProgressSeen, unix_time_s: float) -> None:
        """Takes what is known of a job now."""
        shards = seen.shards.values()
        sample = ThroughputSample(
            time_seconds=unix_time_s,
            rows_done=sum(shard.rows_done for shard in shards),
            tokens=sum(shard.tokens for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
        )
        self._histories.setdefault(uid, ThroughputHistory()).add(sample)
        self._histories.move_to_end(uid)
        while len(self._histories) > MAX_JOBS:
            self._histories.popitem(last=False)

    def samples(self, uid: str) -> Sequence[ThroughputSample]:
        """Oldest first; none for a job that has not reported since the operator's start."""
        history = self._histories.get(uid)
        return history.samples() if history else ()
