"""The whole picture of a job: every aspect judged once, in the order in which they depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from drillcore_operator.observed import ChildJob
from drillcore_operator.plan.acceptance import accepted, is_foreign
from drillcore_operator.plan.aspects import Aspect, false, find, unknown
from drillcore_operator.plan.disruption import Disruptions, disruptions
from drillcore_operator.plan.failures import ShardFailure, failures, latest_by_shard
from drillcore_operator.plan.observation import Observation, ShardProgress
from drillcore_operator.plan.outcome import Outcome, outcome, start_deadline_passed
from drillcore_operator.plan.output_ready import missing, output_ready
from drillcore_operator.plan.pods_ready import pods_ready, refused_creation
from drillcore_operator.plan.progress import shard_progress
from drillcore_operator.plan.progressing import has_started, progressing
from drillcore_operator.plan.suspension import suspended
from drillcore_operator.plan.verification import output_verified
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.status import ConditionReason, ConditionStatus, ConditionType


@dataclass(frozen=True)
class Picture:
    """What a job looks like now."""

    aspects: Mapping[ConditionType, Aspect]
    """All but Succeeded, which follows from these and the outcome."""
    outcome: Outcome | None
    """How it ended; None: it has not."""
    shards: Mapping[int, ShardProgress]
    rows_per_second: float | None
    disruptions: Disruptions
    is_waiting: bool
    """Something is not ready of which no watch tells."""
    child: ChildJob | None
    """The child Job, unless it is somebody else's."""


def draw(seen: Observation, spec: ExtractionJobSpec, now: datetime) -> Picture:
    """Judges every aspect."""
    status = seen.resource.status
    child = None if is_foreign(seen.resource, seen.child) else seen.child
    waiting_failures = _waiting_failures(seen, child, spec)
    pause = suspended(spec, child, seen.pods)
    ready = _ready(seen, child, pause, waiting_failures)
    started = has_started(status, child)
    end = _end(seen, spec, child, ready, now, started=started, is_paused=pause.status is ConditionStatus.TRUE)
    shards = shard_progress(seen.progress, seen.pods)
    disrupted = disruptions(seen.pods, child, status)
    output = output_ready(spec, seen.claims, waiting_failures, find(status.conditions, ConditionType.OUTPUT_READY))
    if end is None:
        moving = progressing(child, seen.pods, started=started, pods_ready=ready, suspended=pause, now=now)
    else:
        moving = false(ConditionReason.FINISHED, "the job is over")
        ready = false(ConditionReason.FINISHED, "the job is over")
    aspects = {
        ConditionType.ACCEPTED: accepted(seen.resource, seen.child, seen.refusal),
        ConditionType.OUTPUT_READY: output,
        ConditionType.SUSPENDED: pause,
        ConditionType.PODS_READY: ready,
        ConditionType.PROGRESSING: moving,
        ConditionType.DISRUPTED: disrupted.aspect,
        ConditionType.OUTPUT_VERIFIED: output_verified(end, child, shards),
    }
    return Picture(
        aspects=aspects,
        outcome=end,
        shards=shards,
        rows_per_second=seen.progress.rows_per_second,
        disruptions=disrupted,
        is_waiting=_is_waiting(seen, child, ready, pause, output),
        child=child,
    )


def _waiting_failures(seen: Observation, child: ChildJob | None, spec: ExtractionJobSpec) -> dict[int, ShardFailure]:
    """The last failure of each shard that is neither over nor ready now."""
    over = child.completed | child.failed if child else frozenset()
    ready = {pod.index for pod in seen.pods if pod.is_ready}
    latest = latest_by_shard(failures(seen.pods, spec))
    return {index: failure for index, failure in latest.items() if index not in over | ready}


def _ready(
    seen: Observation, child: ChildJob | None, pause: Aspect, waiting_failures: Mapping[int, ShardFailure]
) -> Aspect:
    if seen.refusal is not None:
        return refused_creation(seen.refusal.message)
    lost = [name for name, claim in seen.claims.items() if claim is None]
    if lost and (child is None or not child.ready):
        return false(ConditionReason.PVC_NOT_FOUND, missing(lost[0]))
    if child is None:
        return unknown(ConditionReason.PENDING, "the Job is yet to be created")
    if child.suspended:
        return false(pause.reason, pause.message)
    return pods_ready(seen, child, waiting_failures)


def _end(
    seen: Observation,
    spec: ExtractionJobSpec,
    child: ChildJob | None,
    ready: Aspect,
    now: datetime,
    *,
    started: bool,
    is_paused: bool,
) -> Outcome | None:
    if seen.refusal is not None and seen.refusal.is_invalid:
        return Outcome(False, ConditionReason.INVALID_POD_TEMPLATE, seen.refusal.message)
    if child is not None and (end := outcome(child, seen.pods, spec)) is not None:
        return end
    if started or is_paused:
        return None
    waiting_since = seen.resource.created if child is None else child.start_time
    return start_deadline_passed(spec, waiting_since, ready, now)


def _is_waiting(seen: Observation, child: ChildJob | None, ready: Aspect, pause: Aspect, output: Aspect) -> bool:
    if child is None or pause.reason == ConditionReason.SUSPENDING:
        return True
    if child.suspended:
        return pause.status is not ConditionStatus.TRUE
    not_ready = ready.status is not ConditionStatus.TRUE or output.status is not ConditionStatus.TRUE
    return not_ready or bool(child.terminating) or any(pod.deletion_due for pod in seen.pods)
