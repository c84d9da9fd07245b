"""A node without a kubelet: a Node object that is kept Ready, as kwok does it.

Its Lease is renewed all the time; without that the controller-manager would call it not ready after 50 s.
Source: https://kubernetes.io/docs/reference/node/node-status/#heartbeats
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import httpx

from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.kube_api import KubeApi, Object

LEASE_NAMESPACE = "kube-node-lease"
LEASE_INTERVAL_S = 10.0
CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}


class PlayedNode:
    """One Ready node with GPUs; schedulable by the real scheduler."""

    def __init__(self, api: KubeApi, name: str, capacity: dict[str, str] | None = None) -> None:
        self.name = name
        self._api = api
        self._capacity = CAPACITY | (capacity or {})
        self._stopped = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"lease of {name}", daemon=True)

    def start(self) -> None:
        """Creates the node and begins to renew its lease."""
        labels = {"kubernetes.io/hostname": self.name}
        metadata = {"name": self.name, "labels": labels}
        self._api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        self._api.create(self._lease(), namespace=LEASE_NAMESPACE)
        self.set_ready()
        self._renewing.start()

    def set_ready(self) -> None:
        """Reports the node as kubelet does."""
        now = now_text()
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {"conditions": [ready], "capacity": self._capacity, "allocatable": self._capacity}
        self._api.patch("Node", self.name, {"status": status}, subresource="status")
        # The node lifecycle controller takes its own taint away when it sees the condition; not to wait for it:
        self._api.patch("Node", self.name, {"spec": {"taints": None}})

    def stop(self) -> None:
        """Ends the heartbeat and removes the node."""
        self._stopped.set()
        self._renewing.join()
        for kind, namespace in (("Lease", LEASE_NAMESPACE), ("Node", None)):
            self._api.delete(kind, self.name, namespace=namespace)

    def _lease(self) -> Object:
        spec: dict[str, Any] = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": 40,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": LEASE_NAMESPACE},
            "spec": spec,
        }

    def _renew(self) -> None:
        while not self._stopped.wait(LEASE_INTERVAL_S):
            try:
                self._api.patch("Lease", self.name, {"spec": self._lease()["spec"]}, namespace=LEASE_NAMESPACE)
            except (ApiError, httpx.TransportError):
                continue  # a test has stopped the API server; the next beat tells


def now_text() -> str:
    """The present time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
