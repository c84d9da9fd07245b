"""One ExtractionJob of a test: its creation, and waiting for what its status says."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.manifests import extraction_job

WAIT_S = 60.0


@dataclass(frozen=True)
class JobUnderTest:
    """A job by its place; everything else is read from the API server each time."""

    api: KubeApi
    namespace: str
    name: str

    def create(self, changes: dict[str, Any] | None = None) -> JobUnderTest:
        """Creates it: the smallest job, with changes to its spec."""
        self.api.create(extraction_job(self.name, self.namespace, changes))
        return self

    def resource(self) -> Object:
        """The ExtractionJob."""
        return self.api.get("ExtractionJob", self.name, namespace=self.namespace)

    def status(self) -> Object:
        """Its status; empty before the operator's first visit."""
        status: Object = self.resource().get("status", {})
        return status

    def condition(self, type_: str) -> Object:
        """One of its conditions; empty when it is not there."""
        return _condition(self.status(), type_)

    def children(self) -> list[Object]:
        """Its Jobs: there should be one."""
        selector = f"drillcore.dev/job={self.name}"
        return self.api.list("Job", namespace=self.namespace, labelSelector=selector)

    def patch_spec(self, **fields: object) -> None:
        """Changes mutable fields of its spec."""
        self.api.patch("ExtractionJob", self.name, {"spec": fields}, namespace=self.namespace)

    def delete(self) -> None:
        """Deletes it; its Job and pods follow."""
        self.api.delete("ExtractionJob", self.name, namespace=self.namespace, propagationPolicy="Background")

    def wait(self, type_: str, status: str, reason: str, timeout_s: float = WAIT_S) -> Object:
        """Waits until a condition has this status and reason, and gives the condition."""
        wanted = (status, reason)
        deadline_s = time.monotonic() + timeout_s
        last: Object = {}
        while (left_s := deadline_s - time.monotonic()) > 0:
            for event in self._watch(left_s):
                last = event["object"].get("status", {})
                condition = _condition(last, type_)
                if (condition.get("status"), condition.get("reason")) == wanted:
                    return condition
        raise AssertionError(f"{self.name}: {type_} never was {wanted}:\n{json.dumps(last, indent=1)}")

    def events(self) -> list[Object]:
        """The events about it."""
        selector = f"involvedObject.kind=ExtractionJob,involvedObject.name={self.name}"
        return self.api.list("Event", namespace=self.namespace, fieldSelector=selector)

    def _watch(self, timeout_s: float) -> Any:
        return self.api.watch(
            "ExtractionJob",
            namespace=self.namespace,
            fieldSelector=f"metadata.name={self.name}",
            timeout_s=max(1, int(timeout_s)),
        )


def _condition(status: Object, type_: str) -> Object:
    return next((c for c in status.get("conditions", []) if c["type"] == type_), {})
