"""The two containers of a shard's pod under a real kubelet: who starts first, who ends how, and what becomes of it."""

from __future__ import annotations

from datetime import datetime

import pytest

from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.node import Node
from drillcore_testcluster.node.pod_processes import process_of
from drillcore_testcluster.node.recorded import assert_as_played
from drillcore_testcluster.node.team import LONG, LONG_ROWS, TINY, Team, container_statuses

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_the_sidecar_starts_first_and_lives_until_the_commit(team: Team) -> None:
    job = team.job("order", TINY)
    job.wait("Succeeded", "True", "Succeeded", 180)
    (pod,) = team.pods(job)
    sidecar, server = _ends(pod)
    assert _first_start(pod, sidecar) <= server["startedAt"]
    # Having committed it ends by itself, while the server still checks the commit: a second before it at most.
    assert _seconds(server["finishedAt"]) - _seconds(sidecar["finishedAt"]) <= 2
    assert server["exitCode"] == 0
    assert "1 of 1 shards committed" in team.verify(job.name)
    assert_as_played(pod, "succeeded")


def test_a_server_that_is_told_to_end_commits_nothing_as_done_and_is_run_again(team: Team) -> None:
    job = team.job("sigterm", LONG)
    pod = team.running_pod(job)
    assert_as_played(pod, "running")
    team.wait_for_rows(job, 1)
    team.cluster.api.delete("Pod", pod["metadata"]["name"], namespace=team.namespace)
    assert team.end_of(pod)["exitCode"] == 143
    job.wait("Succeeded", "True", "Succeeded", 300)
    assert f"{LONG_ROWS} rows in, {LONG_ROWS} out" in team.verify(job.name)


def test_a_sidecar_killed_in_the_middle_is_restarted_beside_the_same_server(team: Team, own_node: Node) -> None:
    job = team.job("sidecar-killed", LONG)
    pod = team.running_pod(job)
    team.wait_for_rows(job, 1)
    process_of(pod, "sidecar").kill()
    job.wait("Succeeded", "True", "Succeeded", 300)
    (only,) = team.pods(job)
    assert only["metadata"]["uid"] == pod["metadata"]["uid"]
    assert only["status"]["initContainerStatuses"][0]["restartCount"] == 1
    assert f"{LONG_ROWS} rows in, {LONG_ROWS} out" in team.verify(job.name)


def test_a_server_killed_in_the_middle_is_replaced_by_a_new_pod(team: Team, own_node: Node) -> None:
    job = team.job("server-killed", LONG)
    pod = team.running_pod(job)
    rows = team.wait_for_rows(job, 1)
    process_of(pod, "server").kill()
    assert team.end_of(pod)["exitCode"] == 137
    assert team.committed_rows(job) >= rows
    job.wait("Succeeded", "True", "Succeeded", 300)
    assert job.status()["retries"] == 1
    assert f"{LONG_ROWS} rows in, {LONG_ROWS} out" in team.verify(job.name)


def _ends(pod: Object) -> tuple[Object, Object]:
    sidecar, server = (entry["state"]["terminated"] for entry in container_statuses(pod))
    return sidecar, server


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _first_start(pod: Object, sidecar: Object) -> str:
    """When the sidecar started: kubelet may start it once more before it sees the server's end."""
    restarts = pod["status"]["initContainerStatuses"][0]["restartCount"]
    return str(sidecar["startedAt"] if restarts == 0 else pod["status"]["startTime"])
