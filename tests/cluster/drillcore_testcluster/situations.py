"""Situations from the field: how a job gets into one, and what must be said of it then.

Scheduler, Job controller, quota, taint manager, eviction and garbage collection are real; only the kubelet is
played, from the statuses in ../pod_statuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest


@dataclass(frozen=True)
class Situation:
    """One situation of the smallest job."""

    arrange: Callable[[Field, str], JobUnderTest]
    """Creates a job of this name and brings it there."""
    type: str
    """Type of the condition that tells; its status and reason follow."""
    status: str
    reason: str
    words: tuple[str, ...]
    """What the condition's message holds."""


def _reported(situation: str, **values: str | int) -> Callable[[Field, str], JobUnderTest]:
    """The pod of the smallest job reports something before it was ever ready."""

    def arrange(field: Field, name: str) -> JobUnderTest:
        job = field.job(name)
        field.report(job, situation, **values)
        return job

    return arrange


def _failed_once(situation: str, **values: str | int) -> Callable[[Field, str], JobUnderTest]:
    """The first pod ran and failed; the Job controller's next one waits for its back-off."""

    def arrange(field: Field, name: str) -> JobUnderTest:
        job = field.running_job(name)
        field.report(job, situation, **values)
        return job

    return arrange


def _quota(field: Field, name: str) -> JobUnderTest:
    set_gpu_quota(field, "0")
    return field.job(name)


def _unschedulable(field: Field, name: str) -> JobUnderTest:
    return field.job(name, {"server.resources.gpus": 64})


def _unknown_priority_class(field: Field, name: str) -> JobUnderTest:
    return field.job(name, {"podTemplate.priorityClassName": "no-such-class"})


def _invalid_toleration(field: Field, name: str) -> JobUnderTest:
    toleration = {"operator": "Exists", "key": "gpu", "value": "x"}
    return field.job(name, {"podTemplate.tolerations": [toleration]})


def _no_claim(field: Field, name: str) -> JobUnderTest:
    return field.job(name, {"output.claimName": f"missing-{name}"})


def _single_pod_claim(field: Field, name: str) -> JobUnderTest:
    claim = f"single-{uuid4().hex[:4]}"
    field.claims([claim], ["ReadWriteOncePod"])
    return field.job(name, {"output.claimName": claim, "shards.count": 2, "parallelism": 2})


def _attach_failure(field: Field, name: str) -> JobUnderTest:
    job = field.job(name)
    pod = field.report(job, "container-creating")
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": field.namespace}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod['metadata']['name']}.1", "namespace": field.namespace},
        "involvedObject": about,
        "reason": "FailedAttachVolume",
        "message": 'Multi-Attach error for volume "pv": Volume is already used by pod(s) other',
        "type": "Warning",
        "lastTimestamp": now,
    }
    field.api.create(event)
    return job


def _drained(field: Field, name: str) -> JobUnderTest:
    """Evicted, and no node takes the replacement."""
    job = field.running_job(name)
    pod = field.pod(job)
    field.api.patch("Node", field.kubelet.node, {"spec": {"unschedulable": True}})
    field.api.evict(pod)
    return job


def _foreign_container(field: Field, name: str) -> JobUnderTest:
    job = field.running_job(name)
    field.kubelet.report(field.pod(job), "foreign-container-running", age_s=120)
    return job


def set_gpu_quota(field: Field, gpus: str) -> None:
    """Allows so many GPUs in the namespace."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": field.namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": gpus}},
    }
    field.api.apply(quota, manager="test", force=True)


SITUATIONS: dict[str, Situation] = {
    "image pull": Situation(
        _reported("image-pull-backoff", reason="ImagePullBackOff"),
        *("PodsReady", "False", "ImagePullError"),
        ("container sidecar", "registry.invalid/sidecar:test", "failed to resolve reference"),
    ),
    "quota": Situation(_quota, "PodsReady", "False", "QuotaExceeded", ("exceeded quota: gpus",)),
    "unschedulable": Situation(_unschedulable, "PodsReady", "False", "Unschedulable", ("Insufficient nvidia.com/gpu",)),
    "secret": Situation(
        _reported("secret-not-found"), "PodsReady", "False", "SecretNotFound", ('secret "hf-token" not found',)
    ),
    "attach": Situation(
        _attach_failure, "PodsReady", "False", "VolumeMountFailed", ("Multi-Attach error", "FailedAttachVolume")
    ),
    "no claim": Situation(_no_claim, "OutputReady", "False", "PVCNotFound", ("create it, and the job goes on",)),
    "single pod claim": Situation(
        _single_pod_claim, "OutputReady", "False", "AccessMode", ("ReadWriteOncePod and parallelism is 2",)
    ),
    "priority class": Situation(
        _unknown_priority_class, "PodsReady", "False", "AdmissionRejected", ("no PriorityClass with name",)
    ),
    "toleration": Situation(
        _invalid_toleration, "Accepted", "False", "InvalidPodTemplate", ("spec.template.spec.tolerations[0]",)
    ),
    "out of memory": Situation(
        _failed_once("server-oom-killed"),
        *("PodsReady", "False", "OutOfMemory"),
        ("container server", "its limit 32Gi", "ring may take 4Gi", "raise server.resources.memory"),
    ),
    "child out of memory": Situation(
        _failed_once("server-child-oom-killed"), "PodsReady", "False", "OutOfMemory", ("container server",)
    ),
    "sidecar out of memory": Situation(
        _failed_once("sidecar-oom-killed"), "PodsReady", "False", "OutOfMemory", ("container sidecar", "limit 1Gi")
    ),
    "bus error": Situation(
        _failed_once("server-exit", exit_code=135), "PodsReady", "False", "ShmTooSmall", ("lower ring.size",)
    ),
    "volume full": Situation(
        _failed_once("server-exit", exit_code=74, message="No space left on device"),
        *("OutputReady", "False", "OutputVolumeFull"),
        ("No space left on device", "make room on the volume"),
    ),
    "evicted": Situation(
        _failed_once("evicted-by-kubelet", message="The node was low on resource: memory."),
        *("Disrupted", "True", "Drained"),
        ("low on resource: memory", "1 pod was disrupted"),
    ),
    "evicted for what it wrote": Situation(
        _failed_once("evicted-for-what-it-wrote", message='Usage of EmptyDir volume "ring" exceeds the limit'),
        *("PodsReady", "False", "Terminated"),
        ("kubelet evicted it", 'volume "ring" exceeds the limit'),
    ),
    "drained": Situation(_drained, "Disrupted", "True", "Drained", ("EvictionByEvictionAPI", "on node played-node")),
    "foreign container": Situation(
        _foreign_container, "Progressing", "False", "Stalled", ("container istio-proxy still runs",)
    ),
}
