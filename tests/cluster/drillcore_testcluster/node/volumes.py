"""Claims of jobs: bound to folders of the own node, or left to an existing cluster's default storage class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster.claims import wait_until_bound
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.node import folders
from drillcore_testcluster.node.commands import checked
from drillcore_testcluster.node.kubelet import NODE_NAME

STORAGE_CLASS = "drillcore-test"
_MODES = ["ReadWriteMany"]
_EXISTING_MODES = ["ReadWriteOnce"]
"""What every provisioner has; all pods of a test then run on one node."""


@dataclass(frozen=True)
class Volumes:
    """Makes claims; on the own node it makes their volumes too, because nothing provisions there."""

    api: KubeApi
    on_own_node: bool

    def prepare(self) -> None:
        """Makes the own node's storage class, which provisions nothing."""
        if self.on_own_node:
            body = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": STORAGE_CLASS},
                "provisioner": "kubernetes.io/no-provisioner",
            }
            self.api.create(body)

    def claim(self, namespace: str, name: str, size: str = "2Gi", *, memory: str = "") -> None:
        """Makes a bound claim.

        Args:
            namespace: its namespace.
            name: its name.
            size: what it asks for; nothing enforces it on the own node.
            memory: size of a memory file system that backs it, which enforces its size; own node only.
        """
        self.unbound_claim(namespace, name, size)
        self.provide(f"{namespace}-{name}", size, claim=(namespace, name), memory=memory)
        wait_until_bound(self.api, namespace)

    def unbound_claim(self, namespace: str, name: str, size: str = "2Gi") -> None:
        """Makes a claim and no volume for it."""
        modes = _MODES if self.on_own_node else _EXISTING_MODES
        spec: Object = {"accessModes": modes, "resources": {"requests": {"storage": size}}}
        if self.on_own_node:
            spec["storageClassName"] = STORAGE_CLASS
        metadata = {"name": name, "namespace": namespace}
        self.api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})

    def provide(self, name: str, size: str, claim: tuple[str, str] | None = None, memory: str = "") -> Path | None:
        """Makes a volume on the own node, for one claim or whichever asks first; gives its folder."""
        if not self.on_own_node:
            return None
        folder = folders.VOLUMES / name
        folder.mkdir()
        if memory:
            checked("mount", "-t", "tmpfs", "-o", f"size={memory}", "tmpfs", folder)
        spec = {
            "capacity": {"storage": size},
            "accessModes": [*_MODES, *_EXISTING_MODES],
            "storageClassName": STORAGE_CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [_on_the_node()]}},
        }
        if claim is not None:
            spec["claimRef"] = dict(zip(("namespace", "name"), claim, strict=True))
        self.api.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
        return folder

    def remount(self, namespace: str, name: str, memory: str) -> None:
        """Gives a volume in memory another size, files kept."""
        checked("mount", "-o", f"remount,size={memory}", folders.VOLUMES / f"{namespace}-{name}")


def _on_the_node() -> Object:
    return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]}]}
