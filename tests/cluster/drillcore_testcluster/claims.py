"""Bound claims for tests, without a storage provisioner: each volume is made for its claim."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_testcluster.errors import TestClusterError
from drillcore_testcluster.kube_api import KubeApi

MANY = ("ReadWriteMany",)


def bound_claim(api: KubeApi, namespace: str, name: str, access_modes: Sequence[str] = MANY) -> None:
    """Creates a volume and a claim for each other; the real controller binds them within seconds."""
    volume_name = f"{namespace}-{name}"
    common = {"accessModes": list(access_modes), "storageClassName": ""}
    volume = common | {
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": namespace, "name": name},
        "hostPath": {"path": f"/nonexistent/{volume_name}"},
    }
    api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume_name}, "spec": volume})
    claim = common | {"volumeName": volume_name, "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})


def wait_until_bound(api: KubeApi, namespace: str, timeout_s: int = 20) -> None:
    """Waits until every claim of the namespace is bound."""
    waiting = {claim["metadata"]["name"] for claim in api.list("PersistentVolumeClaim", namespace=namespace)}
    for event in api.watch("PersistentVolumeClaim", namespace=namespace, timeout_s=timeout_s):
        if event["object"].get("status", {}).get("phase") == "Bound":
            waiting.discard(event["object"]["metadata"]["name"])
        if not waiting:
            return
    raise TestClusterError(f"claims {sorted(waiting)} were not bound in {timeout_s} s")
