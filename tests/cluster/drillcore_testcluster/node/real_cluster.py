"""The cluster of the node tests: the own node, or the one of the user's kubeconfig."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster import binaries
from drillcore_testcluster.cluster import running_cluster
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.helm import Helm
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.node.images import REGISTRY_VARIABLE, Images
from drillcore_testcluster.node.network import NODE_ADDRESS
from drillcore_testcluster.node.node import Node, machine
from drillcore_testcluster.node.volumes import Volumes
from drillcore_testcluster.processes import new_run_folder, sweep


@dataclass(frozen=True)
class RealCluster:
    """A cluster with a real kubelet, and the administrator's ways in."""

    api: KubeApi
    kubectl: Kubectl
    helm: Helm
    folder: Path
    """This run's folder; gone at the end."""
    images: Images
    volumes: Volumes
    control_plane: ControlPlane | None
    node: Node | None
    """The node and its control plane that this run started; None on an existing cluster."""


@contextmanager
def real_cluster() -> Iterator[RealCluster]:
    """Gives the cluster, and ends whatever was started for it, also when a test fails.

    Raises:
        MissingPiece: This machine lacks a program or a right.
    """
    with _existing() if binaries.uses_existing_cluster() else _own() as cluster:
        cluster.volumes.prepare()
        yield cluster


@contextmanager
def _own() -> Iterator[RealCluster]:
    sweep()
    with machine():
        folder = new_run_folder()
        control_plane = ControlPlane(folder, node_address=NODE_ADDRESS)
        node = Node(control_plane)
        try:
            control_plane.start()
            node.start(images := Images.of_source())
            kubectl = Kubectl(binaries.find(binaries.KUBECTL), control_plane.admin_kubeconfig)
            helm = Helm(binaries.find(binaries.HELM), folder / "helm", kubectl.kubeconfig)
            volumes = Volumes(control_plane.api, on_own_node=True)
            yield RealCluster(control_plane.api, kubectl, helm, folder, images, volumes, control_plane, node)
        finally:
            node.stop()
            control_plane.stop()
            shutil.rmtree(folder)


@contextmanager
def _existing() -> Iterator[RealCluster]:
    images = Images.of_source()
    if images.is_local:
        raise MissingPiece(f"{REGISTRY_VARIABLE} has to name a registry that the existing cluster pulls from")
    with running_cluster() as found:
        if (helm := shutil.which("helm")) is None:
            raise MissingPiece(f"{binaries.EXISTING_VARIABLE} is set and `helm` is not on the PATH")
        volumes = Volumes(found.api, on_own_node=False)
        kubectl = found.kubectl
        program = Helm(Path(helm), found.folder / "helm", kubectl.kubeconfig)
        yield RealCluster(found.api, kubectl, program, found.folder, images, volumes, None, None)
