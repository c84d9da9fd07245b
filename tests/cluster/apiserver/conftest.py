"""The API server with the ExtractionJob resource, a node with a played kubelet, and the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from drillcore_spec import names
from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.helm import Helm
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.operator_account import CLUSTER_WIDE, SuiteAccounts
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.played_node import PlayedNode
from drillcore_testcluster.processes import Process
from drillcore_testcluster.suite_rights import PLUGIN, SuiteRights


@pytest.fixture(scope="session")
def crd(api: KubeApi) -> dict[str, object]:
    """The established CRD as the API server has it."""
    applied = api.apply(custom_resource_definition(), manager="test", force=True)
    if not _established(applied):
        events = api.watch("CustomResourceDefinition", fieldSelector=f"metadata.name={CRD_NAME}")
        applied = next(event["object"] for event in events if _established(event["object"]))
    return applied


@pytest.fixture(scope="session")
def kubelet(api: KubeApi) -> Iterator[PlayedKubelet]:
    node = PlayedNode(api, "played-node")
    kubelet = PlayedKubelet(api, node.name)
    node.start()
    kubelet.start()
    yield kubelet
    kubelet.stop()
    node.stop()


@pytest.fixture(scope="session")
def accounts(own_control_plane: ControlPlane, helm3: Helm, request: pytest.FixtureRequest) -> Iterator[SuiteAccounts]:
    """The chart's accounts; at the end, what they did goes to the comparison over the whole suite."""
    accounts = SuiteAccounts(own_control_plane, helm3)
    yield accounts
    suite: SuiteRights | None = request.config.pluginmanager.get_plugin(PLUGIN)
    if suite is not None:
        accounts.tell(suite)


@pytest.fixture(scope="module")
def operator(own_control_plane: ControlPlane, crd: object, accounts: SuiteAccounts) -> Iterator[Process]:
    """Serves the whole cluster while a module runs that asks for it; others start their own."""
    process = operator_process(own_control_plane.folder, accounts.cluster_wide, kueue_enabled="true")
    process.start()
    yield process
    process.check()
    process.stop()


@pytest.fixture
def operator_user(operator: Process) -> str:
    """The name of that operator in the audit log."""
    return CLUSTER_WIDE.user


@pytest.fixture
def field(api: KubeApi, kubelet: PlayedKubelet, operator: Process, namespace: str) -> Field:
    return Field(api, kubelet, namespace)


@pytest.fixture
def schedulable(field: Field) -> Iterator[Field]:
    """The field with the claims of the smallest job; whatever a test did to the node is undone."""
    field.claims()
    yield field
    field.kubelet.is_frozen = False
    field.api.patch("Node", field.kubelet.node, {"spec": {"unschedulable": None, "taints": None}})


@pytest.fixture
def token_for(api: KubeApi, namespace: str) -> Callable[..., str]:
    """`token_for(account, reads=...)`: a token of a new service account, which may get jobs if `reads`."""

    def make(account: str, *, reads: bool = False, audience: str | None = None) -> str:
        metadata = {"name": account, "namespace": namespace}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        if reads:
            _let_read(api, metadata)
        return api.create_token(namespace, account, audience=audience)

    return make


def _let_read(api: KubeApi, metadata: dict[str, str]) -> None:
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [names.API_GROUP], "resources": [names.PLURAL], "verbs": ["get"]}
    api.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    role = {"apiGroup": group, "kind": "Role", "name": metadata["name"]}
    subjects = [{"kind": "ServiceAccount", **metadata}]
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": metadata}
    api.create(binding | {"roleRef": role, "subjects": subjects})


def _established(crd: dict[str, object]) -> bool:
    status = crd.get("status")
    assert isinstance(status, dict)
    conditions = status.get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
