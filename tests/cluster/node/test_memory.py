"""Rings that no ExtractionJob can ask for, in pods written by hand: the end is clear, never a silent bus error."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.team import Team

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_ring_larger_than_the_memory_limit_is_told_apart_from_a_crash(team: Team, template: Object) -> None:
    """Where the container sees its limit (cgroup v2) the server says it; else the kernel kills it for memory."""
    spec = deepcopy(template)
    spec["containers"][0]["resources"] = {"limits": {"memory": "512Mi"}}
    _set_ring(spec, ring="768Mi", size_limit="832Mi")
    end = _end_of(team, "ring-over-limit", spec)
    if end["reason"] == "OOMKilled":
        assert end["exitCode"] == 137
    else:
        _tells(end, str(768 << 20), str(512 << 20))


def test_a_ring_larger_than_its_volume_ends_with_both_sizes(team: Team, template: Object) -> None:
    spec = deepcopy(template)
    _set_ring(spec, ring="256Mi", size_limit="64Mi")
    _tells(_end_of(team, "ring-over-volume", spec), str(256 << 20), "bytes are free there")


def _tells(end: Object, *numbers: str) -> None:
    assert end["exitCode"] == 135
    message = json.loads(end["message"])
    assert message["reason"] == "ShmTooSmall"
    missing = [number for number in numbers if number not in message["message"]]
    assert not missing, message


def _set_ring(spec: Object, ring: str, size_limit: str) -> None:
    for volume in spec["volumes"]:
        if volume["name"] == "ring":
            volume["emptyDir"]["sizeLimit"] = size_limit
    for container in [*spec["initContainers"], *spec["containers"]]:
        for variable in container["env"]:
            if variable["name"] == "DRILLCORE_JOB":
                job = json.loads(variable["value"])
                job["ring"]["size"] = ring
                variable["value"] = json.dumps(job)


def _end_of(team: Team, name: str, spec: Object) -> Object:
    return team.end_of(team.pod_by_hand(name, spec))
