"""The pod statuses that the API-server suite plays, held against those of a real kubelet."""

from __future__ import annotations

from typing import Any

from drillcore_operator.observed.container import OOM_KILLED
from drillcore_spec.names import CONTAINER_SIDECAR
from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.pod_statuses import pod_status

_LATER_CONDITIONS = frozenset({"PodReadyToStartContainers"})
"""Turns False some time after the end of a pod, and nobody reads it."""


def assert_as_played(pod: Object, situation: str, **values: str | int) -> None:
    """Fails unless the pod's status says, in what the operator reads, the same as the file of the situation."""
    real, played = _read(pod["status"]), _read(pod_status(situation, **values))
    assert real == played, f"pod_statuses/{situation}.yaml has to follow kubelet: {pod['status']}"


def _read(status: Object) -> dict[str, Any]:
    """What the operator reads, without times and texts."""
    conditions = {c["type"]: c["status"] for c in status["conditions"] if c["type"] not in _LATER_CONDITIONS}
    entries = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {
        "phase": status["phase"],
        "reason": status.get("reason", ""),
        "conditions": conditions,
        "containers": {entry["name"]: _state(entry) for entry in entries},
    }


def _state(entry: Object) -> tuple[str, str, int]:
    """A sidecar that ended counts as such, however: kubelet may start it once more before it sees the server's end."""
    ((kind, details),) = entry["state"].items()
    if entry["name"] == CONTAINER_SIDECAR and kind == "terminated" and details["reason"] != OOM_KILLED:
        return kind, "", 0
    return kind, details.get("reason", ""), details.get("exitCode", 0)
