"""One real node: containerd, kubelet and kube-proxy beside a control plane, all in a network namespace of its own.

Whatever a killed run left, processes, mounts, cgroups, the namespace and folders, is found by its fixed name and
removed before the next one begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node import cgroups, folders, mounts, network
from drillcore_testcluster.node.base_image import PAUSE_IMAGE
from drillcore_testcluster.node.commands import only_one, require_programs, timed
from drillcore_testcluster.node.containerd import Containerd
from drillcore_testcluster.node.images import TARGETS, Images, image_builder
from drillcore_testcluster.node.kubelet import NODE_NAME, kube_proxy_process, kubelet_process
from drillcore_testcluster.waiting import until

READY_TIMEOUT_S = 120.0
GPU = "nvidia.com/gpu"


class Node:
    """A running node; a test may stop its kubelet and start it again."""

    name = NODE_NAME

    def __init__(self, control_plane: ControlPlane) -> None:
        """Writes settings; starts nothing."""
        self.api = control_plane.api
        self.containerd = Containerd()
        self.kubelet = kubelet_process(control_plane)
        self.kube_proxy = kube_proxy_process(control_plane)

    def start(self, images: Images) -> None:
        """Starts the node with these images, and waits until it takes pods."""
        with timed("containerd"):
            self.containerd.start()
        with timed("images into containerd"):
            _load(self.containerd, images)
        with timed("kubelet"):
            self.kubelet.start()
            self.kube_proxy.start()
            until(self.is_ready, "the node is Ready", READY_TIMEOUT_S)

    def is_ready(self) -> bool:
        """Whether the control plane calls the node Ready."""
        self.kubelet.check()
        self.kube_proxy.check()
        node = self.api.find("Node", self.name) or {}
        conditions = node.get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def set_gpus(self, count: int) -> None:
        """Lets the node claim to have GPUs, an extended resource: scheduling needs no device."""
        patch = {"status": {"capacity": {GPU: str(count)}}}
        self.api.patch("Node", self.name, patch, subresource="status")
        until(lambda: self._allocatable().get(GPU) == str(count), f"the node offers {count} GPUs")

    def _allocatable(self) -> Object:
        allocatable: Object = self.api.get("Node", self.name)["status"]["allocatable"]
        return allocatable

    def stop(self) -> None:
        """Ends kubelet first, so that nothing is started again, then every pod, then the rest."""
        self.kubelet.stop(kill=True)
        self.kube_proxy.stop(kill=True)
        cgroups.kill_processes()
        self.containerd.stop()


@contextmanager
def machine() -> Iterator[None]:
    """Prepares the machine for a node, and leaves it as it was; the caller is inside the namespace meanwhile.

    Raises:
        MissingPiece: The machine lacks a program or a right, or has a node already.
    """
    require_programs()
    with only_one(folders.NAME, "has the node"), ExitStack() as undo:
        clean()
        undo.callback(clean)
        for folder in (folders.RUN, folders.WORK, folders.KUBELET, folders.POD_LOGS, folders.VOLUMES):
            folder.mkdir(exist_ok=True)
        network.create()
        cgroups.create()
        with network.entered():
            yield


def clean() -> None:
    """Removes whatever a node has left, in any state."""
    for process in _processes():
        process.kill()
    cgroups.kill_processes()
    until(lambda: not list(_processes()), "the node's processes are gone")
    mounts.unmount_all()
    cgroups.remove()
    network.remove()
    for folder in (folders.RUN, folders.WORK):
        if folder.exists():
            shutil.rmtree(folder)


def _processes() -> Iterator[psutil.Process]:
    """containerd, its shims and kubelet: their command lines name the node's folders."""
    places = (str(folders.RUN), str(folders.WORK))
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        program = Path(words[0]).name if words else ""
        if program.startswith(("containerd", "kube")) and any(place in word for word in words for place in places):
            yield process


def _load(containerd: Containerd, images: Images) -> None:
    """Takes in what is missing, and removes the images of earlier states of the source."""
    wanted = [PAUSE_IMAGE, *map(images.name, TARGETS)]
    present = containerd.images()
    kept = {present[name] for name in wanted if name in present}
    containerd.remove_images([name for name, digest in present.items() if digest not in kept])
    builder = image_builder()
    for name in wanted:
        if name not in present:
            containerd.load(builder.command("push", "--quiet", name, f"docker-archive:/dev/stdout:{name}"))
