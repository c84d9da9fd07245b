"""etcd, kube-apiserver, controller-manager and scheduler on loopback ports, without root.

The real Job controller and the real scheduler run here and only the kubelet is played (played_kubelet.py):
whatever decides about a Job in a test is Kubernetes' own code. Ready in a few seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import httpx

from drillcore_testcluster import audit, binaries
from drillcore_testcluster.binaries import Binary
from drillcore_testcluster.errors import TestClusterError
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.pki import Authority
from drillcore_testcluster.ports import LOOPBACK, free_ports
from drillcore_testcluster.processes import Process

READY_TIMEOUT_S = 60.0
SERVICE_CIDR = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc"
ADMIN_GROUP = "system:masters"
TOKEN_LIFETIME_S = 6 * 3600


_NEVER = "9999"


@dataclass(frozen=True)
class _Ports:
    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


class ControlPlane:
    """One control plane in one run folder; each process can be stopped and started again by a test."""

    def __init__(self, folder: Path, controller_qps: int | None = None, *, node_address: str | None = None) -> None:
        """Makes certificates and settings in `folder`; starts nothing.

        Args:
            folder: the run folder.
            controller_qps: requests a second of each controller and of the scheduler; None: their own defaults.
            node_address: pods of a node at this address reach the API server through its Service, and it reaches
                the node's kubelet; None: everything stays on loopback.

        Raises:
            MissingPiece: A binary or openssl is missing on this machine.
        """
        self.folder = folder
        self.audit_log = folder / "audit.log"
        self._controller_qps = controller_qps
        self._outages: list[tuple[str, str]] = []
        """When each began, and when the API server was ready again."""
        self._node_address = node_address
        self._ports = _Ports(*free_ports(5))
        self.url = f"https://{LOOPBACK}:{self._ports.apiserver}"
        self.authority = Authority(folder / "pki")
        (folder / "audit-policy.yaml").write_text(audit.POLICY)
        self.admin_kubeconfig = self.kubeconfig("drillcore-test-admin", [ADMIN_GROUP])
        self.etcd = self._etcd()
        self.apiserver = self._apiserver()
        self.controller_manager = self._controller_manager()
        self.scheduler = self._scheduler()

    @property
    def processes(self) -> tuple[Process, ...]:
        """In the order of their start."""
        return (self.etcd, self.apiserver, self.controller_manager, self.scheduler)

    @cached_property
    def api(self) -> KubeApi:
        """The API as cluster administrator."""
        return KubeApi.from_kubeconfig(self.admin_kubeconfig)

    def kubeconfig(self, user: str, groups: list[str]) -> Path:
        """A kubeconfig file for a user of these groups; RBAC decides what they may do."""
        return self.authority.kubeconfig(self.url, user, groups)

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        """A kubeconfig with a token of a service account, good for longer than any run."""
        token = self.api.create_token(namespace, account, lifetime_s=TOKEN_LIFETIME_S)
        return self.authority.token_kubeconfig(self.url, f"{namespace}-{account}", token)

    def start(self) -> None:
        """Starts everything and waits until the API server and the default namespace are ready."""
        self.etcd.start()
        self.start_apiserver()
        self.controller_manager.start()
        self.scheduler.start()
        self._wait_for_default_service_account()

    def start_apiserver(self) -> None:
        """Starts the API server and waits until it is ready."""
        self.apiserver.start()
        self._wait_until_ready()

    def begin_outage(self) -> None:
        """Kills everything but etcd, as when the control plane's machine is gone."""
        self._outages.append((_now_text(), _NEVER))
        for process in (self.scheduler, self.controller_manager, self.apiserver):
            process.stop(kill=True)

    def end_outage(self) -> None:
        """Starts everything again and waits until the API server is ready."""
        self.start_apiserver()
        self._outages[-1] = (self._outages[-1][0], _now_text())
        self.controller_manager.start()
        self.scheduler.start()

    def was_away(self, time: str) -> bool:
        """Whether a time of the audit log lies in an outage: an API server that is not ready knows no rights yet."""
        return any(first <= time <= last for first, last in self._outages)

    def stop(self) -> None:
        """Ends everything at once: nothing of it is kept, and a graceful end takes 10 s."""
        if "api" in self.__dict__:
            self.api.close()
        for process in reversed(self.processes):
            process.stop(kill=True)

    def check(self) -> None:
        """Raises ProcessDied if one of the processes has ended by itself."""
        for process in self.processes:
            process.check()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.check()
            try:
                if self.api.is_ready():
                    return
            except httpx.TransportError:
                pass  # not listening yet
            time.sleep(0.1)
        raise TestClusterError(f"no /readyz in {READY_TIMEOUT_S:.0f} s:\n{self.apiserver.log_tail()}")

    def _wait_for_default_service_account(self) -> None:
        """Pods of a namespace are refused until the controller-manager has made its service account."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while self.api.find("ServiceAccount", "default", namespace="default") is None:
            self.check()
            if time.monotonic() > deadline_s:
                raise TestClusterError(f"no service account:\n{self.controller_manager.log_tail()}")
            time.sleep(0.05)

    def _etcd(self) -> Process:
        client = f"http://{LOOPBACK}:{self._ports.etcd}"
        peer = f"http://{LOOPBACK}:{self._ports.etcd_peer}"
        arguments = [
            "--unsafe-no-fsync",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        return self._process(binaries.ETCD, arguments)

    def _apiserver(self) -> Process:
        root = self.authority.root
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        serving = self.authority.server("kube-apiserver", names, [LOOPBACK, SERVICE_IP])
        arguments = [
            f"--etcd-servers=http://{LOOPBACK}:{self._ports.etcd}",
            *self._reachability(),
            f"--secure-port={self._ports.apiserver}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={root.certificate}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
            f"--service-account-signing-key-file={self.authority.service_account_key}",
            f"--service-account-key-file={self.authority.service_account_key}",
            f"--audit-policy-file={self.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
            # By default a new file is begun every 100 MiB, and whoever counts calls would read the last one only.
            "--audit-log-maxsize=100000",
            "--profiling=false",
        ]
        return self._process(binaries.KUBE_APISERVER, arguments)

    def _reachability(self) -> list[str]:
        if self._node_address is None:
            # Endpoints refuse a loopback address; nobody reaches the API through its Service here.
            where = [f"--bind-address={LOOPBACK}", f"--advertise-address={LOOPBACK}"]
            return [*where, "--endpoint-reconciler-type=none"]
        to_kubelet = self.authority.client("kube-apiserver-kubelet-client", [ADMIN_GROUP])
        return [
            "--bind-address=0.0.0.0",
            f"--advertise-address={self._node_address}",
            f"--kubelet-client-certificate={to_kubelet.certificate}",
            f"--kubelet-client-key={to_kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controller_manager(self) -> Process:
        root = self.authority.root
        kubeconfig = self.kubeconfig("system:kube-controller-manager", [])
        arguments = [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._ports.controller_manager}",
            f"--cert-dir={self.folder / 'controller-manager'}",
            f"--root-ca-file={root.certificate}",
            f"--service-account-private-key-file={self.authority.service_account_key}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            # The defaults, minutes and 15 s, would leave every test of quotas and claims waiting.
            "--resource-quota-sync-period=2s",
            "--pvclaimbinder-sync-period=1s",
            *self._qps(),
        ]
        return self._process(binaries.KUBE_CONTROLLER_MANAGER, arguments)

    def _scheduler(self) -> Process:
        kubeconfig = self.kubeconfig("system:kube-scheduler", [])
        arguments = [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._ports.scheduler}",
            f"--cert-dir={self.folder / 'scheduler'}",
            "--leader-elect=false",
            *self._qps(),
        ]
        return self._process(binaries.KUBE_SCHEDULER, arguments)

    def _qps(self) -> list[str]:
        qps = self._controller_qps
        return [] if qps is None else [f"--kube-api-qps={qps}", f"--kube-api-burst={qps}"]

    def _process(self, binary: Binary, arguments: list[str]) -> Process:
        return Process(binary.name, binaries.find(binary), arguments, self.folder)


def _now_text() -> str:
    """The present time as in the audit log."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
