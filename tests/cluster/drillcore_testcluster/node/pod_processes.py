"""Processes of pods on the own node, as the machine's root sees them: who else could kill process 1 of a container?"""

from __future__ import annotations

from pathlib import Path

import psutil

from drillcore_testcluster.kube_api import Object

_MODULES = {"sidecar": "drillcore_server.sidecar", "server": "drillcore_server.shard"}


def process_of(pod: Object, container: str) -> psutil.Process:
    """The main process of a shard's sidecar or server."""
    uid = pod["metadata"]["uid"]
    for process in psutil.process_iter(["cmdline"]):
        if _MODULES[container] in (process.info["cmdline"] or ()) and uid in _cgroup(process):
            return process
    raise LookupError(f"no process of {container} in pod {pod['metadata']['name']}")


def _cgroup(process: psutil.Process) -> str:
    """kubelet names the cgroups of a pod after its uid."""
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except FileNotFoundError:
        return ""
