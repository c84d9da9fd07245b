"""A shard's pod."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from drillcore_operator.observed.container import ContainerStatus, Termination
from drillcore_operator.observed.fields import ConditionView, Manifest, conditions_of, parse_time
from drillcore_spec import names


@dataclass(frozen=True)
class Disruption:
    """Why the cluster took a pod away (condition DisruptionTarget).

    Source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    """

    reason: str
    message: str
    time: datetime | None


@dataclass(frozen=True)
class Pod:
    """What decisions need of a v1 Pod."""

    name: str
    index: int
    """The shard."""
    created: datetime
    phase: str = "Pending"
    node: str = ""
    """Empty until it is scheduled."""
    is_ready: bool = False
    """Serves, and nobody deletes it: a cut-off node leaves its last word, Ready, on pods that are going."""
    deletion_due: datetime | None = None
    """When it should be gone, its grace period included; None: nobody deletes it."""
    finalizers: tuple[str, ...] = ()
    scheduling: ConditionView | None = None
    """Condition PodScheduled."""
    disruption: Disruption | None = None
    containers: tuple[ContainerStatus, ...] = ()
    """Sidecars first, then containers."""
    status_reason: str = ""
    """kubelet's word about the whole pod, such as Evicted."""
    status_message: str = ""
    """kubelet's words about the whole pod, such as those of an eviction."""

    @classmethod
    def from_api(cls, pod: Manifest) -> Self:
        """Reads a pod of an Indexed Job (`is_made_by`)."""
        metadata, status = pod["metadata"], pod.get("status", {})
        conditions = conditions_of(status)
        created = parse_time(metadata["creationTimestamp"])
        assert created is not None
        return cls(
            name=metadata["name"],
            index=int(metadata["annotations"][names.ANNOTATION_COMPLETION_INDEX]),
            created=created,
            phase=status.get("phase", "Pending"),
            node=pod["spec"].get("nodeName") or "",
            is_ready=_holds(conditions.get("Ready")) and "deletionTimestamp" not in metadata,
            deletion_due=parse_time(metadata.get("deletionTimestamp")),
            finalizers=tuple(metadata.get("finalizers") or ()),
            scheduling=conditions.get("PodScheduled"),
            disruption=_disruption(conditions.get("DisruptionTarget")),
            containers=_containers(status),
            status_reason=status.get("reason") or "",
            status_message=status.get("message") or "",
        )

    @property
    def is_over(self) -> bool:
        """Whether its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def server_end(self) -> Termination | None:
        """How the server ended; None while it runs, or when it never started."""
        ends = [c.terminated for c in self.containers if c.name == names.CONTAINER_SERVER]
        return ends[0] if ends else None


def is_made_by(job_uid: str, pod: Manifest) -> bool:
    """Whether the Job controller made the pod for this Job; its labels alone can be put on any pod by anybody."""
    metadata = pod["metadata"]
    owners = [owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    index = (metadata.get("annotations") or {}).get(names.ANNOTATION_COMPLETION_INDEX, "")
    return owners == [job_uid] and index.isdecimal()


def _holds(condition: ConditionView | None) -> bool:
    return condition is not None and condition.status == "True"


def _disruption(condition: ConditionView | None) -> Disruption | None:
    if condition is None or condition.status != "True":
        return None
    return Disruption(condition.reason, condition.message, condition.time)


def _containers(status: Manifest) -> tuple[ContainerStatus, ...]:
    entries = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return tuple(ContainerStatus.from_api(entry) for entry in entries)
