"""An aspect is one condition before it gets its times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from drillcore_operator.observed.fields import format_time
from drillcore_spec.status import Condition, ConditionReason, ConditionStatus, ConditionType

MAX_MESSAGE_CHARACTERS = 2000
"""Longer messages help nobody in `kubectl describe`; the cluster's own can be arbitrarily long."""

MAX_REASON_CHARACTERS = 128
"""As in an event, which has the same reason."""
_NO_LETTER_OF_A_REASON = re.compile("[^A-Za-z0-9]|^[0-9]+")


@dataclass(frozen=True)
class Aspect:
    """What is said about one side of a job."""

    status: ConditionStatus
    reason: str
    message: str = ""
    keeps_message: bool = False
    """While status and reason stay, the first message stays too: kubelet tells this one in changing words."""


def true(reason: str, message: str = "") -> Aspect:
    """An aspect that holds."""
    return Aspect(ConditionStatus.TRUE, reason, message)


def false(reason: str, message: str = "", *, keeps_message: bool = False) -> Aspect:
    """An aspect that does not hold."""
    return Aspect(ConditionStatus.FALSE, reason, message, keeps_message)


def unknown(reason: str, message: str = "") -> Aspect:
    """An aspect that cannot be judged yet."""
    return Aspect(ConditionStatus.UNKNOWN, reason, message)


PENDING = unknown(ConditionReason.PENDING, "the operator has not got there yet")


def find(conditions: Iterable[Condition], type_: ConditionType) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((condition for condition in conditions if condition.type == type_), None)


def to_conditions(
    aspects: dict[ConditionType, Aspect], previous: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Conditions in the order of their types; the transition time changes with the status only."""
    return tuple(
        _to_condition(type_, aspects.get(type_, PENDING), find(previous, type_), generation, now)
        for type_ in ConditionType
    )


def _word(reason: str) -> str:
    """A reason of the cluster as a condition may hold it: kubelet's come from runtimes, and need not be one word."""
    return _NO_LETTER_OF_A_REASON.sub("", reason)[:MAX_REASON_CHARACTERS] or ConditionReason.PENDING


def _to_condition(
    type_: ConditionType, aspect: Aspect, previous: Condition | None, generation: int, now: datetime
) -> Condition:
    reason = _word(aspect.reason)
    same_status = previous is not None and previous.status is aspect.status
    same_reason = same_status and previous is not None and previous.reason == reason
    message = aspect.message[:MAX_MESSAGE_CHARACTERS]
    if aspect.keeps_message and same_reason and previous is not None:
        message = previous.message
    return Condition(
        type=type_,
        status=aspect.status,
        reason=reason,
        message=message,
        last_transition_time=previous.last_transition_time if same_status and previous else format_time(now),
        observed_generation=generation,
    )
