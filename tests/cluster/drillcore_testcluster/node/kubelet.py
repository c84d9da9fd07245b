"""kubelet and kube-proxy of the node."""

from __future__ import annotations

import json
from pathlib import Path

from drillcore_testcluster import binaries
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.node import folders
from drillcore_testcluster.node.network import NODE_ADDRESS, POD_CIDR
from drillcore_testcluster.processes import Process

NODE_NAME = "real-node"


def kubelet_process(control_plane: ControlPlane) -> Process:
    """kubelet, which registers the node; not started."""
    config = folders.WORK / "kubelet.json"
    config.write_text(json.dumps(_config(control_plane.authority.root.certificate)))
    kubeconfig = control_plane.kubeconfig(f"system:node:{NODE_NAME}", ["system:nodes"])
    arguments = [
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
        f"--root-dir={folders.KUBELET}",
        f"--cert-dir={folders.WORK / 'kubelet-pki'}",
    ]
    return Process("kubelet", binaries.find(binaries.KUBELET), arguments, folders.WORK)


def kube_proxy_process(control_plane: ControlPlane) -> Process:
    """kube-proxy, which makes Services' addresses reach pods; not started."""
    arguments = [
        f"--kubeconfig={control_plane.kubeconfig('system:kube-proxy', [])}",
        f"--hostname-override={NODE_NAME}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_CIDR}",
        # Only the machine's own namespace may change this limit.
        "--conntrack-max-per-core=0",
    ]
    return Process("kube-proxy", binaries.find(binaries.KUBE_PROXY), arguments, folders.WORK)


def _config(authority: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{folders.CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folders.NAME}",
        "podLogsDir": str(folders.POD_LOGS),
        "resolvConf": "",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        # A test machine's disk may be rather full; the images stay.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "enforceNodeAllocatable": [],
        "nodeStatusUpdateFrequency": "2s",
    }
