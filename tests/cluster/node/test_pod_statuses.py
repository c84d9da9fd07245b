"""Statuses that the API-server suite plays and that no job of the other tests gets into, from pods by hand."""

from __future__ import annotations

from copy import deepcopy

import pytest

from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.recorded import assert_as_played
from drillcore_testcluster.node.team import Team

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_an_image_of_the_sidecar_that_cannot_be_pulled(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    spec["initContainers"][0]["image"] = "registry.invalid/sidecar:test"
    pod = team.pod_by_hand("image-pull", spec)
    fields = f"metadata.name={pod['metadata']['name']}"
    events = team.cluster.api.watch("Pod", namespace=team.namespace, fieldSelector=fields, timeout_s=120)
    backs_off = (event["object"] for event in events if _waiting(event["object"]) == "ImagePullBackOff")
    assert_as_played(next(backs_off), "image-pull-backoff", reason="ImagePullBackOff")


def test_a_server_whose_child_was_killed_for_memory(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    (server,) = spec["containers"]
    server["command"] = ["sh", "-c", "python -c 'bytes([1]) * (1 << 30)'; exit 70"]
    server["resources"] = {"limits": {"memory": "64Mi"}}
    pod = team.pod_by_hand("child-out-of-memory", spec)
    assert team.end_of(pod)["exitCode"] == 70
    assert_as_played(team.ended_pod(pod), "server-child-oom-killed")


def _waiting(pod: Object) -> str:
    """Why the sidecar waits; empty when it does not."""
    entries = pod["status"].get("initContainerStatuses") or [{"state": {}}]
    return str(entries[0]["state"].get("waiting", {}).get("reason", ""))
