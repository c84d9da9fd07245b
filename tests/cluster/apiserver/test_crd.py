"""The ExtractionJob resource at a real API server: schema, defaults, every rule, apply and diff."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from drillcore_spec.job import MUTABLE_FIELDS, ExtractionJob, ExtractionJobSpec
from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.manifests import change, extraction_job

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("crd")]

MESSAGES = {"columns.text": None, "columns.messages": "messages"}
AFFINITY = "podTemplate.affinity"
POD_TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a b": "c"}}}
NAMESPACE_TERM = {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"a b": "c"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _on_dataset(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"dataset.{path}": value for path, value in changes.items()}


RULE_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # the words of the rule: (changes that it accepts, changes that it refuses)
    "parallelism to be at most shards.count": (
        {"parallelism": 2, "shards.count": 2},
        {"parallelism": 3, "shards.count": 2},
    ),
    "failurePolicy.maxFailedShards to be at most shards.count": (
        {"failurePolicy.maxFailedShards": 1},
        {"failurePolicy.maxFailedShards": 2},
    ),
    "ring.size to be less than server.resources.memory": (
        {"ring.size": "4095Mi", "server.resources.memory": "4Gi"},
        {"ring.size": "4096Mi", "server.resources.memory": "4Gi"},
    ),
    "extraction.positions All with output.layout PerSample": (
        {"output.layout": "PerSample"},
        {"output.layout": "PerSample", "extraction.positions": "Last"},
    ),
    "with extraction.positions LossMask": (
        {"extraction.positions": "LossMask", "dataset.columns.lossMask": "mask"},
        {"extraction.positions": "LossMask"},
    ),
    "engine.tensorParallelSize to be at most server.resources.gpus": (
        {"engine.tensorParallelSize": 2, "server.resources.gpus": 2},
        {"engine.tensorParallelSize": 2},
    ),
    "uri without `..`": ({"model.uri": "pvc://models/a..b"}, {"model.uri": "pvc://models/../x"}),
    "revision only with an hf:// uri": (
        {"model.uri": "hf://org/name", "model.revision": "main"},
        {"model.revision": "main"},
    ),
    "chatTemplate without `..`": (
        _on_dataset(MESSAGES | {"chatTemplate": "pvc://t/a.jinja"}),
        _on_dataset(MESSAGES | {"chatTemplate": "pvc://t/../a.jinja"}),
    ),
    "columns.lossMask to be set when lossMask is Column": (
        {"dataset.lossMask": "Column", "dataset.columns.lossMask": "mask"},
        {"dataset.lossMask": "Column"},
    ),
    "lossMask Auto or Column when columns.lossMask is set": (
        {"dataset.lossMask": "Auto", "dataset.columns.lossMask": "mask"},
        {"dataset.lossMask": "None", "dataset.columns.lossMask": "mask"},
    ),
    "columns.messages to be set when lossMask is Assistant": (
        _on_dataset(MESSAGES | {"lossMask": "Assistant"}),
        {"dataset.lossMask": "Assistant"},
    ),
    "columns.messages to be set when chatTemplate is": (
        _on_dataset(MESSAGES | {"chatTemplate": "file:///t.jinja"}),
        {"dataset.chatTemplate": "file:///t.jinja"},
    ),
    "columns.messages to be set when chatTemplateKwargs is": (
        _on_dataset(MESSAGES | {"chatTemplateKwargs": {"enable_thinking": "false"}}),
        {"dataset.chatTemplateKwargs": {"enable_thinking": "false"}},
    ),
    "columns.text, and no columns.lossMask, when contextSize is more than 0": (
        {"dataset.contextSize": 128},
        _on_dataset(MESSAGES | {"contextSize": 128}),
    ),
    "exactly one of text, messages and inputIds": (
        {"dataset.columns": {"inputIds": "ids"}},
        {"dataset.columns": {"inputIds": "ids", "text": "text"}},
    ),
    "layers without duplicates": ({"extraction.layers": [3, 1, 2]}, {"extraction.layers": [1, 2, 1]}),
    "window to be set with positions Window, and only then": (
        {"extraction.positions": "Window", "extraction.window": {"start": 0, "end": 4}},
        {"extraction.window": {"start": 0, "end": 4}},
    ),
    "stride to be set with positions Stride, and only then": (
        {"extraction.positions": "Stride", "extraction.stride": {"step": 2}},
        {"extraction.positions": "Stride"},
    ),
    "start to be less than end": (
        {"extraction.positions": "Window", "extraction.window": {"start": 3, "end": 4}},
        {"extraction.positions": "Window", "extraction.window": {"start": 4, "end": 4}},
    ),
    "maxTokens to be more than 0 when temperature is": (
        {"generation": {"temperature": 0.5, "maxTokens": 8}},
        {"generation": {"temperature": 0.5}},
    ),
    "subPath without `..`": ({"output.subPath": "a/b"}, {"output.subPath": "a/../b"}),
    "labels without the prefix drillcore.dev/": (
        {"podTemplate.labels": {"team": "x"}},
        {"podTemplate.labels": {"drillcore.dev/job": "x"}},
    ),
    "each key to be a label key": (
        {"podTemplate.labels": {"example.com/team": "x"}},
        {"podTemplate.labels": {"a b": "x"}},
    ),
    "value or valueFrom, not both": (
        {"podTemplate.env": [{"name": "A", "value": "1"}]},
        {"podTemplate.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
    ),
    "a name other than JOB_COMPLETION_INDEX and DRILLCORE_*": (
        {"podTemplate.env": [{"name": "HF_ENDPOINT", "value": "http://mirror"}]},
        {"podTemplate.env": [{"name": "DRILLCORE_JOB", "value": "{}"}]},
    ),
    "exactly one of secretKeyRef, configMapKeyRef and fieldRef": (
        {"podTemplate.env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"podTemplate.env": [{"name": "A", "valueFrom": {}}]},
    ),
}

CHANGED: dict[str, object] = {
    # an optional object is dropped and re-added with null and {} in the tests below
    "model": {"uri": "pvc://models/other"},
    "dataset.maxSamples": 5,
    "extraction.layers": [2, 1],
    "generation.maxTokens": 1,
    "output.claimName": "other",
    "engine.prefixCaching": False,
    "shards.count": 2,
    "ring.size": "1Gi",
    "startDeadlineSeconds": 60,
    "activeDeadlineSeconds": 60,
    "failurePolicy.backoffLimitPerShard": 9,
    "queue.name": "research",
    "server.image": "registry.invalid/other",
    "sidecar.resources.memory": "2Gi",
    "podTemplate.nodeSelector": {"zone": "a"},
}


def _refused(api: KubeApi, job: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        api.create(job, dryRun="All")
    assert caught.value.code == 422
    return caught.value.message


def _rule_messages(schema: dict[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield rule["message"]
    children = list(schema.get("properties", {}).values())
    if "items" in schema:
        children.append(schema["items"])
    for child in children:
        yield from _rule_messages(child)


def test_schema_is_structural(crd: dict[str, Any]) -> None:
    conditions = {c["type"]: c for c in crd["status"]["conditions"]}
    assert "NonStructuralSchema" not in conditions
    assert conditions["NamesAccepted"]["status"] == "True"


def test_every_rule_has_a_case(crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    messages = {m for m in _rule_messages(schema) if "to stay as it is" not in m and "metadata.name" not in m}
    assert messages
    without_case = {message for message in messages if not any(words in message for words in RULE_CASES)}
    assert without_case == set()


@pytest.mark.parametrize("words", RULE_CASES)
def test_rule_accepts_what_it_should(api: KubeApi, namespace: str, words: str) -> None:
    api.create(extraction_job("rule", namespace, RULE_CASES[words][0]), dryRun="All")


@pytest.mark.parametrize("words", RULE_CASES)
def test_rule_refuses_with_its_words(api: KubeApi, namespace: str, words: str) -> None:
    assert words in _refused(api, extraction_job("rule", namespace, RULE_CASES[words][1]))


@pytest.mark.parametrize(
    "term",
    [
        {"podAffinity": {REQUIRED: [POD_TERM]}},
        {"podAntiAffinity": {REQUIRED: [NAMESPACE_TERM]}},
        {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": POD_TERM}]}},
    ],
)
def test_label_keys_are_checked_inside_affinity(api: KubeApi, namespace: str, term: dict[str, Any]) -> None:
    message = _refused(api, extraction_job("affinity", namespace, {AFFINITY: term}))
    assert "each key to be a label key" in message


def test_name_of_46_characters_is_accepted(api: KubeApi, namespace: str) -> None:
    api.create(extraction_job("a" * 46, namespace), dryRun="All")


@pytest.mark.parametrize("length", [47, 63, 253])
def test_longer_names_are_refused_with_the_limit(api: KubeApi, namespace: str, length: int) -> None:
    assert "at most 46 characters" in _refused(api, extraction_job("a" * length, namespace))


@pytest.mark.parametrize("name", ["with.dots", "9lives"])
def test_names_that_are_no_rfc_1035_label_are_refused(api: KubeApi, namespace: str, name: str) -> None:
    assert "RFC 1035" in _refused(api, extraction_job(name, namespace))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("extraction.layers", [], "spec.extraction.layers"),
        ("extraction.layers", [-1], "greater than or equal to 0"),
        ("shards.count", 0, "spec.shards.count"),
        ("model.dtype", "bfloat16", "BFloat16"),
        ("ring.size", "4 GB", "spec.ring.size"),
        ("output.claimName", None, "spec.output.claimName: Required value"),
        ("podTemplate.env", [{"name": "A"}] * 65, "spec.podTemplate.env"),
    ],
)
def test_values_out_of_bounds_are_refused_by_field(
    api: KubeApi, namespace: str, path: str, value: object, words: str
) -> None:
    assert words in _refused(api, extraction_job("bounds", namespace, {path: value}))


def test_unknown_field_is_refused_by_strict_validation(api: KubeApi, namespace: str) -> None:
    job = extraction_job("unknown", namespace, {"extraction.layer": [1]})
    with pytest.raises(ApiError, match=r"unknown field .spec\.extraction\.layer."):
        api.create(job, fieldValidation="Strict", dryRun="All")


def test_server_fills_in_the_defaults_of_the_models(api: KubeApi, namespace: str) -> None:
    job = extraction_job("defaults", namespace)
    stored = api.create(job, dryRun="All")
    ours = ExtractionJob.from_resource(job)
    assert ExtractionJob.from_resource(stored).spec == ours.spec
    written_out = json.loads(ours.spec.to_json())
    for key in ("generation", "engine", "shards", "ring", "failurePolicy", "sidecar"):
        assert stored["spec"][key] == written_out[key]


def test_null_user_and_group_are_kept(api: KubeApi, namespace: str) -> None:
    """null is a value there: it leaves the field out of the pod."""
    job = extraction_job("nulls", namespace)
    job["spec"]["podTemplate"] = {"runAsUser": None, "fsGroup": None}
    stored = ExtractionJob.from_resource(api.create(job, dryRun="All"))
    assert (stored.spec.pod_template.run_as_user, stored.spec.pod_template.fs_group) == (None, None)


def test_every_field_is_mutable_or_has_a_case() -> None:
    keys = set(ExtractionJobSpec.fields_by_key())
    assert {path.partition(".")[0] for path in CHANGED} | MUTABLE_FIELDS == keys


@pytest.mark.parametrize("path", CHANGED)
def test_immutable_field_cannot_change(api: KubeApi, namespace: str, path: str) -> None:
    job = api.create(extraction_job("edited", namespace))
    change(job["spec"], path, CHANGED[path])
    with pytest.raises(ApiError, match=f"expected {path.partition('.')[0]} to stay as it is"):
        api.replace(job)


@pytest.mark.parametrize("path", ["queue.name", "activeDeadlineSeconds"])
def test_optional_field_can_be_neither_dropped_nor_added(api: KubeApi, namespace: str, path: str) -> None:
    key = path.partition(".")[0]
    with_field = api.create(extraction_job("with", namespace, {path: CHANGED[path]}))
    del with_field["spec"][key]
    with pytest.raises(ApiError, match=f"expected {key} to stay as it is"):
        api.replace(with_field)
    without_field = api.create(extraction_job("without", namespace))
    change(without_field["spec"], path, CHANGED[path])
    with pytest.raises(ApiError, match="apply a new ExtractionJob with the same output"):
        api.replace(without_field)


def test_mutable_fields_change_appear_and_vanish(api: KubeApi, namespace: str) -> None:
    job = api.create(extraction_job("mutable", namespace, {"shards.count": 4}))
    job["spec"] |= {"suspend": True, "parallelism": 4, "ttlSecondsAfterFinished": 60}
    job = api.replace(job)
    del job["spec"]["ttlSecondsAfterFinished"]
    job = api.replace(job)
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["generation"] == 3


def test_two_managers_own_different_fields(api: KubeApi, namespace: str) -> None:
    api.apply(extraction_job("shared", namespace, {"shards.count": 4}), manager="author")
    scaler = extraction_job("shared", namespace)
    scaler["spec"] = {"parallelism": 3}
    scaled = api.apply(scaler, manager="scaler", force=True)
    assert scaled["spec"]["parallelism"] == 3
    again = api.apply(extraction_job("shared", namespace, {"shards.count": 4}), manager="author")
    assert again["spec"]["parallelism"] == 3
    with pytest.raises(ApiError, match="conflict with"):
        api.apply(extraction_job("shared", namespace, {"shards.count": 4, "parallelism": 1}), manager="author")


def test_status_is_written_by_its_subresource_only(api: KubeApi, namespace: str) -> None:
    job = api.create(extraction_job("status", namespace) | {"status": {"phase": "Succeeded"}})
    assert "status" not in job
    written = api.patch(
        "ExtractionJob", "status", {"status": {"phase": "Running"}}, namespace=namespace, subresource="status"
    )
    assert written["status"]["phase"] == "Running"
    assert written["metadata"]["generation"] == 1


def test_kubectl_explains_fields(kubectl: Kubectl) -> None:
    deadline_s = time.monotonic() + 20
    while (result := kubectl.run("explain", "exj.spec.extraction.layers")).returncode != 0:
        assert time.monotonic() < deadline_s, f"OpenAPI is published within seconds: {result.stderr}"
        time.sleep(0.2)
    assert "residual stream that enters block i" in " ".join(result.stdout.split())


def test_kubectl_diff_of_an_applied_file_is_quiet(kubectl: Kubectl, namespace: str) -> None:
    manifest = yaml.safe_dump(extraction_job("diff", namespace, {"output.partSize": "512Mi"}))
    kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
    assert kubectl("diff", "--server-side", "-f", "-", stdin=manifest) == ""
    changed = manifest.replace("512Mi", "256Mi")
    assert kubectl.run("diff", "--server-side", "-f", "-", stdin=changed).returncode != 0


def test_kubectl_get_prints_the_columns_people_read(kubectl: Kubectl, namespace: str, api: KubeApi) -> None:
    api.create(extraction_job("printed", namespace))
    status = {"phase": "Running", "progress": {"summary": "42%"}, "shards": {"summary": "3/16"}}
    api.patch("ExtractionJob", "printed", {"status": status}, namespace=namespace, subresource="status")
    heading, row = kubectl("get", "exj", "-n", namespace).splitlines()
    assert heading.split() == ["NAME", "PHASE", "PROGRESS", "SHARDS", "REASON", "AGE"]
    assert row.split()[:4] == ["printed", "Running", "42%", "3/16"]
