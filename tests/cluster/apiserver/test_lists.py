"""The operator's own reader of the API server, with more objects than a page holds."""

from __future__ import annotations

import asyncio

import pytest

from drillcore_operator.cluster import Cluster, Connection, Credentials, cluster
from drillcore_operator.keys import JobKey
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.operator_account import SuiteAccounts

pytestmark = pytest.mark.apiserver

NUM_JOBS = 5


def test_keys_over_several_pages_are_those_of_all_jobs(
    crd: object, api: KubeApi, accounts: SuiteAccounts, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 2)
    assert asyncio.run(_listed(accounts, namespace)) == ([], [], [])
    names = [f"job-{number}" for number in range(NUM_JOBS)]
    for name in names:
        JobUnderTest(api, namespace, name).create()
    keys = [JobKey(namespace, name) for name in names]
    assert asyncio.run(_listed(accounts, namespace)) == (keys, keys, names)


async def _listed(accounts: SuiteAccounts, namespace: str) -> tuple[list[JobKey], list[JobKey], list[str]]:
    """The namespace's keys, the same keys among those of the cluster, and the names of whole jobs."""
    async with Connection(Credentials.from_kubeconfig(accounts.cluster_wide), 100.0) as connection:
        reader = Cluster(connection)
        documents = await reader.list_resources(namespace)
        return (
            await reader.list_keys(namespace),
            [key for key in await reader.list_keys(None) if key.namespace == namespace],
            [document["metadata"]["name"] for document in documents if document["spec"]],
        )
