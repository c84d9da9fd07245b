"""The chart on a real API server: accepted, installed, upgraded, enough for the operator, and gone without a trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster import binaries, helm4
from drillcore_testcluster.audit import Right, calls_of, rights_used
from drillcore_testcluster.cluster import TestCluster
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.helm import CHART, Helm, manifests_in, settings
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.operator_account import OperatorAccount, granted
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

RELEASE = "drillcore"
WITHOUT_CRD = "crds.install=false"
"""The suite has its own; a release that wants it must take it over."""
OURS = "app.kubernetes.io/instance=drillcore"
PASSING = ("events", "pods", "replicasets", "endpoints", "componentstatuses")
"""Kinds that others make and clear away in their own time."""
OF_EVERY_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
ONCE = pytest.mark.parametrize("helm", ["helm3"], indirect=True)
"""For what does not depend on helm."""


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    binary = helm4.find() if request.param == "helm4" else binaries.find(binaries.HELM)
    return Helm(binary, tmp_path_factory.mktemp("helm"), cluster.kubectl.kubeconfig)


@pytest.fixture
def installed(helm: Helm, crd: object, api: KubeApi, namespace: str) -> Iterator[Callable[..., str]]:
    """`installed(*values)`: the notes of a release in the test's namespace, which enforces `restricted`."""
    _restrict(api, namespace)

    def install(*values: str) -> str:
        return helm("install", RELEASE, str(CHART), "--namespace", namespace, *settings((WITHOUT_CRD, *values)))

    yield install
    helm.run("uninstall", RELEASE, "--namespace", namespace, "--ignore-not-found")


@pytest.fixture
def without_crd(crd: object, api: KubeApi) -> Iterator[None]:
    """Helm finds a cluster without our CRD; the suite's is there again afterwards."""
    api.delete("CustomResourceDefinition", CRD_NAME)
    until(lambda: api.find("CustomResourceDefinition", CRD_NAME) is None, "the CRD is gone")
    yield
    api.apply(custom_resource_definition(), manager="test", force=True)


@pytest.fixture(scope="module")
def monitoring(api: KubeApi, kubectl: Kubectl) -> None:
    """Kinds of the Prometheus Operator, of any form."""
    for kind in ("PodMonitor", "ServiceMonitor"):
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
        metadata = {"name": f"{plural}.monitoring.coreos.com"}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        api.apply(head | {"metadata": metadata, "spec": spec}, manager="test")
        kubectl("wait", "--for=condition=Established", f"crd/{metadata['name']}")


@pytest.mark.parametrize(
    "values",
    [
        (),
        ('watchNamespaces=["NAMESPACE"]', "kueue.enabled=true"),
        ('api.tls.secretName="tls"', "networkPolicy.enabled=false", "metrics.dashboard.enabled=true"),
        ('metrics={"podMonitor":{"enabled":true},"serviceMonitor":{"enabled":true}}', 'api.tls.secretName="tls"'),
        ('watchNamespaces=["NAMESPACE"]', 'metrics.podMonitor={"enabled":true,"labels":{"team":"a"}}'),
        ('api.service={"type":"LoadBalancer","annotations":{"a":"b"}}', 'operator.podLabels={"team":"a"}'),
        ('images.operator.digest="sha256:' + "0" * 64 + '"', 'imagePullSecrets=[{"name":"pull"}]'),
        (
            "operator.runAsUser=null",
            'networkPolicy.from=[{"namespaceSelector":{}}]',
            'operator.tolerations=[{"key":"a"}]',
        ),
    ],
    ids=str,
)
def test_the_api_server_accepts_everything_that_the_chart_makes(helm, api, crd, monitoring, kubectl, namespace, values):
    named = [value.replace("NAMESPACE", namespace) for value in values]
    result = helm.template(WITHOUT_CRD, *named, namespace=namespace, release=RELEASE)
    assert len(manifests_in(result.stdout)) > 8, result.stderr
    _restrict(api, namespace)
    # A dry run makes no account, and a pod's is looked up even there.
    account = {"name": f"{RELEASE}-self-test", "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=result.stdout)


def test_an_installed_operator_is_admitted_to_a_restricted_namespace(installed, api, namespace):
    notes = installed("auth.delegator.create=false")
    assert f"helm test {RELEASE}" in notes
    assert "answers 503" in notes
    until(lambda: bool(api.list("Pod", namespace=namespace, labelSelector=OURS)), "the operator's pod is made")
    (deployment,) = api.list("Deployment", namespace=namespace)
    reasons = {condition["reason"] for condition in deployment.get("status", {}).get("conditions", ())}
    assert "FailedCreate" not in reasons


@pytest.mark.parametrize("mode", ["cluster-wide", "namespaced"])
def test_uninstalling_leaves_nothing_but_what_was_there_before(installed, helm, kubectl, namespace, mode):
    until(lambda: _everything(kubectl, namespace) >= OF_EVERY_NAMESPACE, "the namespace has what all have")
    before = _everything(kubectl, namespace)
    values = [f'watchNamespaces=["{namespace}"]'] if mode == "namespaced" else []
    installed(*values, "metrics.dashboard.enabled=true")
    assert len(_everything(kubectl, namespace) - before) > 5
    helm("uninstall", RELEASE, "--namespace", namespace, "--wait")
    until(lambda: _everything(kubectl, namespace) <= before, "nothing is left")


def test_an_upgrade_brings_the_new_crd_and_uninstalling_keeps_it_and_the_jobs(
    helm, without_crd, api, kubectl, namespace, tmp_path
):
    older = _older_chart(tmp_path)
    place = ("--namespace", namespace)
    helm("install", RELEASE, str(older), *place)
    kubectl("wait", "--for=condition=Established", f"crd/{CRD_NAME}")
    assert "Reason" not in _columns(api)
    job = JobUnderTest(api, namespace, "kept").create()
    helm("upgrade", RELEASE, str(CHART), *place)
    assert "Reason" in _columns(api)
    helm("uninstall", RELEASE, *place, "--wait")
    assert job.resource()["spec"]["output"]["claimName"] == "states"


@ONCE
def test_the_operator_gets_along_with_its_cluster_role_and_needs_all_of_it(
    installed, own_control_plane, api, kubelet, accounts, namespace
):
    installed()
    accounts.include(OperatorAccount(RELEASE, namespace), "cluster-wide")
    used = _used_in_a_life_of_jobs(own_control_plane, api, kubelet, namespace)
    role = api.get("ClusterRole", f"{namespace}:{RELEASE}")
    assert used == granted(role["rules"])


@ONCE
def test_the_operator_gets_along_with_a_role_in_its_namespace_and_needs_all_of_it(
    installed, own_control_plane, api, kubelet, accounts, namespace
):
    accounts.include(OperatorAccount(RELEASE, namespace), "namespaced")
    installed(f'watchNamespaces=["{namespace}"]')
    used = _used_in_a_life_of_jobs(own_control_plane, api, kubelet, namespace, namespaces=namespace)
    assert used == granted(api.get("Role", RELEASE, namespace=namespace)["rules"])


def _restrict(api: KubeApi, namespace: str) -> None:
    api.patch("Namespace", namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})


def _used_in_a_life_of_jobs(
    control_plane: ControlPlane, api: KubeApi, kubelet: PlayedKubelet, namespace: str, **settings: str
) -> set[Right]:
    """What the operator, as the chart's service account, asks for while jobs wait, run, pause, end and expire."""
    account = OperatorAccount(RELEASE, namespace)
    kubeconfig = account.kubeconfig(control_plane, settings.get("namespaces", ""))
    with _operator(control_plane.folder / f"operator-{namespace}", kubeconfig, **settings):
        _live(Field(api, kubelet, namespace))
    calls = calls_of(control_plane.audit_log, account.user)
    assert [call for call in calls if call.is_forbidden] == []
    return rights_used(calls)


def _live(field: Field) -> None:
    field.claims()
    late = field.job("late", {"startDeadlineSeconds": 15})
    until(lambda: bool(late.children()), "there is a Job that the deadline deletes")
    done = field.running_job("done", {"ttlSecondsAfterFinished": 0})
    for suspend in (True, False, True):
        done.patch_spec(suspend=suspend)
        done.wait("Suspended", str(suspend), "Suspended" if suspend else "NotSuspended")
    done.patch_spec(suspend=False)
    late.wait("Succeeded", "False", "StartDeadlineExceeded")
    field.report(done, "succeeded")
    until(
        lambda: field.api.find("ExtractionJob", "done", namespace=field.namespace) is None, "the finished job expires"
    )


@contextmanager
def _operator(folder: Path, kubeconfig: Path, **settings: str) -> Iterator[None]:
    folder.mkdir()
    process = operator_process(folder, kubeconfig, **settings)
    process.start()
    try:
        yield
        process.check()
    finally:
        process.stop()


def _everything(kubectl: Kubectl, namespace: str) -> set[str]:
    """Every object of the namespace, and of the cluster those that say that they are the namespace's."""
    found: set[str] = set()
    for scope in ("true", "false"):
        kinds = kubectl("api-resources", "--verbs=list", f"--namespaced={scope}", "--output=name").split()
        wanted = ",".join(kind for kind in kinds if not kind.startswith(PASSING))
        names = kubectl("get", wanted, "--namespace", namespace, "--output=name", "--ignore-not-found").split()
        found |= {name for name in names if scope == "true" or namespace in name}
    return found - {f"namespace/{namespace}"}


def _columns(api: KubeApi) -> list[str]:
    (version,) = api.get("CustomResourceDefinition", CRD_NAME)["spec"]["versions"]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def _older_chart(folder: Path) -> Path:
    """The chart before it had the printer column Reason."""
    chart = folder / "drillcore"
    shutil.copytree(CHART, chart)
    crd = chart / "templates" / "crd.yaml"
    lines = crd.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.strip() == "- name: Reason")
    end = next(i for i in range(at + 1, len(lines)) if lines[i].strip().startswith("- name:"))
    crd.write_text("".join(lines[:at] + lines[end:]))
    return chart
