"""Once the cause of a situation from the field is gone, the job goes on by itself."""

from __future__ import annotations

from uuid import uuid4

import pytest

from drillcore_spec.names import child_name
from drillcore_testcluster.field import Field, committed
from drillcore_testcluster.situations import SITUATIONS, set_gpu_quota

pytestmark = pytest.mark.apiserver


def test_raised_quota_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["quota"].arrange(schedulable, "job")
    job.wait("PodsReady", "False", "QuotaExceeded")
    set_gpu_quota(schedulable, "4")
    schedulable.finish(job)


def test_created_claim_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["no claim"].arrange(schedulable, "job")
    job.wait("PodsReady", "False", "PVCNotFound")
    assert job.children() == []
    schedulable.claims(["missing-job"])
    schedulable.finish(job)
    assert job.condition("OutputReady")["reason"] == "Bound"


def test_new_priority_class_lets_the_job_go_on(schedulable: Field) -> None:
    name = f"class-{uuid4().hex[:6]}"
    job = schedulable.job("job", {"podTemplate.priorityClassName": name})
    job.wait("PodsReady", "False", "AdmissionRejected")
    schedulable.api.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1}
    )
    schedulable.finish(job)


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
    schedulable.finish(job)


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
    schedulable.finish(job)


def test_room_on_the_volume_lets_the_job_go_on(schedulable: Field) -> None:
    job = SITUATIONS["volume full"].arrange(schedulable, "job")
    job.wait("OutputReady", "False", "OutputVolumeFull")
    schedulable.finish(job)
    assert job.condition("OutputReady")["status"] == "True"


def test_ended_foreign_container_lets_the_shard_complete(schedulable: Field) -> None:
    job = SITUATIONS["foreign container"].arrange(schedulable, "job")
    job.wait("Progressing", "False", "Stalled")
    schedulable.report(job, "succeeded", message=committed())
    job.wait("Succeeded", "True", "Succeeded")


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
    schedulable.finish(job)
