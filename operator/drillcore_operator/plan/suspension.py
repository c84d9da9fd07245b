"""Whether the job is suspended, by its user or by its queue (condition Suspended)."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.plan.aspects import Aspect, false, find, true
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.status import ConditionReason, ConditionType, ExtractionJobStatus

_RESUMING = (
    "the Job is being resumed; while this stays, something else suspends it again, such as Kueue where it manages"
    " jobs without a queue"
)


def suspended(spec: ExtractionJobSpec, child: ChildJob | None, pods: Sequence[Pod]) -> Aspect:
    """True only when no pod is left: until then a GPU may still be in use."""
    if child is None:
        return true(ConditionReason.SUSPENDED, "suspended by spec.suspend") if spec.suspend else _running()
    if not child.suspended:
        return _suspending(pods) if spec.suspend else _running()
    left = [pod for pod in pods if not pod.is_over]
    if left or child.active or child.terminating:
        return _suspending(left, by_queue=not spec.suspend and spec.queue is not None)
    if spec.suspend:
        return true(ConditionReason.SUSPENDED, "suspended by spec.suspend; committed rows are kept")
    if spec.queue is not None:
        return true(ConditionReason.QUEUED, f"waits for room in the Kueue queue {spec.queue.name}")
    return false(ConditionReason.NOT_SUSPENDED, _RESUMING)


def is_suspended_by_user(status: ExtractionJobStatus) -> bool:
    """Whether the last look saw a job that its user had suspended."""
    before = find(status.conditions, ConditionType.SUSPENDED)
    return before is not None and before.reason in (ConditionReason.SUSPENDING, ConditionReason.SUSPENDED)


def _running() -> Aspect:
    return false(ConditionReason.NOT_SUSPENDED, "the job may run")


def _suspending(pods: Sequence[Pod], *, by_queue: bool = False) -> Aspect:
    named = [f"{pod.name} on node {pod.node or '(none)'}" for pod in pods if not pod.is_over]
    message = "waits for pods to end" + (f": {', '.join(named[:3])}" if named else "")
    return false(ConditionReason.QUEUED if by_queue else ConditionReason.SUSPENDING, message)
