"""What can be wrong in the field, on a real node: the condition tells soon, and the way on works.

Some causes can be removed under the job, which then goes on; others end it, and a new job with the same output
goes on from the committed rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.node.node import GPU, Node
from drillcore_testcluster.node.recorded import assert_as_played
from drillcore_testcluster.node.team import ENDLESS, QUICKSTART, TINY, Team
from drillcore_testcluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TOLD_WITHIN_S = 15.0
START_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Curable:
    """A cause that can be removed while the job waits."""

    changes: dict[str, Any]
    type: str
    reason: str
    words: str
    cure: Callable[[Team], object]
    since: Callable[[Team, JobUnderTest], str]
    """When the cluster or a container showed it."""
    played: str = ""
    """File of the pod's status; empty: there is no pod."""


def _make_secret(team: Team) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "hf_x"}}
    team.cluster.api.create(body | {"metadata": {"name": "late-token", "namespace": team.namespace}})


def _copy_model(team: Team) -> None:
    team.toolbox("cp", "-r", "/opt/drillcore/self-test/model", "/mnt/models/late")


def _creation(team: Team, job: JobUnderTest) -> str:
    return str(job.resource()["metadata"]["creationTimestamp"])


def _first_end(team: Team, job: JobUnderTest) -> str:
    return str(team.end_of(team.pods(job)[0])["finishedAt"])


def _first_failure(team: Team, job: JobUnderTest) -> str:
    """Of kubelet to start a container; a probe that has to wait warns too, with another reason."""
    name = team.pods(job)[0]["metadata"]["name"]
    selector = f"involvedObject.name={name},reason=Failed"
    events = team.cluster.api.list("Event", namespace=team.namespace, fieldSelector=selector)
    return str(min(event["firstTimestamp"] for event in events))


CURABLE: dict[str, Curable] = {
    "missing claim": Curable(
        {"output.claimName": "late-claim"},
        *("OutputReady", "PVCNotFound", "late-claim"),
        lambda team: team.cluster.volumes.claim(team.namespace, "late-claim"),
        _creation,
    ),
    "missing model": Curable(
        {"model.uri": "pvc://models/late"},
        *("PodsReady", "ModelUnavailable", "pvc://models/late"),
        _copy_model,
        _first_end,
    ),
    "missing secret": Curable(
        {"model.secretName": "late-token"},
        *("PodsReady", "SecretNotFound", 'secret "late-token" not found'),
        _make_secret,
        _first_failure,
        "secret-not-found",
    ),
}


@pytest.mark.parametrize("name", CURABLE)
def test_the_job_goes_on_once_the_cause_is_gone(team: Team, name: str) -> None:
    case = CURABLE[name]
    job = team.job(name.replace(" ", "-"), TINY | case.changes)
    condition = job.wait(case.type, "False", case.reason, START_TIMEOUT_S)
    assert _seconds_since(case.since(team, job)) < TOLD_WITHIN_S
    assert case.words in condition["message"]
    if case.played:
        assert_as_played(team.pods(job)[0], case.played)
    case.cure(team)
    job.wait("Succeeded", "True", "Succeeded", 180)


def test_a_claim_without_volume_is_told_and_the_job_goes_on_once_it_is_bound(team: Team, own_node: Node) -> None:
    team.cluster.volumes.unbound_claim(team.namespace, "unbound")
    job = team.job("unbound-claim", TINY, output__claimName="unbound")
    job.wait("OutputReady", "False", "PVCPending", START_TIMEOUT_S)
    assert _seconds_since(_creation(team, job)) < TOLD_WITHIN_S
    team.cluster.volumes.provide("late-volume", "2Gi", (team.namespace, "unbound"))
    job.wait("Succeeded", "True", "Succeeded", 180)


def test_a_full_volume_is_told_and_the_job_goes_on_once_there_is_room(team: Team, own_node: Node) -> None:
    volumes = team.cluster.volumes
    volumes.claim(team.namespace, "small", memory="12m")
    changes = {"output.claimName": "small", "output.partSize": "4Mi", "output.commitIntervalSeconds": 2}
    job = team.job("volume-full", QUICKSTART | changes)
    job.wait("OutputReady", "False", "OutputVolumeFull", 240)
    (pod, *_) = team.pods(job)
    assert team.end_of(pod)["exitCode"] == 74
    assert _seconds_since(team.end_of(pod)["finishedAt"]) < TOLD_WITHIN_S
    volumes.remount(team.namespace, "small", "200m")
    job.wait("Succeeded", "True", "Succeeded", 300)
    assert job.status().get("retries", 0) == 0


@dataclass(frozen=True)
class Final:
    """A cause that ends the job."""

    changes: dict[str, Any]
    reason: str
    """Of Succeeded."""
    words: str
    exit_code: int


FINAL: dict[str, Final] = {
    "model-broken": Final({"model.uri": "pvc://models/broken"}, "ModelBroken", "broken", 78),
    "dataset-missing": Final({"dataset.uri": "pvc://datasets/none.jsonl"}, "DatasetNotFound", "none.jsonl", 65),
}


@pytest.mark.parametrize("name", FINAL)
def test_the_end_is_told_and_a_new_job_with_the_same_output_succeeds(team: Team, name: str) -> None:
    case = FINAL[name]
    team.toolbox("sh", "-c", "mkdir -p /mnt/models/broken && echo '{' > /mnt/models/broken/config.json")
    job = team.job(name, TINY | case.changes)
    condition = job.wait("Succeeded", "False", case.reason, START_TIMEOUT_S)
    assert case.words in condition["message"]
    (pod,) = team.pods(job)
    end = team.end_of(pod)
    assert _seconds_since(end["finishedAt"]) < TOLD_WITHIN_S
    assert end["exitCode"] == case.exit_code
    assert_as_played(team.ended_pod(pod), "server-exit", exit_code=case.exit_code)
    _goes_on(team, name, TINY)


def test_out_of_memory_names_container_limit_and_ring(team: Team) -> None:
    small = {"server.resources": {"gpus": 0, "cpu": "100m", "memory": "160Mi"}}
    job = team.job("out-of-memory", TINY | small, failurePolicy__backoffLimitPerShard=0)
    condition = job.wait("Succeeded", "False", "ShardsFailed", START_TIMEOUT_S)
    assert "OutOfMemory" in condition["message"]
    (pod,) = team.pods(job)
    end = team.end_of(pod)
    assert _seconds_since(end["finishedAt"]) < TOLD_WITHIN_S
    assert end["reason"] == "OOMKilled"
    assert_as_played(team.ended_pod(pod), "server-oom-killed")
    missing = [word for word in ("container server", "160Mi", "64Mi") if word not in condition["message"]]
    assert not missing, condition["message"]
    _goes_on(team, "out-of-memory", TINY)


def test_a_deadline_ends_the_job_and_the_next_one_goes_on_from_the_committed_rows(team: Team) -> None:
    job = team.job("deadline", ENDLESS, activeDeadlineSeconds=60)
    job.wait("Succeeded", "False", "DeadlineExceeded", 120)
    (child,) = job.children()
    (over,) = [c for c in child["status"]["conditions"] if c["type"] == "Failed"]
    assert _seconds_since(over["lastTransitionTime"]) < TOLD_WITHIN_S
    rows = team.committed_rows(job)
    assert rows > 0
    again = team.job("deadline-again", ENDLESS | {"output.subPath": "deadline"})
    team.wait_for_rows(job, rows + 1)
    again.delete()
    until(lambda: not team.pods(again), "the pods of the next job are gone", 150)
    assert team.committed_rows(job) == team.distinct_rows(job)


def test_a_wrong_image_is_told_and_its_gpu_is_given_back_at_the_deadline(team: Team, own_node: Node) -> None:
    own_node.set_gpus(1)
    resources = {"gpus": 1, "cpu": "100m", "memory": "1Gi"}
    changes = {"server.image": "registry.invalid/x:1", "server.resources": resources, "startDeadlineSeconds": 20}
    job = team.job("wrong-image", TINY | changes)
    condition = job.wait("PodsReady", "False", "ImagePullError", 60)
    assert _seconds_since(_first_failure(team, job)) < TOLD_WITHIN_S
    assert "registry.invalid/x:1" in condition["message"]
    assert len(team.pods(job)) == 1
    job.wait("Succeeded", "False", "StartDeadlineExceeded", 90)
    team.run_pause("next-user-of-the-gpu", limits={GPU: "1"})
    _goes_on(team, "wrong-image", TINY)


def _goes_on(team: Team, output: str, base: dict[str, Any]) -> None:
    """A new job with the same output succeeds."""
    again = team.job(f"{output}-again", base | {"output.subPath": output})
    again.wait("Succeeded", "True", "Succeeded", 180)
    assert "0 quarantined" in team.verify(output)


def _seconds_since(timestamp: str) -> float:
    """Asked as soon as the condition was seen: its own time stays when only the reason changes."""
    return (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()
