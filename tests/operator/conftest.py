"""Observations for tests of the plan, from few words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drillcore_operator.observed import ChildJob, Claim, ClusterEvent, ContainerStatus, Disruption, Pod, Termination
from drillcore_operator.observed.fields import ConditionView
from drillcore_operator.plan import Observation, Plan, Resource, plan
from drillcore_spec.status import ExtractionJobStatus

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
UID = "cr-uid"
SPEC: dict[str, Any] = {
    "model": {"uri": "pvc://models/tiny"},
    "dataset": {"uri": "pvc://datasets/*.jsonl", "columns": {"text": "text"}},
    "extraction": {"layers": [1, 2]},
    "output": {"claimName": "states"},
    "shards": {"count": 4},
    "parallelism": 2,
}
BOUND = {name: Claim(name, "Bound", ("ReadWriteMany",)) for name in ("states", "models", "datasets")}


class Make:
    """Builders of the parts of an observation; each takes what differs from a job of four shards, two at a time."""

    now = NOW
    bound = BOUND

    def resource(self, status: ExtractionJobStatus | None = None, **spec: Any) -> Resource:
        document = {
            "apiVersion": "drillcore.dev/v1alpha1",
            "kind": "ExtractionJob",
            "metadata": {"name": "job", "namespace": "default"},
            "spec": SPEC | spec,
        }
        created = NOW - timedelta(minutes=5)
        return Resource("default", "job", UID, 1, created, document, status or ExtractionJobStatus())

    def child(self, **fields: Any) -> ChildJob:
        defaults: dict[str, Any] = {
            "name": "job-12345678",
            "uid": "job-uid",
            "owner_uid": UID,
            "suspended": False,
            "parallelism": 2,
            "completions": 4,
            "start_time": NOW - timedelta(minutes=1),
            "active": 2,
        }
        return ChildJob(**defaults | fields)

    def pod(self, index: int = 0, **fields: Any) -> Pod:
        created = NOW - timedelta(seconds=50 - index)
        return Pod(**{"name": f"pod-{index}", "index": index, "created": created, "node": "node-a"} | fields)

    def ended_pod(self, code: int, message: str = "", *, index: int = 0, reason: str = "Error", **fields: Any) -> Pod:
        end = Termination(code, reason, message, NOW)
        phase = "Failed" if code or reason == "OOMKilled" else "Succeeded"
        containers = (ContainerStatus("server", terminated=end),)
        return self.pod(index, phase=phase, containers=containers, **fields)

    def waiting_pod(self, reason: str, message: str = "") -> Pod:
        waiting = ContainerStatus("server", image="image", waiting_reason=reason, waiting_message=message)
        return self.pod(containers=(waiting,))

    def disruption(self, reason: str = "EvictionByEvictionAPI", second: int = 0) -> Disruption:
        return Disruption(reason, "evicting", NOW + timedelta(seconds=second))

    def condition(self, reason: str, message: str = "", status: str = "True") -> ConditionView:
        return ConditionView(status, reason, message, NOW)

    def event(self, reason: str, message: str, *, kind: str = "Job", name: str = "job-12345678") -> ClusterEvent:
        return ClusterEvent(kind, name, reason, message, NOW)

    def seen(self, resource: Resource | None = None, **parts: Any) -> Observation:
        """The claims are bound unless told otherwise."""
        return Observation(resource or self.resource(), **{"claims": BOUND} | parts)

    def plan(self, resource: Resource | None = None, *, now: datetime = NOW, **parts: Any) -> Plan:
        """The plan for an observation."""
        return plan(self.seen(resource, **parts), now)


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
