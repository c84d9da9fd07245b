"""Fixtures of every test that needs a cluster. The code behind them is drillcore_testcluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn
from uuid import uuid4

import pytest

from drillcore_testcluster import binaries
from drillcore_testcluster.cluster import TestCluster, running_cluster
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.helm import Helm
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl


@pytest.fixture(scope="session")
def cluster() -> Iterator[TestCluster]:
    try:
        with running_cluster() as running:
            yield running
    except MissingPiece as missing:
        _skip_or_fail(str(missing))


@pytest.fixture(scope="session")
def own_control_plane(cluster: TestCluster) -> ControlPlane:
    if cluster.own is None:
        pytest.skip("stops processes or reads the audit log: not on an existing cluster")
    return cluster.own


@pytest.fixture(scope="session")
def api(cluster: TestCluster) -> KubeApi:
    return cluster.api


@pytest.fixture(scope="session")
def kubectl(cluster: TestCluster) -> Kubectl:
    return cluster.kubectl


@pytest.fixture(scope="session")
def helm3(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        binary = binaries.find(binaries.HELM)
    except MissingPiece as missing:
        _skip_or_fail(str(missing))
    return Helm(binary, tmp_path_factory.mktemp("helm3"), cluster.kubectl.kubeconfig)


@pytest.fixture
def namespace(api: KubeApi) -> Iterator[str]:
    name = f"test-{uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("Namespace", name)


def _skip_or_fail(reason: str) -> NoReturn:
    """A laptop without the binaries skips; CI, where they must be, fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
