"""Whether the pods that should run are running (condition PodsReady), and what keeps them from it.

The reason is the one that a user would else dig for, with the cluster's own message: from the pods'
containers and conditions, from the events of pods and of the Job (quota and admission are told only there).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drillcore_operator.observed import ChildJob, ClusterEvent, ContainerStatus, Pod
from drillcore_operator.plan.aspects import Aspect, false, true
from drillcore_operator.plan.failures import ShardFailure
from drillcore_operator.plan.observation import Observation
from drillcore_spec.status import ConditionReason

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Source: kubernetes/pkg/kubelet/images/types.go and staging/src/k8s.io/cri-api/pkg/errors."""
_STARTING_REASONS = frozenset({"", "PodInitializing", "ContainerCreating"})
_VOLUME_EVENTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
_QUOTA = "exceeded quota"


@dataclass(frozen=True)
class Obstacle:
    """What keeps one pod from running."""

    reason: str
    message: str
    keeps_message: bool = False


def pods_ready(seen: Observation, child: ChildJob, waiting_failures: Mapping[int, ShardFailure]) -> Aspect:
    """Condition PodsReady of a Job that is neither suspended nor finished.

    Args:
        seen: what was seen.
        child: the child Job.
        waiting_failures: the last failure of each shard that has no running pod now.
    """
    wanted = child.num_wanted_pods
    if child.ready >= wanted:
        return true(ConditionReason.READY, f"{child.ready} of {wanted} pods are ready")
    found = next(_obstacles(seen, child, waiting_failures), None)
    if found is None:
        return false(ConditionReason.STARTING, f"{child.ready} of {wanted} pods are ready")
    return false(found.reason, found.message, keeps_message=found.keeps_message)


def refused_creation(message: str) -> Aspect:
    """PodsReady when the API server refused the Job, or the Job's pods, for a reason that may pass."""
    is_quota = _QUOTA in message
    return false(ConditionReason.QUOTA_EXCEEDED if is_quota else ConditionReason.ADMISSION_REJECTED, message)


def _obstacles(seen: Observation, child: ChildJob, waiting_failures: Mapping[int, ShardFailure]) -> Iterator[Obstacle]:
    """The obstacles, those that a user must act on first."""
    waiting = [pod for pod in seen.pods if not pod.is_over and not pod.is_ready and pod.deletion_due is None]
    for pod in waiting:
        yield from _container_obstacles(pod)
    for pod in waiting:
        yield from _volume_obstacles(pod, seen.events)
    for pod in waiting:
        yield from _scheduling_obstacles(pod)
    for failure in waiting_failures.values():
        yield Obstacle(failure.reason, failure.message)
    if child.active < child.num_wanted_pods:
        yield from _creation_obstacles(child, seen.events)


def _container_obstacles(pod: Pod) -> Iterator[Obstacle]:
    for container in pod.containers:
        if container.waiting_reason in _STARTING_REASONS:
            continue
        what = f"pod {pod.name}, container {container.name}"
        message = f"{what}: {container.waiting_reason}: {container.waiting_message or container.image}"
        message += _last_end(container)
        yield _container_obstacle(container, message)


def _container_obstacle(container: ContainerStatus, message: str) -> Obstacle:
    if container.waiting_reason in _IMAGE_REASONS:
        # kubelet alternates between ErrImagePull and ImagePullBackOff: the first words stay.
        return Obstacle(ConditionReason.IMAGE_PULL_ERROR, message, keeps_message=True)
    if container.waiting_reason == "CreateContainerConfigError" and "secret" in container.waiting_message:
        return Obstacle(ConditionReason.SECRET_NOT_FOUND, message)
    # A crash loop's pause grows, and with it kubelet's words.
    return Obstacle(container.waiting_reason, message, keeps_message=True)


def _last_end(container: ContainerStatus) -> str:
    """How the previous run of a restarted container ended, which is else in `kubectl logs --previous` only."""
    last = container.last_terminated
    if last is None:
        return ""
    said = f": {last.message.strip()}" if last.message.strip() else ""
    return f"; its last run ended with code {last.exit_code} ({last.reason or 'no reason'}){said}"


def _volume_obstacles(pod: Pod, events: tuple[ClusterEvent, ...]) -> Iterator[Obstacle]:
    for event in _newest_first(events):
        if event.object_name == pod.name and event.reason in _VOLUME_EVENTS:
            message = f"pod {pod.name}: {event.reason}: {event.message}"
            is_secret = "secret" in event.message and "not found" in event.message
            reason = ConditionReason.SECRET_NOT_FOUND if is_secret else ConditionReason.VOLUME_MOUNT_FAILED
            yield Obstacle(reason, message, keeps_message=True)


def _scheduling_obstacles(pod: Pod) -> Iterator[Obstacle]:
    condition = pod.scheduling
    if condition is not None and condition.status == "False":
        reason = ConditionReason.UNSCHEDULABLE if condition.reason == "Unschedulable" else condition.reason
        yield Obstacle(reason, f"pod {pod.name}: {condition.message}")


def _creation_obstacles(child: ChildJob, events: tuple[ClusterEvent, ...]) -> Iterator[Obstacle]:
    """FailedCreate events of this start of the Job that no later creation has answered."""
    about_job = [event for event in _newest_first(events) if event.object_name == child.name]
    for event in about_job:
        if event.reason == "SuccessfulCreate":
            return
        is_old = child.start_time is not None and event.time < child.start_time
        if event.reason == "FailedCreate" and not is_old:
            refused = refused_creation(event.message)
            # The message names the pod that was refused, another one each time.
            yield Obstacle(refused.reason, event.message, keeps_message=True)


def _newest_first(events: tuple[ClusterEvent, ...]) -> list[ClusterEvent]:
    return sorted(events, key=lambda event: event.time, reverse=True)
