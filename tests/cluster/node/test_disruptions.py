"""Pods that the cluster takes away, and what may change while a job runs: nothing is lost, doubled or charged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.node.node import Node
from drillcore_testcluster.node.real_cluster import RealCluster
from drillcore_testcluster.node.team import LONG, LONG_ROWS, Team
from drillcore_testcluster.played_node import PlayedNode
from drillcore_testcluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=:NoExecute"
IMPATIENT = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 5,
}
"""Not the default of five minutes."""
NODE_LOST_TIMEOUT_S = 150.0
"""The controller-manager calls a node unknown after 50 s."""


@pytest.fixture
def other_node(real: RealCluster) -> Iterator[PlayedNode]:
    """A node without kubelet that takes no pods: where no node is Ready, the control plane evicts nothing."""
    node = PlayedNode(real.api, "other-node")
    node.start()
    real.api.patch("Node", node.name, {"spec": {"unschedulable": True}})
    yield node
    node.stop()


@pytest.fixture
def schedulable(team: Team, own_node: Node) -> Iterator[Node]:
    """The node; whatever a test did to it is undone."""
    yield own_node
    own_node.api.patch("Node", own_node.name, {"spec": {"unschedulable": None, "taints": None}})


def test_a_drained_shard_is_redone_and_not_charged(team: Team, schedulable: Node) -> None:
    job = team.job("drained", LONG | {"shards.count": 2})
    pod = team.running_pod(job)
    rows = team.wait_for_rows(job, 1)
    # Only this job's pods: the operator and the toolbox stay where they are.
    selector = f"--pod-selector=drillcore.dev/job={job.name}"
    team.cluster.kubectl("drain", schedulable.name, selector, "--delete-emptydir-data", "--timeout=50s")
    assert team.committed_rows(job) >= rows
    condition = job.wait("Disrupted", "True", "Drained")
    assert schedulable.name in condition["message"]
    team.cluster.kubectl("uncordon", schedulable.name)
    _succeeds_whole(team, job)
    assert pod["metadata"]["name"] not in _names(team, job)


def test_a_lost_node_is_told_and_the_taint_in_the_message_frees_its_shard(
    team: Team, schedulable: Node, other_node: PlayedNode
) -> None:
    kubectl = team.cluster.kubectl
    job = team.job("node-lost", LONG | {"podTemplate.tolerations": [IMPATIENT]})
    lost = team.running_pod(job)
    team.wait_for_rows(job, 1)
    schedulable.kubelet.stop(kill=True)
    condition = job.wait("Disrupted", "True", "NodeLost", NODE_LOST_TIMEOUT_S)
    assert OUT_OF_SERVICE in condition["message"]
    kubectl("taint", "node", schedulable.name, OUT_OF_SERVICE)
    until(lambda: lost["metadata"]["name"] not in _names(team, job), "the lost pod is gone", NODE_LOST_TIMEOUT_S)
    schedulable.kubelet.start()
    until(schedulable.is_ready, "the node is Ready again")
    kubectl("taint", "node", schedulable.name, f"{OUT_OF_SERVICE}-")
    _succeeds_whole(team, job)


def test_parallelism_changes_while_running(team: Team) -> None:
    job = team.job("parallelism", LONG | {"shards.count": 2})
    team.running_pod(job)
    job.patch_spec(parallelism=2)
    team.running_pod(job, 1)
    _succeeds_whole(team, job)


def test_suspend_keeps_what_is_committed_and_resume_goes_on(team: Team) -> None:
    job = team.job("suspended", LONG)
    team.running_pod(job)
    rows = team.wait_for_rows(job, 1)
    job.patch_spec(suspend=True)
    job.wait("Suspended", "True", "Suspended")
    until(lambda: not team.pods(job), "the pod of the suspended job is gone")
    assert LONG_ROWS > team.committed_rows(job) >= rows
    job.patch_spec(suspend=False)
    _succeeds_whole(team, job)


def _succeeds_whole(team: Team, job: JobUnderTest) -> None:
    job.wait("Succeeded", "True", "Succeeded", 300)
    assert job.status().get("retries", 0) == 0
    assert f"{LONG_ROWS} rows in, {LONG_ROWS} out" in team.verify(job.name)


def _names(team: Team, job: JobUnderTest) -> list[str]:
    return [pod["metadata"]["name"] for pod in team.pods(job)]
