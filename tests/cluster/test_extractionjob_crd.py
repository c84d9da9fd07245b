"""The CRD on a real API server: structural, explained, defaulted, and as strict as `drillcore run`."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drillcore_spec.job import MUTABLE_FIELDS, ExtractionJob
from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

RULES = yaml.safe_load((Path(__file__).parents[1] / "spec" / "rule_cases.yaml").read_text())

FULL_SPEC: dict[str, Any] = yaml.safe_load("""
model: {uri: "hf://org/name", revision: main, dtype: BFloat16, secretName: hub, cacheClaimName: models}
dataset: {uri: "pvc://datasets/a.jsonl", split: train, maxSamples: 10, columns: {messages: m, id: id}}
extraction: {layers: [1, 2], positions: Window, window: {start: 0, end: 4}}
output: {claimName: states, subPath: a/b, sizeLimit: 1Ti}
shards: {count: 4}
parallelism: 2
activeDeadlineSeconds: 60
ttlSecondsAfterFinished: 60
failurePolicy: {maxFailedShards: 1}
queue: {name: research}
server: {image: "registry.example/server:1", resources: {gpus: 2}}
podTemplate:
  labels: {team: a}
  annotations: {example.com/a: b}
  nodeSelector: {gpu: a100}
  tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: host, labelSelector: {matchLabels: {a: b}}}}
  env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: B, value: c}]
  imagePullSecrets: [{name: pull}]
  supplementalGroups: [1, 2]
""")

CHANGES: dict[str, tuple[object, ...]] = {
    "model": ({"revision": "other"}, {"revision": None}, {"dtype": None}),
    "dataset": ({"maxSamples": 11}, {"maxSamples": None}, {"contextSize": 0, "format": "Jsonl"}),
    "extraction": ({"layers": [2, 1]}, {"positions": "All", "window": None}, {"finalNorm": True}),
    "generation": ({"seed": 1},),
    "output": ({"sizeLimit": None}, {"sizeLimit": "2Ti"}),
    "engine": ({"maxModelLen": 8}, {"prefixCaching": False}),
    "shards": ({"count": 5}, None),
    "ring": ({"size": "5Gi"},),
    "startDeadlineSeconds": (1,),
    "activeDeadlineSeconds": (61, None),
    "failurePolicy": ({"maxFailedShards": None}, {"backoffLimitPerShard": 4}),
    "queue": ({"name": "other"}, None),
    "server": ({"image": None}, {"resources": {"memory": "64Gi"}}),
    "sidecar": ({"resources": {"cpu": "2"}},),
    "podTemplate": (
        {"labels": {"team": "b"}},
        {"labels": {"team": None}},
        {"affinity": {"nodeAffinity": None}},
        {"tolerations": []},
        {"runAsUser": 1000},
        {"env": None},
    ),
}
"""Merge patches of FULL_SPEC's fields, each of which really changes something."""


@pytest.fixture(scope="module", autouse=True)
def crd(api: KubeApi) -> Iterator[None]:
    """The CRD, created in full: server-side apply would forgive unknown keys that create reports."""
    existing = api.find("CustomResourceDefinition", CRD_NAME)
    if existing is None:
        api.create(custom_resource_definition())
    else:
        api.apply(custom_resource_definition(), manager="tests", force=True)
    until(lambda: _condition(api, "Established"), "the CRD is established")
    yield
    if existing is None:
        api.delete("CustomResourceDefinition", CRD_NAME)
        until(lambda: api.find("CustomResourceDefinition", CRD_NAME) is None, "the CRD is gone")


def _condition(api: KubeApi, kind: str) -> bool:
    conditions = api.get("CustomResourceDefinition", CRD_NAME).get("status", {}).get("conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def _job(namespace: str, name: str = "job", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    job = copy.deepcopy(RULES["base"])
    job["metadata"] = {"name": name, "namespace": namespace}
    if spec is not None:
        job["spec"] = copy.deepcopy(spec)
    return job


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def test_the_schema_is_structural_and_the_names_are_accepted(api: KubeApi) -> None:
    assert _condition(api, "NamesAccepted")
    assert not _condition(api, "NonStructuralSchema")


@pytest.mark.parametrize("case", RULES["cases"], ids=lambda case: case["name"])
def test_the_api_server_decides_as_the_local_rules_do(case: dict[str, Any], api: KubeApi, namespace: str) -> None:
    job = _merged(RULES["base"], case["change"])
    if "refused" not in case:
        api.create(job, namespace=namespace, dryRun="All")
        return
    with pytest.raises(ApiError) as refused:
        api.create(job, namespace=namespace, dryRun="All")
    field, message = case["refused"].split(": ", 1)
    assert re.search(rf"{re.escape(field)}: Invalid value: .*: {re.escape(message)}", refused.value.message)


def test_defaults_are_those_of_the_models(api: KubeApi, namespace: str) -> None:
    created = api.create(_job(namespace))
    local = ExtractionJob.from_resource(_job(namespace))
    assert ExtractionJob.from_resource(created).spec == local.spec
    filled = _without_empty(local.spec.model_dump(mode="json"))
    assert created["spec"] == filled


def _without_empty(value: Any) -> Any:
    """Empty lists and maps are left absent by the API server."""
    if not isinstance(value, dict):
        return value
    return {k: _without_empty(v) for k, v in value.items() if v not in ([], {}) or k == "generation"}


def test_changes_cover_every_immutable_field() -> None:
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = set(schema["properties"]["spec"]["properties"])
    assert set(CHANGES) == fields - MUTABLE_FIELDS


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_an_immutable_field_can_be_neither_changed_nor_dropped(field: str, api: KubeApi, namespace: str) -> None:
    created = api.create(_job(namespace, spec=FULL_SPEC))
    for change in CHANGES[field]:
        patched = api.get("ExtractionJob", "job", namespace=namespace)
        patched["spec"] = _merged(patched["spec"], {field: change})
        with pytest.raises(ApiError) as refused:
            api.replace(patched)
        assert re.search(f"spec.{field}: Invalid value: .*: expected {field} to stay", refused.value.message)
    assert api.get("ExtractionJob", "job", namespace=namespace)["spec"] == created["spec"]


@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "queue"])
def test_an_optional_field_cannot_be_added_later(field: str, api: KubeApi, namespace: str) -> None:
    api.create(_job(namespace))
    with pytest.raises(ApiError, match="may change"):
        api.patch("ExtractionJob", "job", {"spec": {field: FULL_SPEC[field]}}, namespace=namespace)


@pytest.mark.parametrize("user", [65532, 1000, None])
def test_suspend_parallelism_and_ttl_are_mutable(user: int | None, api: KubeApi, namespace: str) -> None:
    api.create(_job(namespace, spec=FULL_SPEC | {"podTemplate": FULL_SPEC["podTemplate"] | {"runAsUser": user}}))
    for spec in ({"suspend": True}, {"parallelism": 4}, {"ttlSecondsAfterFinished": None}, {"suspend": False}):
        api.patch("ExtractionJob", "job", {"spec": spec}, namespace=namespace)
    spec = api.get("ExtractionJob", "job", namespace=namespace)["spec"]
    assert spec["parallelism"] == 4
    assert "ttlSecondsAfterFinished" not in spec
    assert spec["podTemplate"]["runAsUser"] == user


def test_parallelism_stays_within_the_shards_when_it_changes(api: KubeApi, namespace: str) -> None:
    api.create(_job(namespace, spec=FULL_SPEC))
    with pytest.raises(ApiError, match="got 5 with 4 shards"):
        api.patch("ExtractionJob", "job", {"spec": {"parallelism": 5}}, namespace=namespace)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extraction": {"layers": []}}, "should have at least 1 items"),
        ({"extraction": {"layers": [-1]}}, "should be greater than or equal to 0"),
        ({"extraction": {"layers": list(range(257))}}, "must have at most 256 items"),
        ({"model": {"uri": "ftp://x"}}, "should match"),
        ({"model": {"dtype": "Int8"}}, "Unsupported value"),
        ({"output": {"claimName": None}}, "Required value"),
        ({"output": {"partSize": "0"}}, "should match"),
        ({"dataset": {"columns": {"messages": "x" * 254}}}, "Too long: may not be more than 253"),
        ({"podTemplate": {"runAsUser": 0}}, "should be greater than or equal to 1"),
        ({"podTemplate": {"labels": {"a b": "c"}}}, "expected each key to be a label key"),
        ({"podTemplate": {"leaveToCluster": ["Everything"]}}, "Unsupported value"),
        ({"generation": {"temperature": 11}}, "should be less than or equal to 10"),
    ],
    ids=str,
)
def test_bounds_and_forms_are_held(change: dict[str, Any], message: str, api: KubeApi, namespace: str) -> None:
    job = _job(namespace)
    job["spec"] = _merged(job["spec"], change)
    with pytest.raises(ApiError, match=message):
        api.create(job)


def test_an_unknown_field_is_refused_by_kubectl(kubectl: Kubectl, namespace: str) -> None:
    job = _job(namespace)
    job["spec"]["maxSamples"] = 3
    result = kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump(job))
    assert result.returncode == 1
    assert 'unknown field "spec.maxSamples"' in result.stderr


@pytest.mark.parametrize("how", [["apply"], ["apply", "--server-side"]], ids=["client", "server"])
def test_applying_the_same_file_again_changes_nothing(how: list[str], kubectl: Kubectl, namespace: str) -> None:
    text = yaml.safe_dump(_job(namespace, spec=FULL_SPEC))
    kubectl(*how, "-f", "-", stdin=text)
    before = kubectl("get", "exj", "job", "-n", namespace, "-o", "jsonpath={.metadata.resourceVersion}")
    kubectl(*how, "-f", "-", stdin=text)
    assert kubectl.run("diff", *how[1:], "-f", "-", stdin=text).stdout == ""
    after = kubectl("get", "exj", "job", "-n", namespace, "-o", "jsonpath={.metadata.resourceVersion}")
    assert after == before


def test_ids_are_left_to_the_cluster_by_any_way_of_applying(kubectl: Kubectl, namespace: str) -> None:
    spec = FULL_SPEC | {"podTemplate": {"leaveToCluster": ["RunAsUser", "FsGroup"]}}
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(_job(namespace, spec=spec)))
    stored = yaml.safe_load(kubectl("get", "exj", "job", "-n", namespace, "-o", "yaml"))
    template = ExtractionJob.from_resource(stored).spec.pod_template
    assert (template.run_as_user, template.fs_group) == (None, None)


def test_two_managers_share_a_job(api: KubeApi, namespace: str) -> None:
    api.apply(
        _job(namespace, spec={key: value for key, value in FULL_SPEC.items() if key != "parallelism"}), manager="user"
    )
    scale = {**_job(namespace), "spec": {"parallelism": 3}}
    assert api.apply(scale, manager="autoscaler")["spec"]["parallelism"] == 3
    again = {key: value for key, value in FULL_SPEC.items() if key != "parallelism"}
    assert api.apply(_job(namespace, spec=again), manager="user")["spec"]["parallelism"] == 3
    with pytest.raises(ApiError, match="conflict"):
        api.apply({**scale, "spec": {"parallelism": 1}}, manager="other")


def test_status_is_a_subresource_whose_conditions_are_a_map(api: KubeApi, namespace: str) -> None:
    api.create(_job(namespace) | {"status": {"phase": "Failed"}})
    assert "status" not in api.get("ExtractionJob", "job", namespace=namespace)
    for kind, manager in (("Accepted", "one"), ("Succeeded", "two")):
        condition = {"type": kind, "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1}
        condition["lastTransitionTime"] = "2030-01-01T00:00:00Z"
        body = {**_job(namespace), "status": {"conditions": [condition]}}
        del body["spec"]
        api.apply(body, manager=manager, subresource="status")
    conditions = api.get("ExtractionJob", "job", namespace=namespace)["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["Accepted", "Succeeded"]


def test_the_printed_columns_are_filled(api: KubeApi, kubectl: Kubectl, namespace: str) -> None:
    api.create(_job(namespace))
    condition = {
        "type": "Succeeded",
        "status": "False",
        "reason": "ShardsFailed",
        "message": "",
        "observedGeneration": 1,
    }
    status = {
        "phase": "Failed",
        "conditions": [condition | {"lastTransitionTime": "2030-01-01T00:00:00Z"}],
        "progress": {"summary": "42%"},
        "shards": {"summary": "3/4", "failedIndexes": "2"},
        "output": {"uri": "pvc://states/a"},
    }
    api.patch("ExtractionJob", "job", {"status": status}, namespace=namespace, subresource="status")
    header, row = kubectl("get", "exj", "-n", namespace, "-o", "wide").splitlines()
    assert header.split() == ["NAME", "PHASE", "PROGRESS", "SHARDS", "REASON", "MODEL", "OUTPUT", "FAILED", "AGE"]
    assert row.split()[:-1] == ["job", "Failed", "42%", "3/4", "ShardsFailed", "hf://org/name", "pvc://states/a", "2"]


def test_kubectl_explains_every_field(kubectl: Kubectl) -> None:
    text = kubectl("explain", "exj.spec", "--recursive")
    assert "tensorParallelSize" in text
    assert "residual stream that enters" in " ".join(kubectl("explain", "exj.spec.extraction.layers").split())
