"""Which changes of the status are told as events: each once, when a condition changes its reason."""

from __future__ import annotations

from drillcore_operator.plan.actions import PublishEvent
from drillcore_operator.plan.aspects import find
from drillcore_spec.status import (
    Condition,
    ConditionReason,
    ConditionStatus,
    ConditionType,
    ExtractionJobStatus,
)

_QUIET = frozenset(
    {
        ConditionReason.PENDING,
        ConditionReason.ACCEPTED,
        ConditionReason.BOUND,
        ConditionReason.NOT_SUSPENDED,
        ConditionReason.SUSPENDING,
        ConditionReason.STARTING,
        ConditionReason.READY,
        ConditionReason.FINISHED,
        ConditionReason.NOT_DISRUPTED,
        ConditionReason.NOT_VERIFIED,
    }
)
_NORMAL = frozenset(
    {
        ConditionReason.SUSPENDED,
        ConditionReason.QUEUED,
        ConditionReason.RUNNING,
        ConditionReason.SUCCEEDED,
        ConditionReason.VERIFIED,
        ConditionReason.VERIFIED_BY_EXIT_CODE,
    }
)


def news(before: ExtractionJobStatus, after: ExtractionJobStatus) -> tuple[PublishEvent, ...]:
    """One event for each reason that is new, however many conditions give it."""
    events: dict[str, PublishEvent] = {}
    for condition in after.conditions:
        old = find(before.conditions, ConditionType(condition.type))
        if _is_told(condition) and (old is None or (old.status, old.reason) != (condition.status, condition.reason)):
            is_warning = condition.reason not in _NORMAL
            events.setdefault(condition.reason, PublishEvent(condition.reason, condition.message, is_warning))
    return tuple(events.values())


def _is_told(condition: Condition) -> bool:
    """Succeeded repeats other conditions while it is Unknown."""
    if condition.type == ConditionType.SUCCEEDED and condition.status is ConditionStatus.UNKNOWN:
        return False
    return condition.reason not in _QUIET
