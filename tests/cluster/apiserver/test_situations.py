"""Situations from the field: what the status says, that it is quiet, and that the job goes on afterwards.

Scheduler, Job controller, quota, taint manager, eviction and garbage collection are real; only the kubelet is
played, from the statuses in ../pod_statuses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.names import child_name
from drillcore_spec.reasons import Reason
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.played_node import PlayedNode

pytestmark = pytest.mark.apiserver

QUIET_S = 60.0
GARBAGE_COLLECTION_S = 90.0
"""The garbage collector learns of new kinds every 30 s."""
WRITE_VERBS = {"create", "update", "patch", "delete", "deletecollection"}


@dataclass(frozen=True)
class Situation:
    """How to get a job into it, and what must be said of it then."""

    arrange: Callable[[Field, str], JobUnderTest]
    type: str
    status: str
    reason: str
    words: tuple[str, ...]


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
        _failed_once("evicted-by-kubelet", message='Usage of EmptyDir volume "ring" exceeds the limit'),
        *("Disrupted", "True", "Drained"),
        ('volume "ring" exceeds the limit', "1 pod was disrupted"),
    ),
    "drained": Situation(_drained, "Disrupted", "True", "Drained", ("EvictionByEvictionAPI", "on node played-node")),
    "foreign container": Situation(
        _foreign_container, "Progressing", "False", "Stalled", ("container istio-proxy still runs",)
    ),
}


def committed(rows: int = 64) -> str:
    counts = Counts(rows_in=rows, rows_out=rows - 1, rows_quarantined=1, tokens=10 * rows, bytes=4096)
    return TerminationMessage(code=0, reason=Reason.COMMITTED, message="", counts=counts).to_line()


def finish(field: Field, job: JobUnderTest, shards: int = 1) -> None:
    """Runs the shards to their commits."""
    for index in range(shards):
        field.report(job, "running", index)
        field.report(job, "succeeded", index, message=committed())
    job.wait("Succeeded", "True", "Succeeded")


@pytest.fixture
def schedulable(field: Field) -> Iterator[Field]:
    """The field with the claims of the smallest job; whatever a test did to the node is undone."""
    field.claims()
    yield field
    field.kubelet.is_frozen = False
    field.api.patch("Node", field.kubelet.node, {"spec": {"unschedulable": None, "taints": None}})


@pytest.mark.parametrize("name", SITUATIONS)
def test_status_and_an_event_tell_the_situation(schedulable: Field, name: str) -> None:
    situation = SITUATIONS[name]
    job = situation.arrange(schedulable, "job")
    condition = job.wait(situation.type, situation.status, situation.reason)
    missing = [words for words in situation.words if words not in condition["message"]]
    assert not missing, condition["message"]
    assert situation.reason in {event["reason"] for event in job.events()}


def test_job_runs_to_success_with_counts_and_verified_output(schedulable: Field) -> None:
    job = schedulable.job("job", {"shards.count": 2, "parallelism": 2, "output.subPath": "run"})
    finish(schedulable, job, shards=2)
    status = job.status()
    assert job.condition("OutputVerified")["reason"] == "Verified"
    assert status["phase"] == "Succeeded"
    assert status["shards"] == {"total": 2, "active": 0, "succeeded": 2, "failed": 0, "summary": "2/2"}
    progress = {key: status["progress"][key] for key in ("rowsDone", "rowsTotal", "rowsQuarantined", "percentage")}
    assert progress == {"rowsDone": 128, "rowsTotal": 128, "rowsQuarantined": 2, "percentage": 100}
    assert status["output"] == {"uri": "pvc://states/run", "bytes": 8192}
    assert job.condition("Succeeded")["message"] == "126 rows are written, 2 quarantined"


def test_exit_code_zero_without_a_message_verifies_by_exit_code(schedulable: Field) -> None:
    job = schedulable.running_job()
    schedulable.report(job, "succeeded")
    job.wait("Succeeded", "True", "Succeeded")
    assert job.condition("OutputVerified")["reason"] == "VerifiedByExitCode"


def test_image_pull_error_ends_at_the_start_deadline_and_frees_the_gpu(schedulable: Field) -> None:
    job = schedulable.job("job", {"startDeadlineSeconds": 8})
    schedulable.report(job, "image-pull-backoff", reason="ErrImagePull")
    told = job.wait("PodsReady", "False", "ImagePullError")
    ended = job.wait("Succeeded", "False", "StartDeadlineExceeded")
    assert told["message"] in ended["message"]
    assert job.status()["phase"] == "Failed"
    until(lambda: not job.children(), "the Job is deleted")
    again = schedulable.job("again", {"output.subPath": "same"})
    finish(schedulable, again)


def test_alternating_kubelet_words_do_not_rewrite_the_status(schedulable: Field) -> None:
    job = schedulable.job()
    pod = schedulable.report(job, "image-pull-backoff", reason="ErrImagePull")
    job.wait("PodsReady", "False", "ImagePullError")
    version = job.resource()["metadata"]["resourceVersion"]
    schedulable.kubelet.report(pod, "image-pull-backoff", reason="ImagePullBackOff")
    job.patch_spec(parallelism=1)
    time.sleep(12)  # two polls of the operator: there is no event for "nothing was written"
    assert job.resource()["metadata"]["resourceVersion"] == version


def test_raised_quota_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["quota"].arrange(schedulable, "job")
    job.wait("PodsReady", "False", "QuotaExceeded")
    set_gpu_quota(schedulable, "4")
    finish(schedulable, job)


def test_created_claim_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["no claim"].arrange(schedulable, "job")
    job.wait("PodsReady", "False", "PVCNotFound")
    assert job.children() == []
    schedulable.claims(["missing-job"])
    finish(schedulable, job)
    assert job.condition("OutputReady")["reason"] == "Bound"


def test_new_priority_class_lets_the_job_go_on(schedulable: Field) -> None:
    name = f"class-{uuid4().hex[:6]}"
    job = schedulable.job("job", {"podTemplate.priorityClassName": name})
    job.wait("PodsReady", "False", "AdmissionRejected")
    schedulable.api.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1}
    )
    finish(schedulable, job)


def test_invalid_template_is_final_and_creates_nothing(schedulable: Field) -> None:
    job = SITUATIONS["toleration"].arrange(schedulable, "job")
    ended = job.wait("Succeeded", "False", "InvalidPodTemplate")
    assert "tolerations" in ended["message"]
    assert job.children() == []


def test_drained_shard_runs_again_and_nobody_is_charged(schedulable: Field) -> None:
    job = schedulable.job("job", {"shards.count": 2, "parallelism": 2})
    schedulable.report(job, "running", 0)
    schedulable.report(job, "running", 1)
    schedulable.report(job, "succeeded", 1, message=committed())
    first = schedulable.pod(job, 0)
    schedulable.api.evict(first)
    job.wait("Disrupted", "True", "Drained")
    second = schedulable.pod(job, 0)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    schedulable.kubelet.report(second, "running")
    job.wait("Disrupted", "False", "NotDisrupted")
    schedulable.kubelet.report(second, "succeeded", message=committed())
    job.wait("Succeeded", "True", "Succeeded")
    status = job.status()
    assert status["retries"] == 0
    assert status["disruptions"]["count"] == 1
    assert status["progress"]["rowsDone"] == 128


def test_pod_of_a_lost_node_stays_and_no_second_one_starts(schedulable: Field) -> None:
    job = schedulable.running_job()
    pod = schedulable.pod(job)
    schedulable.kubelet.is_frozen = True
    gone = {"key": "test/gone", "effect": "NoExecute"}
    schedulable.api.patch("Node", schedulable.kubelet.node, {"spec": {"taints": [gone]}})
    told = job.wait("Disrupted", "True", "NodeLost")
    assert "node.kubernetes.io/out-of-service" in told["message"]
    assert pod["metadata"]["name"] in told["message"]
    pods = schedulable.api.list("Pod", namespace=schedulable.namespace)
    assert [p["metadata"]["name"] for p in pods] == [pod["metadata"]["name"]]
    schedulable.api.patch("Node", schedulable.kubelet.node, {"spec": {"taints": None}})
    schedulable.kubelet.is_frozen = False
    schedulable.kubelet.release(pod)
    finish(schedulable, job)


def test_suspended_is_said_only_when_no_pod_is_left(schedulable: Field) -> None:
    job = schedulable.running_job()
    schedulable.kubelet.is_frozen = True
    pod = schedulable.pod(job)
    job.patch_spec(suspend=True)
    told = job.wait("Suspended", "False", "Suspending")
    assert f"{pod['metadata']['name']} on node {schedulable.kubelet.node}" in told["message"]
    schedulable.kubelet.is_frozen = False
    schedulable.kubelet.release(pod)
    job.wait("Suspended", "True", "Suspended")
    assert job.status()["phase"] == "Suspended"
    job.patch_spec(suspend=False)
    finish(schedulable, job)


def test_parallelism_follows_the_spec_while_running(schedulable: Field) -> None:
    job = schedulable.running_job("job", {"shards.count": 3})
    job.patch_spec(parallelism=3)
    schedulable.report(job, "running", 1)
    schedulable.report(job, "running", 2)
    ready = job.wait("PodsReady", "True", "Ready")
    assert ready["message"] == "3 of 3 pods are ready" or "1 of 1" in ready["message"]
    assert job.children()[0]["spec"]["parallelism"] == 3


def test_shard_that_is_out_of_memory_again_and_again_fails_the_job(schedulable: Field) -> None:
    changes = {"failurePolicy.backoffLimitPerShard": 1, "shards.count": 2, "parallelism": 2}
    job = schedulable.job("job", changes)
    schedulable.report(job, "running", 1)
    schedulable.report(job, "succeeded", 1, message=committed())
    schedulable.report(job, "server-oom-killed")
    job.wait("PodsReady", "False", "OutOfMemory")
    schedulable.report(job, "server-oom-killed")
    ended = job.wait("Succeeded", "False", "ShardsFailed")
    assert "shards 0 failed: OutOfMemory" in ended["message"]
    status = job.status()
    assert status["shards"]["failedIndexes"] == "0"
    assert status["retries"] == 1
    assert job.condition("OutputVerified")["reason"] == "NotVerified"
    again = schedulable.job("again", {"server.resources.memory": "64Gi"})
    finish(schedulable, again)


def test_exit_code_that_no_retry_can_help_fails_the_job_with_the_servers_words(schedulable: Field) -> None:
    job = schedulable.job("job", {"shards.count": 4, "parallelism": 2})
    words = "dataset.uri: no file matches /volumes/datasets/*.jsonl"
    message = TerminationMessage(code=65, reason=Reason.DATASET_NOT_FOUND, message=words).to_line()
    schedulable.report(job, "server-exit", exit_code=65, message=message)
    ended = job.wait("Succeeded", "False", "DatasetNotFound")
    assert words in ended["message"]
    assert "in a new ExtractionJob with the same output" in ended["message"]


def test_full_volume_is_retried_without_charge_until_the_deadline(schedulable: Field) -> None:
    job = schedulable.running_job("job", {"activeDeadlineSeconds": 16, "failurePolicy.backoffLimitPerShard": 0})
    full = TerminationMessage(code=74, reason=Reason.OUTPUT_VOLUME_FULL, message="no space").to_line()
    schedulable.report(job, "server-exit", exit_code=74, message=full)
    job.wait("OutputReady", "False", "OutputVolumeFull")
    schedulable.report(job, "server-exit", exit_code=74, message=full)
    ended = job.wait("Succeeded", "False", "DeadlineExceeded", timeout_s=60)
    assert "activeDeadlineSeconds (16)" in ended["message"]
    assert job.status()["retries"] == 0


def test_room_on_the_volume_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["volume full"].arrange(schedulable, "job")
    job.wait("OutputReady", "False", "OutputVolumeFull")
    finish(schedulable, job)
    assert job.condition("OutputReady")["status"] == "True"


def test_ended_foreign_container_lets_the_shard_complete(schedulable: Field) -> None:
    job = SITUATIONS["foreign container"].arrange(schedulable, "job")
    job.wait("Progressing", "False", "Stalled")
    schedulable.report(job, "succeeded", message=committed())
    job.wait("Succeeded", "True", "Succeeded")


def test_pods_are_admitted_where_restricted_is_enforced(schedulable: Field) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    schedulable.api.patch("Namespace", schedulable.namespace, labels)
    job = schedulable.job()
    finish(schedulable, job)


def test_job_of_somebody_else_under_our_name_is_left_alone(schedulable: Field) -> None:
    """Made before the operator sees the job, which waits for its claim until then."""
    job = SITUATIONS["no claim"].arrange(schedulable, "job")
    job.wait("PodsReady", "False", "PVCNotFound")
    child = child_name("job", job.resource()["metadata"]["uid"])
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": child, "namespace": schedulable.namespace},
        "spec": {"suspend": True, "template": template},
    }
    schedulable.api.create(foreign)
    schedulable.claims(["missing-job"])
    told = job.wait("Accepted", "False", "NameConflict")
    assert child in told["message"]
    schedulable.api.delete("Job", child, namespace=schedulable.namespace, propagationPolicy="Background")
    job.wait("Accepted", "True", "Accepted")
    finish(schedulable, job)


def test_the_same_told_again_counts_up_one_event(schedulable: Field) -> None:
    job = schedulable.running_job()
    for suspend in (True, False, True):
        job.patch_spec(suspend=suspend)
        job.wait("Suspended", *(("True", "Suspended") if suspend else ("False", "NotSuspended")))
    (told,) = [event for event in job.events() if event["reason"] == "Suspended"]
    until(lambda: job.events() and _count(job, "Suspended") == 2, "the event is counted up")
    assert told["type"] == "Normal"


def _count(job: JobUnderTest, reason: str) -> int:
    (told,) = [event for event in job.events() if event["reason"] == reason]
    return int(told["count"])


def test_shards_of_a_volume_for_one_node_run_on_one_node(schedulable: Field) -> None:
    second = PlayedNode(schedulable.api, "second-node")
    second.start()
    try:
        schedulable.claims(["single-node"], ["ReadWriteOnce"])
        changes = {"output.claimName": "single-node", "shards.count": 4, "parallelism": 4}
        schedulable.job("job", changes)
        until(lambda: len(_nodes(schedulable)) == 4, "four pods are scheduled")
        assert len(set(_nodes(schedulable))) == 1
    finally:
        second.stop()


def _nodes(field: Field) -> list[str]:
    pods = field.api.list("Pod", namespace=field.namespace)
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def test_ttl_removes_the_job_and_its_child(schedulable: Field) -> None:
    job = schedulable.job("job", {"ttlSecondsAfterFinished": 2})
    finish(schedulable, job)
    until(lambda: schedulable.api.find("ExtractionJob", "job", namespace=schedulable.namespace) is None, "it goes")
    until(lambda: not job.children(), "the child follows", GARBAGE_COLLECTION_S)


def test_operator_is_quiet_in_every_situation(
    schedulable: Field, own_control_plane: ControlPlane, api: KubeApi
) -> None:
    """All situations at once; the writes of a whole minute are counted in the audit log."""
    for number, name in enumerate(n for n in SITUATIONS if n not in ("quota", "drained")):
        situation = SITUATIONS[name]
        job = situation.arrange(schedulable, f"job-{number}")
        job.wait(situation.type, situation.status, situation.reason)
    time.sleep(15)  # the Job controller's own first back-off is over
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    time.sleep(QUIET_S)
    writes = [entry for entry in operator_writes(own_control_plane, schedulable.namespace) if entry[0] > start]
    assert len(writes) <= 4, writes
    counts = [event.get("count", 1) for event in api.list("Event", namespace=schedulable.namespace)]
    assert max(counts) < 50


def operator_writes(control_plane: ControlPlane, namespace: str) -> list[tuple[str, str, str]]:
    entries = map(json.loads, control_plane.audit_log.read_text().splitlines())
    return [
        (entry["requestReceivedTimestamp"], entry["verb"], entry["requestURI"])
        for entry in entries
        if entry["user"]["username"] == "drillcore-test-operator"
        and entry["verb"] in WRITE_VERBS
        and entry.get("objectRef", {}).get("namespace") == namespace
    ]


def until(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Waits for something of which no watch of one object tells."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.2)
