"""What may change while a job runs, and where its pods may run."""

from __future__ import annotations

import pytest

from drillcore_testcluster.field import Field
from drillcore_testcluster.played_node import PlayedNode
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver


def test_parallelism_follows_the_spec_while_running(schedulable: Field) -> None:
    job = schedulable.running_job("job", {"shards.count": 3})
    job.patch_spec(parallelism=3)
    schedulable.report(job, "running", 1)
    schedulable.report(job, "running", 2)
    ready = job.wait("PodsReady", "True", "Ready")
    assert ready["message"] == "3 of 3 pods are ready" or "1 of 1" in ready["message"]
    assert job.children()[0]["spec"]["parallelism"] == 3


def test_pods_are_admitted_where_restricted_is_enforced(schedulable: Field) -> None:
    labels = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    schedulable.api.patch("Namespace", schedulable.namespace, labels)
    job = schedulable.job()
    schedulable.finish(job)


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
