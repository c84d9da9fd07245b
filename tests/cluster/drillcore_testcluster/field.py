"""A namespace in which a test brings jobs into situations from the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
