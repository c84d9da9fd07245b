"""The shards of a job for the API: the Job controller's counts, the reports, and the last failure of each."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.plan import ProgressSeen, ShardProgress
from drillcore_operator.plan.failures import ShardFailure, failures, latest_by_shard
from drillcore_operator.plan.progress import shard_progress
from drillcore_spec.job import ExtractionJobSpec
from drillcore_status.views import Shard, ShardPhase


def shards_of(
    spec: ExtractionJobSpec, child: ChildJob | None, pods: Iterable[Pod], seen: ProgressSeen
) -> tuple[Shard, ...]:
    """Every shard, by index."""
    pods = tuple(pods)
    progress = shard_progress(seen, pods)
    failed = latest_by_shard(failures(pods, spec))
    running = {pod.index for pod in pods if pod.phase == "Running"}
    return tuple(
        _shard(index, _phase(index, child, running), progress.get(index), failed.get(index))
        for index in range(spec.shards.count)
    )


def _phase(index: int, child: ChildJob | None, running: set[int]) -> ShardPhase:
    if child is not None and index in child.completed:
        return ShardPhase.COMMITTED
    if child is not None and index in child.failed:
        return ShardPhase.FAILED
    return ShardPhase.RUNNING if index in running else ShardPhase.PENDING


def _shard(index: int, phase: ShardPhase, progress: ShardProgress | None, failure: ShardFailure | None) -> Shard:
    counts = progress or ShardProgress()
    return Shard(
        index=index,
        phase=phase,
        rows_total=counts.rows_total if progress else None,
        rows_done=counts.rows_done,
        rows_quarantined=counts.rows_quarantined,
        tokens=counts.tokens,
        bytes=counts.bytes,
        reason=failure.reason if failure else "",
        message=failure.message if failure else "",
    )
