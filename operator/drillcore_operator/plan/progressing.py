"""Whether rows are being extracted (condition Progressing).

It is Unknown until a pod was ready for the first time and never again after that: this is how a later visit
knows that the start deadline is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.plan.aspects import Aspect, false, find, true, unknown
from drillcore_operator.plan.disruption import is_overdue
from drillcore_spec import names
from drillcore_spec.status import ConditionReason, ConditionStatus, ConditionType, ExtractionJobStatus

FOREIGN_CONTAINER_GRACE = timedelta(seconds=60)
"""How long other containers may run on after the server has ended well."""


def has_started(status: ExtractionJobStatus, child: ChildJob | None) -> bool:
    """Whether a pod has ever been ready."""
    condition = find(status.conditions, ConditionType.PROGRESSING)
    if condition is not None and condition.status is not ConditionStatus.UNKNOWN:
        return True
    return child is not None and bool(child.ready or child.num_failed_pods or child.completed or child.failed)


def progressing(
    child: ChildJob | None,
    pods: Sequence[Pod],
    *,
    started: bool,
    pods_ready: Aspect,
    suspended: Aspect,
    now: datetime,
) -> Aspect:
    """Condition Progressing of a job that is not over."""
    obstacle = _stall(pods, now)
    if obstacle is not None:
        return false(ConditionReason.STALLED, obstacle)
    if suspended.status is ConditionStatus.TRUE:
        waiting = suspended.reason, suspended.message
        return false(*waiting) if started else unknown(*waiting)
    if child is not None and not child.num_unfinished:
        return true(ConditionReason.RUNNING, "every shard is done; the last pods end")
    if child is not None and child.ready:
        return true(ConditionReason.RUNNING, f"{child.ready} of {child.num_wanted_pods} shards are running")
    if started:
        return false(pods_ready.reason, pods_ready.message, keeps_message=pods_ready.keeps_message)
    return unknown(ConditionReason.STARTING, "no pod has been ready yet")


def _stall(pods: Sequence[Pod], now: datetime) -> str | None:
    for pod in pods:
        if (foreign := _outliving_container(pod, now)) is not None:
            return (
                f"pod {pod.name}: the server has ended and container {foreign} still runs, so the shard cannot"
                " complete: keep it from being injected (podTemplate.annotations), or end it"
            )
    for pod in pods:
        if is_overdue(pod, now) and pod.disruption is None:
            held = f", held by finalizers {', '.join(pod.finalizers)}" if pod.finalizers else ""
            return f"pod {pod.name} on node {pod.node or '(none)'} should be gone and is not{held}"
    return None


def _outliving_container(pod: Pod, now: datetime) -> str | None:
    """Name of a container that is not ours and runs although the server ended well a while ago."""
    end = pod.server_end
    if pod.is_over or end is None or end.exit_code != 0 or end.finished_at is None:
        return None
    if now < end.finished_at + FOREIGN_CONTAINER_GRACE:
        return None
    ours = (names.CONTAINER_SERVER, names.CONTAINER_SIDECAR)
    return next((c.name for c in pod.containers if c.is_running and c.name not in ours), None)
