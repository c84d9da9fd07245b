"""The status API as a user reaches it: through `kubectl port-forward`, with a token of their own account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.real_cluster import RealCluster
from drillcore_testcluster.node.release import NAMESPACE, SERVICE
from drillcore_testcluster.ports import LOOPBACK, free_ports
from drillcore_testcluster.processes import Process
from drillcore_testcluster.waiting import until

ACCOUNT = "reader"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class StatusPage:
    """Reads one namespace's jobs."""

    client: httpx.Client
    namespace: str

    def html(self) -> str:
        """The page itself, which needs no token."""
        return self.client.get("/").raise_for_status().text

    def job(self, name: str) -> Object:
        """A job as the page shows it."""
        answer: Object = self.client.get(self._path(name)).raise_for_status().json()
        return answer

    def stream(self, name: str) -> Iterator[tuple[str, Object]]:
        """Kind and data of each server-sent event."""
        with self.client.stream("GET", f"{self._path(name)}/stream", timeout=TIMEOUT_S) as response:
            kind = ""
            for line in response.raise_for_status().iter_lines():
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield kind, json.loads(line.removeprefix("data: "))

    def _path(self, name: str) -> str:
        return f"/v1/namespaces/{self.namespace}/extractionjobs/{name}"


@contextmanager
def status_page(cluster: RealCluster, namespace: str) -> Iterator[StatusPage]:
    """Makes an account that may read the namespace's jobs, and forwards a port."""
    (port,) = free_ports(1)
    kubectl = cluster.kubectl
    arguments = [f"--kubeconfig={kubectl.kubeconfig}", "--namespace", NAMESPACE]
    arguments += ["port-forward", f"service/{SERVICE}", f"{port}:80"]
    forward = Process("port-forward", kubectl.binary, arguments, cluster.folder)
    token = _reader_token(cluster, namespace)
    forward.start()
    headers = {"Authorization": f"Bearer {token}"}
    client = httpx.Client(base_url=f"http://{LOOPBACK}:{port}", headers=headers, timeout=TIMEOUT_S, trust_env=False)
    try:
        until(lambda: _answers(client), "the forwarded port answers")
        yield StatusPage(client, namespace)
    finally:
        client.close()
        forward.stop()


def _reader_token(cluster: RealCluster, namespace: str) -> str:
    """The chart's aggregation lets the built-in role `view` read ExtractionJobs."""
    metadata = {"name": ACCOUNT, "namespace": namespace}
    cluster.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    cluster.api.create(binding)
    return cluster.api.create_token(namespace, ACCOUNT, lifetime_s=3600)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False
