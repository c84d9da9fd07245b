"""A namespace in which a team runs jobs on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.real_cluster import RealCluster
from drillcore_testcluster.node.toolbox import Toolbox
from drillcore_testcluster.waiting import until

MODEL = "smollm2-135m-instruct"
CLAIMS = ("models", "datasets", "states")
SMALL: dict[str, Any] = {
    "ring.size": "64Mi",
    "server.resources": {"gpus": 0, "cpu": "100m", "memory": "3Gi"},
    "sidecar.resources": {"cpu": "50m", "memory": "512Mi"},
}
"""What two CPU cores have room for."""
QUICKSTART: dict[str, Any] = SMALL | {
    "model.uri": f"pvc://models/{MODEL}",
    "dataset.uri": "pvc://datasets/quickstart.jsonl",
    "dataset.columns": {"messages": "messages", "id": "id"},
    "extraction.layers": [2, 15, 27, 30],
}
"""The quickstart's job."""
LONG: dict[str, Any] = QUICKSTART | {
    "extraction.layers": [2, 15],
    "output.commitIntervalSeconds": 1,
    "output.partSize": "4Mi",
}
"""Committed all the time, so that something can happen in the middle of it; half of the model's blocks."""
LONG_ROWS = 72
ENDLESS: dict[str, Any] = LONG | {"dataset.uri": "pvc://datasets/endless.jsonl"}
"""Longer than any test waits."""
TINY: dict[str, Any] = SMALL | {
    "model.uri": "file:///opt/drillcore/self-test/model",
    "dataset.uri": "file:///opt/drillcore/self-test/rows.jsonl",
    "dataset.columns": {"text": "text"},
    "extraction.layers": [0, 1, 2],
}
"""Eight rows with a random model of some kilobytes, both in the server's image."""


@dataclass(frozen=True)
class Team:
    """One restricted namespace with claims for models, datasets and outputs."""

    cluster: RealCluster
    namespace: str

    @cached_property
    def toolbox(self) -> Toolbox:
        """The pod that sees the claims."""
        return Toolbox(self.cluster, self.namespace)

    def prepare(self, volumes: Path) -> None:
        """Makes the claims and fills them from the folders that the quickstart uses.

        Raises:
            MissingPiece: The demo model was not made.
        """
        if not (volumes / "models" / MODEL / "config.json").exists():
            raise MissingPiece(f"no {volumes / 'models' / MODEL}: run `make demo-model`")
        for claim in CLAIMS:
            self.cluster.volumes.claim(self.namespace, claim)
        self.toolbox.start(list(CLAIMS))
        self.toolbox.send(volumes / "models" / MODEL, "models", MODEL)
        self.toolbox.send(volumes / "datasets" / "quickstart.jsonl", "datasets", "quickstart.jsonl")
        repeat = "for i in $(seq 80); do cat quickstart.jsonl; done > endless.jsonl"
        self.toolbox("sh", "-c", f"cd /mnt/datasets && {repeat}")

    def job(self, name: str, base: dict[str, Any], **changes: Any) -> JobUnderTest:
        """Creates a job; `shards__count=3` changes `shards.count`. Its output is a folder of its name by default."""
        spec = {"output.subPath": name} | base | {path.replace("__", "."): value for path, value in changes.items()}
        return JobUnderTest(self.cluster.api, self.namespace, name).create(spec)

    def pods(self, job: JobUnderTest) -> list[Object]:
        """The pods of a job, the oldest first."""
        selector = f"drillcore.dev/job={job.name}"
        pods = self.cluster.api.list("Pod", namespace=self.namespace, labelSelector=selector)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def ended_pod(self, pod: Object) -> Object:
        """The pod as it is now; waits until kubelet has called it over."""
        for now in self.watch(pod):
            if now["status"]["phase"] in ("Succeeded", "Failed"):
                return now
        raise AssertionError(f"pod {pod['metadata']['name']} is not over")

    def watch(self, pod: Object) -> Iterator[Object]:
        """The pod as it is, and again after every change, for four minutes."""
        fields = f"metadata.name={pod['metadata']['name']}"
        for event in self.cluster.api.watch("Pod", namespace=self.namespace, fieldSelector=fields, timeout_s=240):
            yield event["object"]

    def verify(self, output: str) -> str:
        """`drillcore verify` of an output, by another pod than those that wrote it."""
        return self.toolbox("drillcore", "verify", f"/mnt/states/{output}")

    def end_of(self, pod: Object, container: str = "server") -> Object:
        """How a container of a pod ended; waits until it has."""
        for now in self.watch(pod):
            for status in container_statuses(now):
                if status["name"] == container and (end := status["state"].get("terminated")):
                    ended: Object = end
                    return ended
        raise AssertionError(f"{container} of {pod['metadata']['name']} did not end")

    def running_pod(self, job: JobUnderTest, index: int = 0) -> Object:
        """The pod of a shard whose containers run, once there is one."""
        selector = f"drillcore.dev/job={job.name},batch.kubernetes.io/job-completion-index={index}"
        for event in self.cluster.api.watch("Pod", namespace=self.namespace, labelSelector=selector, timeout_s=120):
            pod: Object = event["object"]
            statuses = container_statuses(pod)
            runs = statuses and all(status["state"].get("running") for status in statuses)
            if runs and "deletionTimestamp" not in pod["metadata"] and event["type"] != "DELETED":
                return pod
        raise AssertionError(f"shard {index} of {job.name} did not run")

    def wait_for_rows(self, job: JobUnderTest, rows: int, timeout_s: float = 240.0) -> int:
        """Waits until so many rows of a job are committed on the volume; gives their number."""
        last = [0]

        def enough() -> bool:
            last[0] = self.committed_rows(job)
            return last[0] >= rows

        until(enough, f"{rows} rows of {job.name} are committed", timeout_s)
        return last[0]

    def committed_rows(self, job: JobUnderTest) -> int:
        """How many rows of a job its journals list: what stands there is never computed again."""
        return len(self._journaled(job))

    def distinct_rows(self, job: JobUnderTest) -> int:
        """The same without those that two attempts have."""
        return len(set(self._journaled(job)))

    def _journaled(self, job: JobUnderTest) -> list[int]:
        journals = self.toolbox("sh", "-c", f"cat /mnt/states/{job.name}/shards/*/journal-*.jsonl || true")
        parts = [json.loads(line) for line in journals.splitlines()]
        return [row for part in parts for first, last in part["rows"] for row in range(first, last + 1)]

    def pod_by_hand(self, name: str, spec: Object) -> Object:
        """Creates a pod of shard 0 that no Job made."""
        annotations = {"batch.kubernetes.io/job-completion-index": "0"}
        metadata = {"name": name, "namespace": self.namespace, "annotations": annotations}
        return self.cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def run_pause(self, name: str, limits: dict[str, str]) -> None:
        """Runs a pod that does nothing and needs these resources, until it is Ready; then deletes it."""
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {"name": "pause", "image": self.cluster.images.name("sidecar"), "command": ["sleep", "infinity"]}
        spec = {
            "containers": [container | {"resources": {"limits": limits}, "securityContext": security}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 0,
        }
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        place = ("--namespace", self.namespace)
        self.cluster.kubectl("wait", f"pod/{name}", *place, "--for=condition=Ready", "--timeout=55s")
        self.cluster.api.delete("Pod", name, namespace=self.namespace)


def container_statuses(pod: Object) -> list[Object]:
    """Those of sidecars first, then of containers; empty until kubelet has seen the pod."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
