"""Progress for the status: what the sidecars reported, with Kubernetes' own count of shards as the floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.plan.observation import ProgressSeen, ShardProgress
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.messages import TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_spec.status import OutputStatus, ProgressStatus, ShardsStatus
from drillcore_spec.uris import CLAIM_SCHEME


def shard_progress(seen: ProgressSeen, pods: Iterable[Pod]) -> dict[int, ShardProgress]:
    """Each shard's progress, the termination messages of committed shards included."""
    shards = dict(seen.shards)
    for pod in pods:
        message = TerminationMessage.from_text(pod.server_end.message) if pod.server_end else None
        if message is not None and message.reason is Reason.COMMITTED:
            committed = ShardProgress.from_commit(message.counts)
            shards[pod.index] = committed.at_least(shards.get(pod.index, ShardProgress()))
    return shards


def progress_status(
    shards: Mapping[int, ShardProgress],
    rows_per_second: float | None,
    child: ChildJob | None,
    before: ProgressStatus | None,
) -> ProgressStatus:
    """The sums over all shards; nothing is ever lower than before."""
    before = before or ProgressStatus()
    completions = child.completions if child else 0
    rows_done = max(before.rows_done, sum(s.rows_done for s in shards.values()))
    rows_total = _rows_total(shards, completions, before)
    percentage = max(before.percentage or 0, _percentage(rows_done, rows_total, child))
    return ProgressStatus(
        rows_done=rows_done,
        rows_total=rows_total,
        rows_quarantined=max(before.rows_quarantined, sum(s.rows_quarantined for s in shards.values())),
        percentage=percentage,
        summary=f"{percentage}%",
        tokens=max(before.tokens, sum(s.tokens for s in shards.values())),
        bytes=max(before.bytes, sum(s.bytes for s in shards.values())),
        estimated_remaining_seconds=_remaining_s(rows_done, rows_total, rows_per_second),
    )


def shards_status(spec: ExtractionJobSpec, child: ChildJob | None, before: ShardsStatus | None) -> ShardsStatus:
    """Shards by state, as the Job controller counts them; without a Job, as before and none active."""
    if child is None:
        before = before or ShardsStatus(total=spec.shards.count, summary=f"0/{spec.shards.count}")
        return before.model_copy(update={"active": 0})
    return ShardsStatus(
        total=child.completions,
        active=min(child.ready, child.completions),
        succeeded=len(child.completed),
        failed=len(child.failed),
        failed_indexes=child.failed_text[:1024] or None,
        summary=f"{len(child.completed)}/{child.completions}",
    )


def output_status(spec: ExtractionJobSpec, progress: ProgressStatus) -> OutputStatus:
    """Where the output is, and its size so far."""
    sub_path = f"/{spec.output.sub_path}" if spec.output.sub_path else ""
    return OutputStatus(uri=f"{CLAIM_SCHEME}{spec.output.claim_name}{sub_path}", bytes=progress.bytes)


def retries(child: ChildJob | None, before: int | None) -> int:
    """Failed pods that were or will be followed by another try: the last one of a failed shard is not."""
    counted = child.num_failed_pods - len(child.failed) if child else 0
    return max(before or 0, counted)


def _rows_total(shards: Mapping[int, ShardProgress], completions: int, before: ProgressStatus) -> int | None:
    """Known once every shard has counted its own."""
    known = [s.rows_total for s in shards.values() if s.rows_total or s.is_committed]
    if not completions or len(known) < completions:
        return before.rows_total
    return max(before.rows_total or 0, sum(known))


def _percentage(rows_done: int, rows_total: int | None, child: ChildJob | None) -> int:
    if child is None:
        return 0
    by_shards = 100 * len(child.completed) // max(1, child.completions)
    if child.is_complete or not rows_total:
        return by_shards
    # Not 100 before Kubernetes says so: the last commit is still to be checked.
    return min(99, max(by_shards, 100 * rows_done // rows_total))


def _remaining_s(rows_done: int, rows_total: int | None, rows_per_second: float | None) -> int | None:
    if rows_total is None or not rows_per_second:
        return None
    return max(0, round((rows_total - rows_done) / rows_per_second))
