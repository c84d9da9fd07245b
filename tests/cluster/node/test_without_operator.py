"""Jobs while the operator is away: they finish, can be deleted, and nothing undocumented is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drillcore_testcluster.kinds import KINDS
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.node.release import NAMESPACE, Release
from drillcore_testcluster.node.team import ENDLESS, TINY, Team
from drillcore_testcluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NUM_ROWS = 144
"""Enough that the operator is gone before the job is done."""
OF_EVERY_NAMESPACE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""What Kubernetes itself puts into a namespace."""


@pytest.fixture
def uninstalled(team: Team, release: Release) -> Iterator[Release]:
    """Whatever a test does, the operator is there again for the others."""
    yield release
    if not release.is_installed():
        release.install()


def test_a_job_finishes_without_operator_and_the_next_one_tells(team: Team, uninstalled: Release) -> None:
    rows = {"dataset.maxSamples": NUM_ROWS, "shards.count": 2, "parallelism": 2}
    job = team.job("no-operator", ENDLESS | rows)
    team.running_pod(job)
    team.wait_for_rows(job, 1)
    uninstalled.uninstall()
    (child,) = job.children()
    until(lambda: _is_complete(team, child["metadata"]["name"]), "the Job is complete", 300)
    assert job.condition("Succeeded")["status"] == "Unknown"
    uninstalled.install()
    job.wait("Succeeded", "True", "Succeeded")
    assert job.condition("OutputVerified")["status"] == "True"
    assert f"{NUM_ROWS} rows in, {NUM_ROWS} out" in team.verify(job.name)


def test_resources_are_deleted_without_operator_and_nothing_undocumented_is_left(
    team: Team, uninstalled: Release
) -> None:
    job = team.job("deleted", TINY)
    team.running_pod(job)
    uninstalled.uninstall()
    api = team.cluster.api
    job.delete()
    until(lambda: not team.pods(job) and not job.children(), "the Job and its pods are gone", 150)
    assert _inventory(api, NAMESPACE) <= OF_EVERY_NAMESPACE
    assert api.find("CustomResourceDefinition", "extractionjobs.drillcore.dev") is not None


def _is_complete(team: Team, name: str) -> bool:
    status = team.cluster.api.get("Job", name, namespace=team.namespace)["status"]
    return any(c["type"] == "Complete" and c["status"] == "True" for c in status.get("conditions", ()))


def _inventory(api: KubeApi, namespace: str) -> set[tuple[str, str]]:
    """Kind and name of everything in a namespace, events left out."""
    kinds = [kind for kind in KINDS if kind.namespaced and kind.name not in ("Event", "Workload", "Lease")]
    return {
        (kind.name, entry["metadata"]["name"]) for kind in kinds for entry in api.list(kind.name, namespace=namespace)
    }
