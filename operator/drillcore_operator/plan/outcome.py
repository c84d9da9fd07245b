"""How the job ended (condition Succeeded), judged from the child alone: Kubernetes counts, we explain."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.observed.fields import ConditionView
from drillcore_operator.plan.aspects import Aspect
from drillcore_operator.plan.failures import (
    ShardFailure,
    failures,
    latest_by_shard,
    reason_of_code,
    with_hint,
)
from drillcore_operator.plan.hints import SAME_OUTPUT
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.reasons import EXIT_RULES, JobAction
from drillcore_spec.status import ConditionReason

MAX_EXPLAINED_SHARDS = 5
_EXIT_CODE = re.compile(r"exit code (\d+)")
_FAIL_JOB_REASONS = frozenset(
    reason for rule in EXIT_RULES if rule.action is JobAction.FAIL_JOB for reason in rule.reasons
)


@dataclass(frozen=True)
class Outcome:
    """The end of a job."""

    succeeded: bool
    reason: str
    message: str


def outcome(child: ChildJob, pods: Sequence[Pod], spec: ExtractionJobSpec) -> Outcome | None:
    """The end as the Job controller has decided it; None: not yet."""
    if child.is_complete:
        return Outcome(True, ConditionReason.SUCCEEDED, "")
    if child.failure is None:
        return None
    found = failures(pods, spec)
    match child.failure.reason:
        case "DeadlineExceeded":
            message = f"it ran longer than activeDeadlineSeconds ({spec.active_deadline_seconds}); go on"
            return Outcome(False, ConditionReason.DEADLINE_EXCEEDED, f"{message} {SAME_OUTPUT}")
        case "PodFailurePolicy":
            return _failed_by_policy(child.failure, found)
        case _:
            return Outcome(False, ConditionReason.SHARDS_FAILED, _explain_shards(child, found))


def start_deadline_passed(
    spec: ExtractionJobSpec, waiting_since: datetime | None, obstacle: Aspect, now: datetime
) -> Outcome | None:
    """The end when no pod got ready in time.

    Args:
        spec: the job's spec.
        waiting_since: since when it waits to start, neither suspended nor queued; None: it does not.
        obstacle: PodsReady, which says what was in the way.
        now: the time.
    """
    limit = timedelta(seconds=spec.start_deadline_seconds)
    if waiting_since is None or now < waiting_since + limit:
        return None
    return Outcome(
        False,
        ConditionReason.START_DEADLINE_EXCEEDED,
        f"no pod was ready within startDeadlineSeconds ({spec.start_deadline_seconds}):"
        f" {obstacle.reason}: {obstacle.message}",
    )


def _failed_by_policy(condition: ConditionView, found: Sequence[ShardFailure]) -> Outcome:
    """The failure that stopped the whole job; without its pod, the exit code in the Job's own words."""
    for failure in found:
        if failure.reason in _FAIL_JOB_REASONS:
            return Outcome(False, failure.reason, failure.message)
    code = _EXIT_CODE.search(condition.message)
    if code is None:
        return Outcome(False, ConditionReason.SHARDS_FAILED, condition.message)
    reason = reason_of_code(int(code[1]))
    return Outcome(False, reason, with_hint(reason, condition.message))


def _explain_shards(child: ChildJob, found: Sequence[ShardFailure]) -> str:
    explained = [f for index, f in sorted(latest_by_shard(found).items()) if index in child.failed]
    head = f"shards {child.failed_text} failed" if child.failed_text else "shards failed"
    tail = f"; and {len(explained) - MAX_EXPLAINED_SHARDS} more" if len(explained) > MAX_EXPLAINED_SHARDS else ""
    lines = "; ".join(f"{f.reason}: {f.message}" for f in explained[:MAX_EXPLAINED_SHARDS])
    return f"{head}: {lines}{tail}" if lines else head
