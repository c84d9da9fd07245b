"""The child Job from an ExtractionJob: golden files, and what must hold for every job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from drillcore_operator.resources import PodDefaults, build_child_job
from drillcore_spec.job import ExtractionJob, ExtractionJobSpec
from drillcore_spec.reasons import EXIT_RULES, JobAction

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.name.removesuffix(".job.yaml") for path in GOLDEN.glob("*.job.yaml"))
DEFAULTS = PodDefaults(
    server_image="drillcore/server:VERSION",
    sidecar_image="drillcore/sidecar:VERSION",
    api_url="http://drillcore-api.drillcore.svc",
)
ONE_NODE_CLAIMS = {"one-node": {"states": ("ReadWriteOnce",)}}


def build(case: str) -> dict[str, Any]:
    resource = yaml.safe_load((GOLDEN / f"{case}.job.yaml").read_text())
    metadata = resource["metadata"]
    return build_child_job(
        ExtractionJob.from_resource(resource).spec,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        defaults=DEFAULTS,
        access_modes=ONE_NODE_CLAIMS.get(case, {"states": ("ReadWriteMany", "ReadWriteOnce")}),
    )


def containers(child: dict[str, Any]) -> dict[str, dict[str, Any]]:
    pod = child["spec"]["template"]["spec"]
    return {container["name"]: container for container in [*pod["initContainers"], *pod["containers"]]}


@pytest.mark.parametrize("case", CASES)
def test_child_equals_the_golden_file(case: str) -> None:
    """UPDATE_GOLDEN=1 writes the files anew, for a person to review."""
    path = GOLDEN / f"{case}.child.yaml"
    built = build(case)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(built, sort_keys=False, width=110))
    assert built == yaml.safe_load(path.read_text())


@pytest.mark.parametrize("case", CASES)
def test_both_containers_get_the_spec_with_defaults_filled_in(case: str) -> None:
    for container in containers(build(case)).values():
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        spec = ExtractionJobSpec.model_validate_json(environment["DRILLCORE_JOB"] or "")
        assert json.loads(spec.to_json()) == json.loads(environment["DRILLCORE_JOB"] or "")
        assert spec.ring.size


@pytest.mark.parametrize("case", CASES)
def test_only_output_cache_ring_and_scratch_are_writable(case: str) -> None:
    child = build(case)
    writable = {
        (name, mount["mountPath"])
        for name, container in containers(child).items()
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }
    allowed = {("sidecar", "/ring"), ("sidecar", "/output"), ("server", "/ring"), ("server", "/tmp")}
    assert writable <= allowed | {("server", "/model-cache"), ("server", "/dev/shm")}


@pytest.mark.parametrize("case", CASES)
def test_every_mount_has_a_volume_and_every_volume_a_distinct_claim(case: str) -> None:
    child = build(case)
    volumes = {volume["name"]: volume for volume in child["spec"]["template"]["spec"]["volumes"]}
    mounted = {m["name"] for container in containers(child).values() for m in container["volumeMounts"]}
    assert mounted == set(volumes)
    claims = [v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v]
    assert len(claims) == len(set(claims))


def test_failure_policy_says_what_the_exit_code_table_says() -> None:
    rules = build("minimal")["spec"]["podFailurePolicy"]["rules"]
    by_code = {
        code: rule["action"] for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]
    }
    expected = {
        rule.code: rule.action.value for rule in EXIT_RULES if rule.action not in (JobAction.DONE, JobAction.COUNT)
    }
    assert by_code == expected
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_pods_of_a_single_node_volume_stay_together() -> None:
    affinity = build("one-node")["spec"]["template"]["spec"]["affinity"]
    (term,) = affinity["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert "affinity" not in build("minimal")["spec"]["template"]["spec"]


def test_claims_with_names_that_no_volume_may_have_get_one() -> None:
    volumes = build("everything")["spec"]["template"]["spec"]["volumes"]
    names = {v["persistentVolumeClaim"]["claimName"]: v["name"] for v in volumes if "persistentVolumeClaim" in v}
    assert names["states"] == "output"
    assert names["models.shared"].startswith("claim-")
    assert names["ring"].startswith("claim-"), "the ring's own volume has this name"
