"""Pods that the cluster took away (condition Disrupted): their shards run again and nobody is charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drillcore_operator.observed import ChildJob, Pod
from drillcore_operator.observed.fields import format_time, parse_time
from drillcore_operator.plan.aspects import Aspect, false, find, true
from drillcore_spec.status import (
    ConditionReason,
    ConditionStatus,
    ConditionType,
    DisruptionsStatus,
    ExtractionJobStatus,
)

OVERDUE = timedelta(seconds=60)
"""How long after its grace period a pod may be there before its node counts as lost, or it as stuck."""

_LOST_NODE_REASONS = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
_OUT_OF_SERVICE = (
    "if the node is down for good, `kubectl taint node {node} node.kubernetes.io/out-of-service=:NoExecute`"
    " frees the shard"
)


@dataclass(frozen=True)
class Disruptions:
    """What is said, and the count that is kept in the status."""

    aspect: Aspect
    total: DisruptionsStatus


def disruptions(pods: Sequence[Pod], child: ChildJob | None, status: ExtractionJobStatus) -> Disruptions:
    """Stays True until all pods that should run are ready again."""
    total = _counted(pods, status.disruptions or DisruptionsStatus())
    present = _present(pods, child)
    previous = find(status.conditions, ConditionType.DISRUPTED)
    if present:
        return Disruptions(_disrupted(present, total.count), total)
    recovered = child is not None and child.ready >= child.num_wanted_pods
    if previous is not None and previous.status is ConditionStatus.TRUE and not recovered:
        return Disruptions(true(previous.reason, previous.message), total)
    return Disruptions(false(ConditionReason.NOT_DISRUPTED, _so_far(total.count)), total)


def is_overdue(pod: Pod, now: datetime) -> bool:
    """Whether a deleted pod is still there although its grace period is long over."""
    return pod.deletion_due is not None and now > pod.deletion_due + OVERDUE


def _present(pods: Sequence[Pod], child: ChildJob | None) -> list[Pod]:
    """Disrupted pods whose shard neither is done nor runs again."""
    if child is None or child.ready >= child.num_wanted_pods:
        return []
    served = child.completed | {pod.index for pod in pods if pod.is_ready}
    return [pod for pod in pods if pod.disruption is not None and pod.index not in served]


def _counted(pods: Sequence[Pod], before: DisruptionsStatus) -> DisruptionsStatus:
    """Counts pods disrupted after the last one counted: the time is the only memory of who was counted."""
    last = parse_time(before.last_time)
    times = [pod.disruption.time for pod in pods if pod.disruption is not None and pod.disruption.time]
    new = [time for time in times if last is None or time > last]
    if not new:
        return before
    return DisruptionsStatus(count=before.count + len(new), last_time=format_time(max(new)))


def _disrupted(present: Sequence[Pod], count: int) -> Aspect:
    lost = [pod for pod in present if _lost_its_node(pod)]
    pod = (lost or present)[0]
    assert pod.disruption is not None
    where = f"shard {pod.index}, pod {pod.name} on node {pod.node or '(none)'}"
    message = f"{where}: {pod.disruption.reason}: {pod.disruption.message}; {_so_far(count)}"
    if lost:
        hint = _OUT_OF_SERVICE.format(node=pod.node)
        message += f"; no second pod of the shard starts before this one is gone: {hint}"
    return true(ConditionReason.NODE_LOST if lost else ConditionReason.DRAINED, message)


def _lost_its_node(pod: Pod) -> bool:
    return pod.disruption is not None and pod.disruption.reason in _LOST_NODE_REASONS and not pod.is_over


def _so_far(count: int) -> str:
    return f"{count} pods were disrupted so far" if count != 1 else "1 pod was disrupted so far"
