"""Wrong values are refused with a message that names the value; right ones are documented."""

from __future__ import annotations

import json

import pytest
import yaml

from drillcore_testcluster.helm import CHART

pytestmark = pytest.mark.apiserver

WRONG = {
    'watchNamespace=["a"]': "watchNamespace",
    'watchNamespaces="team-a"': "watchNamespaces",
    'watchNamespaces=["Team_A"]': "watchNamespaces",
    'watchNamespaces=["a", "a"]': "watchNamespaces",
    'images.operator.tag="a b"': "tag",
    'images.server.digest="latest"': "digest",
    'images.operator.pullPolicy="Sometimes"': "pullPolicy",
    'images.operator.repository=""': "repository",
    "operator.workers=0": "workers",
    'operator.podLabels={"app.kubernetes.io/name":"x"}': "podLabels",
    'operator.podLabels={"team":"a b"}': "podLabels",
    'metrics.dashboard.labels={"helm.sh/chart":"x"}': "labels",
    'selfTest.storageClassName="Fast"': "storageClassName",
    'operator.workers="8"': "workers",
    "operator.runAsUser=0": "runAsUser",
    "operator.statusIntervalSeconds=0": "statusIntervalSeconds",
    "operator.requestsPerSecond=0": "requestsPerSecond",
    'api.advertiseUrl="drillcore:80"': "advertiseUrl",
    'api.advertiseUrl="http://drillcore/"': "advertiseUrl",
    'api.tls.secret="x"': "secret",
    'api.service.type="ExternalName"': "type",
    'auth.delegator.create="yes"': "create",
    "networkPolicy.apiServerPorts=[]": "apiServerPorts",
    "networkPolicy.apiServerPorts=[0]": "apiServerPorts",
    'metrics.podMonitor.interval="soon"': "interval",
    "selfTest.timeoutSeconds=1": "timeoutSeconds",
    'crds.install="true"': "install",
    f'fullnameOverride="{"x" * 41}"': "fullnameOverride",
}


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_refused_by_name(helm, value):
    result = helm.template(value)
    assert result.returncode != 0
    assert WRONG[value] in result.stderr


def test_helm_refuses_a_cluster_that_is_too_old(helm):
    result = helm.run("template", "drillcore", str(CHART), "--kube-version", "1.32.9")
    assert result.returncode != 0
    assert ">=1.33.0-0" in result.stderr


def test_a_storage_class_may_have_dots_and_a_pod_labels_of_its_own(helm):
    result = helm.template('selfTest.storageClassName="rook.ceph-block"', 'operator.podLabels={"team":"a"}')
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("version", ["1.33.0", "1.33.1-gke.100", "1.34.4-eks-abc", "1.35.0"])
def test_versions_as_vendors_write_them_are_accepted(helm, version):
    result = helm.run("template", "drillcore", str(CHART), "--kube-version", version)
    assert result.returncode == 0, result.stderr


def test_every_value_has_a_rule_and_every_rule_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert _keys(values, schema) == []


def _keys(values: dict, schema: dict, path: str = "", root: dict | None = None) -> list[str]:
    """Paths that stand in one of both only, free-form objects left out."""
    root = root or schema
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    properties = schema.get("properties")
    if properties is None or not isinstance(values, dict):
        return []
    assert schema["additionalProperties"] is False, path
    odd = [f"{path}.{key}" for key in set(properties) ^ set(values) if key != "global"]
    for key in set(properties) & set(values):
        odd += _keys(values[key], properties[key], f"{path}.{key}", root)
    return odd
