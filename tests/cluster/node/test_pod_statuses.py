"""Statuses that the API-server suite plays and that no job of the other tests gets into, from pods by hand."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.recorded import assert_as_played
from drillcore_testcluster.node.team import Team, container_statuses

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_an_image_of_the_sidecar_that_cannot_be_pulled(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    spec["initContainers"][0]["image"] = "registry.invalid/sidecar:test"
    pod = team.pod_by_hand("image-pull", spec)
    backs_off = next(now for now in team.watch(pod) if _waiting(now) == "ImagePullBackOff")
    assert_as_played(backs_off, "image-pull-backoff", reason="ImagePullBackOff")


def test_a_server_whose_child_was_killed_for_memory(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    (server,) = spec["containers"]
    server["command"] = ["sh", "-c", "python -c 'bytes([1]) * (1 << 30)'; exit 70"]
    server["resources"] = {"limits": {"memory": "64Mi"}}
    pod = team.pod_by_hand("child-out-of-memory", spec)
    assert team.end_of(pod)["exitCode"] == 70
    assert_as_played(team.ended_pod(pod), "server-child-oom-killed")


def test_a_server_that_crashes(team: Team, template: Object) -> None:
    spec = _with_server(template, "sys.exit(1)")
    assert_as_played(team.ended_pod(team.pod_by_hand("crash", spec)), "server-exit", exit_code=1)


def test_a_sidecar_killed_for_memory_takes_the_server_along(team: Team, template: Object) -> None:
    """In place of both, programs that are as attached to each other as ours."""
    spec = _with_server(template, f"peer = {_UNIX}; peer.connect('/ring/sidecar.sock'); peer.recv(1); sys.exit(71)")
    (sidecar,) = spec["initContainers"]
    script = f"here = {_UNIX}; here.bind('/ring/sidecar.sock'); here.listen(); peer = here.accept()"
    sidecar["command"] = _python(f"{script}; time.sleep(2); bytes([1]) * (1 << 30)")
    sidecar["resources"] = {"limits": {"memory": "64Mi"}}
    assert_as_played(team.ended_pod(team.pod_by_hand("sidecar-oom", spec)), "sidecar-oom-killed")


def test_a_pod_that_is_deleted_while_it_runs(team: Team, template: Object) -> None:
    pod = team.pod_by_hand("told-to-end", _with_server(template, _UNTIL_SIGTERM))
    seen = team.watch(pod)
    next(now for now in seen if _all_run(now))
    team.cluster.api.delete("Pod", pod["metadata"]["name"], namespace=team.namespace)
    assert_as_played(next(now for now in seen if now["status"]["phase"] == "Failed"), "terminated")


def test_an_eviction_for_what_a_pod_wrote_is_no_disruption(team: Team, template: Object) -> None:
    """kubelet sets no DisruptionTarget then; of the containers it may know their ends, or nothing any more."""
    spec = _with_server(template, f"open('/tmp/x', 'wb').write(bytes(32 << 20)); {_UNTIL_SIGTERM}")
    _volume(spec, "tmp")["emptyDir"] = {"sizeLimit": "4Mi"}
    status = team.ended_pod(team.pod_by_hand("evicted", spec))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert "DisruptionTarget" not in [condition["type"] for condition in status["conditions"]]


def test_a_pod_that_waits_for_a_volume(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    volume = _volume(spec, "tmp")
    del volume["emptyDir"]
    volume["secret"] = {"secretName": "never-made"}
    pod = team.pod_by_hand("no-volume", spec)
    creating = next(now for now in team.watch(pod) if now["status"].get("containerStatuses"))
    assert_as_played(creating, "container-creating")
    team.cluster.api.delete("Pod", pod["metadata"]["name"], namespace=team.namespace)


def test_a_foreign_container_outlives_the_server(team: Team, template: Object) -> None:
    spec = _with_server(template, "sys.exit(0)")
    foreign = {key: spec["containers"][0][key] for key in ("image", "securityContext")}
    spec["containers"].append(foreign | {"name": "istio-proxy", "command": _python(_UNTIL_SIGTERM)})
    pod = team.pod_by_hand("injected", spec)
    ended = next(now for now in team.watch(pod) if _state_of(now, "server") == "terminated")
    assert_as_played(ended, "foreign-container-running")
    team.cluster.api.delete("Pod", pod["metadata"]["name"], namespace=team.namespace)


_UNIX = "socket.socket(socket.AF_UNIX)"
_UNTIL_SIGTERM = "signal.signal(signal.SIGTERM, lambda *_: os._exit(143)); time.sleep(600)"


def _python(script: str) -> list[str]:
    return ["/opt/drillcore/bin/python", "-c", f"import os, signal, socket, sys, time; {script}"]


def _with_server(template: Object, script: str) -> dict[str, Any]:
    """A shard's pod with this program in the server's place."""
    spec = deepcopy(template)
    spec["containers"][0]["command"] = _python(script)
    return spec


def _volume(spec: Object, name: str) -> Object:
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == name]
    found: Object = volume
    return found


def _all_run(pod: Object) -> bool:
    return all(_state_of(pod, name) == "running" for name in ("sidecar", "server"))


def _state_of(pod: Object, container: str) -> str:
    entries = container_statuses(pod)
    return next((kind for entry in entries if entry["name"] == container for kind in entry["state"]), "")


def _waiting(pod: Object) -> str:
    """Why the sidecar waits; empty when it does not."""
    entries = pod["status"].get("initContainerStatuses") or [{"state": {}}]
    return str(entries[0]["state"].get("waiting", {}).get("reason", ""))
