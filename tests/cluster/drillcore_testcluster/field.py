"""A namespace in which a test brings jobs into situations from the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_testcluster.claims import MANY, bound_claim, wait_until_bound
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.played_kubelet import PlayedKubelet


@dataclass(frozen=True)
class Field:
    """One namespace, the API as administrator, and the node whose kubelet is played."""

    api: KubeApi
    kubelet: PlayedKubelet
    namespace: str

    def claims(self, names: Sequence[str] = ("models", "datasets", "states"), modes: Sequence[str] = MANY) -> None:
        """Makes bound claims, those of the smallest job unless told otherwise."""
        for name in names:
            bound_claim(self.api, self.namespace, name, modes)
        wait_until_bound(self.api, self.namespace)

    def job(self, name: str = "job", changes: dict[str, Any] | None = None) -> JobUnderTest:
        """Creates a job."""
        return JobUnderTest(self.api, self.namespace, name).create(changes)

    def pod(self, job: JobUnderTest, index: int = 0) -> Object:
        """The pod of a shard, once it is scheduled."""
        return self.kubelet.pod_of(self.namespace, job.name, index)

    def running_job(self, name: str = "job", changes: dict[str, Any] | None = None) -> JobUnderTest:
        """A job whose first shard runs."""
        job = self.job(name, changes)
        self.kubelet.report(self.pod(job), "running")
        job.wait("PodsReady", "True", "Ready")
        return job

    def report(self, job: JobUnderTest, situation: str, index: int = 0, **values: str | int) -> Object:
        """Reports a situation of a shard's pod, and gives the pod."""
        pod = self.pod(job, index)
        self.kubelet.report(pod, situation, **values)
        return pod

    def finish(self, job: JobUnderTest, shards: int = 1) -> None:
        """Runs the shards to their commits, and waits for the job's success."""
        for index in range(shards):
            self.report(job, "running", index)
            self.report(job, "succeeded", index, message=committed())
        job.wait("Succeeded", "True", "Succeeded")


def committed(rows: int = 64) -> str:
    """What a server says at its end; one of the rows is quarantined."""
    counts = Counts(rows_in=rows, rows_out=rows - 1, rows_quarantined=1, tokens=10 * rows, bytes=4096)
    return TerminationMessage(code=0, reason=Reason.COMMITTED, message="", counts=counts).to_line()
