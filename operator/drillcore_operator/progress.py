"""Progress reports of sidecars, kept in memory: the operator's only state that is not in the cluster.

Counts are cumulative, so a lost or repeated report does no harm, and after a restart of the operator the
next report brings everything back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from drillcore_operator.keys import JobKey
from drillcore_operator.plan import ProgressSeen, ShardProgress
from drillcore_spec.messages import ProgressReport

SPEED_WINDOW_S = 300.0
"""The present speed is measured over this long."""
_MIN_SPEED_WINDOW_S = 10.0
_SPEED_RESOLUTION_S = 1.0
"""Moments closer together are one, so that a job of many shards takes no more memory."""


@dataclass
class _Job:
    shards: dict[int, ShardProgress] = field(default_factory=dict)
    newest: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Attempt and sequence number of each shard's last report."""
    rows_done: int = 0
    """Of all shards."""
    rows: deque[tuple[float, int]] = field(default_factory=deque)
    """Time and rows done, over the speed window."""


class ProgressBook:
    """Reports by job uid, so that a new job of the same name starts from nothing."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, dict[str, _Job]] = {}

    def record(self, key: JobKey, uid: str, report: ProgressReport, now_s: float) -> bool:
        """Takes a report; gives whether it was news: a late one of the same attempt is not.

        A report of another attempt is taken whatever its number, and lowers nothing.
        """
        job = self._jobs.setdefault(key, {}).setdefault(uid, _Job())
        attempt, seq = job.newest.get(report.shard, ("", -1))
        if attempt == report.attempt and report.seq <= seq:
            return False
        job.newest[report.shard] = (report.attempt, report.seq)
        before = job.shards.get(report.shard, ShardProgress())
        after = ShardProgress.from_report(report).at_least(before)
        job.shards[report.shard] = after
        job.rows_done += after.rows_done - before.rows_done
        _remember_rows(job, now_s)
        return True

    def seen(self, key: JobKey, uid: str) -> ProgressSeen:
        """What is known of a job."""
        job = self._jobs.get(key, {}).get(uid)
        return ProgressSeen(dict(job.shards), _rows_per_second(job)) if job else ProgressSeen()

    def forget(self, key: JobKey, keep_uid: str | None = None) -> None:
        """Drops what is known of a job that is over or gone, but for the job with `keep_uid`."""
        known = self._jobs.pop(key, {})
        if keep_uid in known:
            self._jobs[key] = {keep_uid: known[keep_uid]}


def _remember_rows(job: _Job, now_s: float) -> None:
    is_young = len(job.rows) > 1 and now_s - job.rows[-2][0] < _SPEED_RESOLUTION_S
    if is_young:
        job.rows[-1] = (now_s, job.rows_done)
    else:
        job.rows.append((now_s, job.rows_done))
    while job.rows[0][0] < now_s - SPEED_WINDOW_S:
        job.rows.popleft()


def _rows_per_second(job: _Job) -> float | None:
    (first_s, first_rows), (last_s, last_rows) = job.rows[0], job.rows[-1]
    window_s = last_s - first_s
    return (last_rows - first_rows) / window_s if window_s >= _MIN_SPEED_WINDOW_S else None
