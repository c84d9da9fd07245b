"""containerd with folders, sockets and settings of its own."""

from __future__ import annotations

import json
from pathlib import Path

from drillcore_testcluster.node import folders
from drillcore_testcluster.node.base_image import PAUSE_IMAGE
from drillcore_testcluster.node.commands import checked, piped
from drillcore_testcluster.node.network import POD_CIDR
from drillcore_testcluster.processes import Process
from drillcore_testcluster.waiting import until

_NAMESPACE = "k8s.io"
"""Where the CRI keeps its images and containers."""

_CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
oom_score = 0
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Without CAP_SYS_RESOURCE nobody may lower a process's OOM score, and runc would fail.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
"""

_CNI = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        # Not a bridge: answers of a Service's pod have to pass the node, which knows the connection.
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_CIDR}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(folders.RUN / "cni-addresses"),
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


class Containerd:
    """One containerd; must be started inside the node's network namespace."""

    def __init__(self) -> None:
        """Writes its settings; starts nothing."""
        cni = folders.WORK / "cni"
        cni.mkdir()
        (cni / "pods.conflist").write_text(json.dumps(_CNI))
        config = folders.WORK / "containerd.toml"
        places = {"root": folders.containerd_root(), "state": folders.CONTAINERD_STATE}
        config.write_text(_CONFIG.format(socket=folders.CONTAINERD_SOCKET, pause=PAUSE_IMAGE, cni=cni, **places))
        self.process = Process("containerd", "containerd", ["--config", str(config)], folders.WORK)

    def start(self) -> None:
        """Starts it without any container, whatever an earlier run left."""
        self._start()
        if left := self._names("containers"):
            self._ctr("containers", "delete", *left)
            # The CRI reads containers only at its start.
            self.process.stop()
            self._start()

    def stop(self) -> None:
        """Ends it; containers run on."""
        self.process.stop()

    def images(self) -> dict[str, str]:
        """Digests of the images that are there by name; the CRI names each a second time, after its configuration."""
        rows = [line.split() for line in self._ctr("images", "list").splitlines()[1:]]
        return {row[0]: row[2] for row in rows}

    def load(self, archive_of: list[str]) -> None:
        """Takes in the image that a command writes to its standard output as an archive."""
        piped(archive_of, self._argv("images", "import", "--no-unpack=false", "-"))

    def remove_images(self, names: list[str]) -> None:
        """Removes images and what only they use."""
        if names:
            self._ctr("images", "remove", "--sync", *names)

    def _start(self) -> None:
        self.process.start()
        until(self._answers, "containerd answers")

    def _answers(self) -> bool:
        self.process.check()
        return Path(folders.CONTAINERD_SOCKET).is_socket() and bool(self._ctr("version"))

    def _names(self, kind: str) -> list[str]:
        return self._ctr(kind, "list", "--quiet").split()

    def _ctr(self, *words: str) -> str:
        return checked(*self._argv(*words))

    def _argv(self, *words: str) -> list[str]:
        return ["ctr", "--address", str(folders.CONTAINERD_SOCKET), "--namespace", _NAMESPACE, *words]
