"""The API server with the ExtractionJob resource, a node with a played kubelet, and the operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.played_node import PlayedNode
from drillcore_testcluster.processes import Process

OPERATOR_USER = "drillcore-test-operator"


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


@pytest.fixture(scope="module")
def operator(own_control_plane: ControlPlane, crd: object) -> Iterator[Process]:
    """Serves the whole cluster while a module runs that asks for it; others start their own."""
    kubeconfig = own_control_plane.kubeconfig(OPERATOR_USER, ["system:masters"])
    process = operator_process(own_control_plane.folder, kubeconfig, kueue_enabled="true")
    process.start()
    yield process
    process.check()
    process.stop()


@pytest.fixture
def field(api: KubeApi, kubelet: PlayedKubelet, operator: Process, namespace: str) -> Field:
    return Field(api, kubelet, namespace)


def _established(crd: dict[str, object]) -> bool:
    status = crd.get("status")
    assert isinstance(status, dict)
    conditions = status.get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
