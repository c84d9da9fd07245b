"""What the chart makes, over a matrix of values."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest
from prometheus_client import CollectorRegistry

from drillcore_operator.api.metrics import LookMetrics, ReportMetrics, install_process_metrics
from drillcore_operator.settings import Settings
from drillcore_operator.work_queue import WorkQueue
from drillcore_spec import names
from drillcore_spec.job import ExtractionJob
from drillcore_spec.resource_definition import custom_resource_definition
from drillcore_status.metrics import RequestMetrics
from drillcore_status.stream import StreamSlots
from drillcore_testcluster.helm import CHART

pytestmark = pytest.mark.apiserver

NAMESPACED = 'watchNamespaces=["team-a","team-b"]'
TLS = 'api.tls.secretName="drillcore-tls"'
MONITORING = 'metrics={"podMonitor":{"enabled":true},"serviceMonitor":{"enabled":true},"dashboard":{"enabled":true}}'
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
KUEUE = "kueue.enabled=true"
OPEN = "networkPolicy.enabled=false"
MATRIX = [
    [value for value in chosen if value]
    for chosen in (*product((None, NAMESPACED), (None, TLS), (None, MONITORING)), (KUEUE, OPEN), (NAMESPACED, KUEUE))
]


def test_the_chart_passes_strict_lint(helm):
    for value in (None, NAMESPACED, TLS, MONITORING):
        result = helm.run("lint", "--strict", str(CHART), *(["--set-json", value] if value else []))
        assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "values", MATRIX, ids=lambda values: " ".join(value.partition("=")[0] for value in values) or "default"
)
def test_every_object_has_its_place_its_labels_and_a_name_of_its_own(helm, values):
    manifests = helm.render(*values)
    seen = set()
    for manifest in manifests:
        metadata = manifest["metadata"]
        key = (manifest["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in seen
        seen.add(key)
        assert (manifest["kind"] in CLUSTER_SCOPED) == ("namespace" not in metadata), key
        if manifest["kind"] != "CustomResourceDefinition":
            assert metadata["labels"]["app.kubernetes.io/instance"] == "drillcore", key


def test_the_crd_is_the_generated_one_and_is_kept(helm, of_kind):
    (definition,) = of_kind(helm.render(), "CustomResourceDefinition")
    assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert definition == custom_resource_definition()
    (definition,) = of_kind(helm.render("crds.keep=false"), "CustomResourceDefinition")
    assert "annotations" not in definition["metadata"]
    assert of_kind(helm.render("crds.install=false"), "CustomResourceDefinition") == []


def test_the_whole_cluster_needs_a_cluster_role_and_no_role(helm, of_kind):
    manifests = [m for m in helm.render() if "helm.sh/hook" not in m["metadata"].get("annotations", {})]
    assert of_kind(manifests, "Role") == []
    assert "drillcore-system:drillcore" in {role["metadata"]["name"] for role in of_kind(manifests, "ClusterRole")}


def test_some_namespaces_need_a_role_in_each_and_only_the_delegator_for_the_cluster(helm, of_kind):
    manifests = helm.render(NAMESPACED, "rbac.aggregateToDefaultRoles=false")
    roles = [role for role in of_kind(manifests, "Role") if role["metadata"]["name"] == "drillcore"]
    assert {role["metadata"]["namespace"] for role in roles} == {"team-a", "team-b"}
    assert of_kind(manifests, "ClusterRole") == []
    (binding,) = of_kind(manifests, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert of_kind(helm.render(NAMESPACED, "auth.delegator.create=false"), "ClusterRoleBinding") == []


def test_no_rule_has_a_wildcard_and_none_reads_secrets(helm):
    for manifest in helm.render(NAMESPACED) + helm.render("kueue.enabled=true"):
        for rule in manifest.get("rules") or ():
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
            assert "secrets" not in rule["resources"]


def test_kueue_gets_its_rule_only_where_it_is_enabled(helm, of_kind):
    def groups(*values: str) -> set[str]:
        roles = of_kind(helm.render(*values), "ClusterRole")
        return {group for role in roles for rule in role["rules"] for group in rule["apiGroups"]}

    assert "kueue.x-k8s.io" not in groups()
    assert "kueue.x-k8s.io" in groups("kueue.enabled=true")


@pytest.mark.parametrize("values", MATRIX, ids=str)
def test_the_operator_starts_with_the_variables_that_the_chart_sets(helm, of_kind, values, tmp_path):
    environment = _environment(of_kind(helm.render(*values), "Deployment")[0])
    settings = Settings.from_environment(environment)
    assert settings.server_image == "drillcore/server:0.1.0"
    scheme = "https" if TLS in values else "http"
    assert settings.advertise_url == f"{scheme}://drillcore-api.drillcore-system.svc"
    assert settings.namespaces == (("team-a", "team-b") if NAMESPACED in values else ())
    assert (settings.api_certificate_file is not None) == (TLS in values)
    assert settings.api_port == names.API_PORT


def test_the_service_reaches_the_operator_and_nothing_else(helm, of_kind):
    manifests = helm.render()
    (service,), (deployment,) = of_kind(manifests, "Service"), of_kind(manifests, "Deployment")
    selector = service["spec"]["selector"].items()
    assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    (self_test,) = of_kind(manifests, "Pod")
    assert not selector <= self_test["metadata"]["labels"].items()
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_selectors_never_change_between_versions(helm, of_kind):
    """An upgrade of a Deployment whose selector changed is refused."""
    (deployment,) = of_kind(helm.render(), "Deployment")
    assert deployment["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "drillcore",
        "app.kubernetes.io/instance": "drillcore",
    }


def test_images_are_pinned_by_digest_where_one_is_given(helm, of_kind):
    digest = "sha256:" + "0" * 64
    manifests = helm.render(f'images.server.digest="{digest}"', 'images.operator.tag="9"')
    (deployment,) = of_kind(manifests, "Deployment")
    assert _environment(deployment)["DRILLCORE_OPERATOR_SERVER_IMAGE"] == f"drillcore/server@{digest}"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "drillcore/operator:9"


@pytest.mark.parametrize("user", [65532, 1000660000, None])
def test_pods_are_restricted_whatever_the_user(helm, of_kind, user):
    manifests = helm.render(f"operator.runAsUser={json.dumps(user)}")
    pods = [of_kind(manifests, "Deployment")[0]["spec"]["template"]["spec"], of_kind(manifests, "Pod")[0]["spec"]]
    for pod in pods:
        assert pod["securityContext"].get("runAsUser") == user
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("user", [65532, None])
def test_the_self_test_is_a_job_that_the_operator_accepts(helm, of_kind, user):
    (resource,) = of_kind(helm.render(f"operator.runAsUser={json.dumps(user)}"), "ExtractionJob")
    job = ExtractionJob.from_resource(resource)
    assert job.spec.server.resources.gpus == 0
    assert job.spec.pod_template.run_as_user == user
    assert job.spec.pod_template.fs_group == user


def test_everything_of_the_self_test_is_a_hook_that_is_deleted(helm):
    hooks = [m for m in helm.render(NAMESPACED) if m["metadata"]["name"].endswith("-self-test")]
    assert {m["kind"] for m in hooks} == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "PersistentVolumeClaim",
        "ExtractionJob",
        "Pod",
    }
    for manifest in hooks:
        annotations = manifest["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert manifest["metadata"]["namespace"] == "team-a"


def test_a_release_of_the_longest_name_has_names_that_fit(helm):
    manifests = helm.render(release="r" * 53)
    assert max(len(manifest["metadata"]["name"]) for manifest in manifests if manifest["kind"] == "Service") <= 63
    assert all(
        len(m["metadata"]["name"]) <= names.MAX_JOB_NAME_LENGTH for m in manifests if m["kind"] == "ExtractionJob"
    )


def test_monitors_scrape_over_tls_where_the_api_speaks_it(helm, of_kind):
    manifests = helm.render(MONITORING, TLS)
    (endpoint,) = of_kind(manifests, "ServiceMonitor")[0]["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["serverName"] == "drillcore-api.drillcore-system.svc"
    assert endpoint["path"] == "/metrics"


def test_the_dashboard_asks_for_metrics_that_exist(helm, of_kind):
    registry = CollectorRegistry()
    ReportMetrics(registry)
    RequestMetrics(registry, StreamSlots())
    install_process_metrics(registry, WorkQueue(), lambda: None)
    LookMetrics(registry)
    known = {f"{family.name}{end}" for family in registry.collect() for end in ("", "_total", "_bucket")}
    (dashboard,) = of_kind(helm.render(MONITORING), "ConfigMap")
    panels = json.loads(dashboard["data"]["drillcore.json"])["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"(?:drillcore|process)_\w+", target["expr"])
    }
    assert asked <= known
    assert len(asked) >= 8


def _environment(deployment: dict) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}
