"""A stored status with the progress that was reported since it was written."""

from __future__ import annotations

from collections.abc import Mapping

from drillcore_operator.plan import ProgressSeen, ShardProgress
from drillcore_spec.status import ExtractionJobStatus, Phase, ProgressStatus

_OVER = frozenset({Phase.SUCCEEDED, Phase.FAILED})


def with_live_progress(status: ExtractionJobStatus, seen: ProgressSeen) -> ExtractionJobStatus:
    """The status; of a job that is over, or of which nothing was reported, as it is stored."""
    if status.phase in _OVER or not seen.shards:
        return status
    progress = _progress(status.progress or ProgressStatus(), seen)
    output = status.output and status.output.model_copy(update={"bytes": progress.bytes})
    return status.model_copy(update={"progress": progress, "output": output})


def _progress(stored: ProgressStatus, seen: ProgressSeen) -> ProgressStatus:
    """Nothing is lower than what is stored; 100 % is for the operator to say."""
    rows_done = max(stored.rows_done, _sum(seen.shards, "rows_done"))
    percentage = stored.percentage
    if stored.rows_total:
        percentage = max(percentage or 0, min(99, 100 * rows_done // stored.rows_total))
    return stored.model_copy(
        update={
            "rows_done": rows_done,
            "rows_quarantined": max(stored.rows_quarantined, _sum(seen.shards, "rows_quarantined")),
            "tokens": max(stored.tokens, _sum(seen.shards, "tokens")),
            "bytes": max(stored.bytes, _sum(seen.shards, "bytes")),
            "percentage": percentage,
            "summary": None if percentage is None else f"{percentage}%",
        }
    )


def _sum(shards: Mapping[int, ShardProgress], count: str) -> int:
    return sum(getattr(shard, count) for shard in shards.values())
