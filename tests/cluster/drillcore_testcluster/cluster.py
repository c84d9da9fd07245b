"""The cluster that the tests use: an own control plane, or the one that the user's kubeconfig names.

As with envtest, USE_EXISTING_CLUSTER=true takes the current context of the user's kubeconfig; tests that
stop the API server or read its audit log are then skipped.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from drillcore_testcluster import binaries
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.kubectl import Kubectl
from drillcore_testcluster.ports import LOOPBACK, free_ports
from drillcore_testcluster.processes import Process, new_run_folder, sweep

_PROXY_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class TestCluster:
    """A running cluster and its administrator's ways in."""

    __test__ = False

    api: KubeApi
    kubectl: Kubectl
    folder: Path
    """This run's folder: logs, certificates; gone at the end."""
    own: ControlPlane | None
    """The control plane that this run started; None for an existing cluster."""


@contextmanager
def running_cluster(controller_qps: int | None = None) -> Iterator[TestCluster]:
    """Gives the cluster and ends whatever was started for it, also when a test fails.

    Args:
        controller_qps: requests a second of an own control plane's controllers; None: their own defaults.

    Raises:
        MissingPiece: This machine lacks a binary.
    """
    sweep()
    folder = new_run_folder()
    try:
        with _existing(folder) if binaries.uses_existing_cluster() else _own(folder, controller_qps) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder)


@contextmanager
def _own(folder: Path, controller_qps: int | None) -> Iterator[TestCluster]:
    control_plane = ControlPlane(folder, controller_qps)
    try:
        control_plane.start()
        kubectl = Kubectl(binaries.find(binaries.KUBECTL), control_plane.admin_kubeconfig)
        yield TestCluster(control_plane.api, kubectl, folder, control_plane)
    finally:
        control_plane.stop()


@contextmanager
def _existing(folder: Path) -> Iterator[TestCluster]:
    """Reaches the cluster through `kubectl proxy`, which knows every way to log in."""
    kubeconfig = Path(os.environ.get("KUBECONFIG", Path.home() / ".kube" / "config"))
    kubectl = Kubectl(_user_kubectl(), kubeconfig)
    (port,) = free_ports(1)
    arguments = [f"--kubeconfig={kubeconfig}", "proxy", f"--port={port}"]
    proxy = Process("kubectl-proxy", kubectl.binary, arguments, folder)
    proxy.start()
    api = KubeApi(httpx.Client(base_url=f"http://{LOOPBACK}:{port}", trust_env=False))
    try:
        _wait_for_proxy(proxy, api)
        yield TestCluster(api, kubectl, folder, None)
    finally:
        api.close()
        proxy.stop()


def _user_kubectl() -> Path:
    if found := shutil.which("kubectl"):
        return Path(found)
    raise MissingPiece(f"{binaries.EXISTING_VARIABLE} is set and `kubectl` is not on the PATH")


def _wait_for_proxy(proxy: Process, api: KubeApi) -> None:
    deadline_s = time.monotonic() + _PROXY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        proxy.check()
        try:
            if api.is_ready():
                return
        except httpx.TransportError:
            pass  # not listening yet
        time.sleep(0.05)
    raise MissingPiece(f"the existing cluster does not answer:\n{proxy.log_tail()}")
