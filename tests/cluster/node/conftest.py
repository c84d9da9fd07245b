"""A cluster with a real kubelet, the chart installed, and a namespace with a model, data and room for outputs."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.account import account
from drillcore_testcluster.node.node import Node
from drillcore_testcluster.node.real_cluster import RealCluster, real_cluster
from drillcore_testcluster.node.release import NAMESPACE, Release, restricted_namespace
from drillcore_testcluster.node.team import TINY, Team

REPOSITORY = Path(__file__).resolve().parents[3]
_CLUSTER = pytest.StashKey[RealCluster]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (cluster := item.config.stash.get(_CLUSTER, None)) is not None:
        report.sections.append(("cluster", account(cluster)))
    return report


@pytest.fixture(scope="session")
def real(pytestconfig: pytest.Config) -> Iterator[RealCluster]:
    try:
        with real_cluster() as cluster:
            pytestconfig.stash[_CLUSTER] = cluster
            yield cluster
            del pytestconfig.stash[_CLUSTER]
    except MissingPiece as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture
def own_node(real: RealCluster) -> Node:
    if real.node is None:
        pytest.skip("stops kubelet or mounts volumes: not on an existing cluster")
    return real.node


@pytest.fixture(scope="session")
def release(real: RealCluster) -> Iterator[Release]:
    """The chart, installed in a restricted namespace."""
    restricted_namespace(real, NAMESPACE)
    release = Release(real)
    release.install()
    yield release
    release.uninstall()


@pytest.fixture(scope="session")
def team(real: RealCluster, release: Release) -> Team:
    """A restricted namespace with the demo model, the quickstart's data and an empty output volume."""
    team = Team(real, restricted_namespace(real, "team"))
    team.prepare(REPOSITORY / "volumes")
    return team


@pytest.fixture(scope="session")
def template(team: Team) -> Object:
    """Spec of a shard's pod, as the operator writes it."""
    job = team.job("template", TINY, suspend=True)
    job.wait("Suspended", "True", "Suspended")
    spec: Object = job.children()[0]["spec"]["template"]["spec"]
    return spec
