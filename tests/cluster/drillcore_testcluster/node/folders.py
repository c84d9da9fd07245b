"""Where a node keeps its files: what is dear to make in the cache folder, all else below one folder in /var/tmp.

There is one node at a time on a machine: its network namespace, its cgroup and its folders have fixed names, so
that a later run finds and removes whatever a killed one left.
"""

from __future__ import annotations

from pathlib import Path

from drillcore_testcluster.cache import cache_folder

NAME = "drillcore-node"
"""Name of the network namespace, of the cgroup below which all pods run, and of the folders."""

RUN = Path("/run") / NAME
"""Sockets, whose paths have to be short, and mounts of running containers."""
BUILDAH_RUN = Path("/run/drillcore-buildah")
"""Mounts of running builds: a build may run beside a node."""
WORK = Path("/var/tmp") / NAME
"""kubelet's folder, logs and volumes of this run."""
KUBELET = WORK / "kubelet"
POD_LOGS = WORK / "pod-logs"
VOLUMES = WORK / "volumes"
CONTAINERD_STATE = RUN / "containerd"
CONTAINERD_SOCKET = RUN / "containerd.sock"


def storage() -> Path:
    """Kept between runs: the base image, buildah's layers, and the images that containerd has unpacked."""
    return cache_folder() / "node"


def containerd_root() -> Path:
    """containerd's images and snapshots."""
    return storage() / "containerd"
