"""The status that says what the picture shows."""

from __future__ import annotations

from datetime import datetime

from drillcore_operator.observed.fields import format_time
from drillcore_operator.plan.aspects import Aspect, to_conditions, unknown
from drillcore_operator.plan.observation import Resource
from drillcore_operator.plan.picture import Picture
from drillcore_operator.plan.progress import output_status, progress_status, retries, shards_status
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.status import (
    Condition,
    ConditionReason,
    ConditionStatus,
    ConditionType,
    ExtractionJobStatus,
    Phase,
    ProgressStatus,
)


def to_status(resource: Resource, spec: ExtractionJobSpec, picture: Picture, now: datetime) -> ExtractionJobStatus:
    """The whole status; what is no longer known is kept from before."""
    before, child = resource.status, picture.child
    speed = picture.rows_per_second
    progress = progress_status(picture.shards, speed, child, before.progress)
    aspects = dict(picture.aspects) | {ConditionType.SUCCEEDED: _summary(picture, progress)}
    conditions = to_conditions(aspects, before.conditions, resource.generation, now)
    return ExtractionJobStatus(
        observed_generation=resource.generation,
        conditions=conditions,
        phase=phase_of(conditions),
        job_name=child.name if child else before.job_name,
        start_time=before.start_time or format_time(now),
        completion_time=None if picture.outcome is None else format_time(now),
        progress=progress,
        shards=shards_status(spec, child, before.shards),
        output=output_status(spec, progress),
        disruptions=picture.disruptions.total if picture.disruptions.total.count else None,
        retries=retries(child, before.retries),
    )


def phase_of(conditions: tuple[Condition, ...]) -> Phase:
    """One word for printing."""
    by_type = {condition.type: condition for condition in conditions}
    match by_type[ConditionType.SUCCEEDED].status:
        case ConditionStatus.TRUE:
            return Phase.SUCCEEDED
        case ConditionStatus.FALSE:
            return Phase.FAILED
    if by_type[ConditionType.SUSPENDED].status is ConditionStatus.TRUE:
        queued = by_type[ConditionType.SUSPENDED].reason == ConditionReason.QUEUED
        return Phase.QUEUED if queued else Phase.SUSPENDED
    started = by_type[ConditionType.PROGRESSING].status is not ConditionStatus.UNKNOWN
    return Phase.RUNNING if started else Phase.PENDING


def _summary(picture: Picture, progress: ProgressStatus) -> Aspect:
    """Succeeded: the outcome; until then Unknown, with the reason that stands in the way."""
    end = picture.outcome
    if end is None:
        return unknown(*_present_state(picture))
    if not end.succeeded:
        return Aspect(ConditionStatus.FALSE, end.reason, end.message)
    written = progress.rows_done - progress.rows_quarantined
    message = f"{written} rows are written, {progress.rows_quarantined} quarantined" if progress.rows_done else ""
    return Aspect(ConditionStatus.TRUE, ConditionReason.SUCCEEDED, message or "every shard is committed")


def _present_state(picture: Picture) -> tuple[str, str]:
    order = (
        (ConditionType.ACCEPTED, ConditionStatus.FALSE),
        (ConditionType.SUSPENDED, ConditionStatus.TRUE),
        (ConditionType.OUTPUT_READY, ConditionStatus.FALSE),
        (ConditionType.PROGRESSING, ConditionStatus.TRUE),
        (ConditionType.PODS_READY, ConditionStatus.FALSE),
    )
    for type_, status in order:
        aspect = picture.aspects[type_]
        if aspect.status is status:
            return aspect.reason, f"see condition {type_}"
    return ConditionReason.PENDING, "the job is yet to start"
