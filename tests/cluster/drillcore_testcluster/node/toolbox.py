"""A pod of the server's image that mounts a namespace's claims: the user's way to look at their volumes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster.node.real_cluster import RealCluster

NAME = "toolbox"
MOUNTS = "/mnt"
_COPY_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Toolbox:
    """Claims are folders below /mnt there."""

    cluster: RealCluster
    namespace: str

    def start(self, claims: list[str]) -> None:
        """Starts the pod and waits until it runs."""
        self.cluster.api.create(self._manifest(claims))
        self.cluster.kubectl("wait", f"pod/{NAME}", *self._place(), "--for=condition=Ready", "--timeout=55s")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command there, whatever its code is."""
        return self.cluster.kubectl.run("exec", NAME, *self._place(), "--", *command)

    def __call__(self, *command: str) -> str:
        """Runs a command there, which must succeed, and gives its standard output."""
        result = self.run(*command)
        assert result.returncode == 0, f"{' '.join(command)}: {result.stdout}{result.stderr}"
        return result.stdout

    def send(self, source: Path, claim: str, name: str) -> None:
        """Copies a file or folder, links followed, into a claim under a name."""
        command = self._exec("--stdin", NAME, "--", "tar", "--extract", "--no-same-owner", "-C", f"{MOUNTS}/{claim}")
        with subprocess.Popen(command, stdin=subprocess.PIPE) as receiver:
            assert receiver.stdin is not None
            with tarfile.open(fileobj=receiver.stdin, mode="w|", dereference=True) as tar:
                tar.add(source, name)
            receiver.stdin.close()
            assert receiver.wait(_COPY_TIMEOUT_S) == 0, f"{source} was not copied"

    def receive(self, claim: str, path: str, target: Path) -> Path:
        """Copies a folder of a claim into `target`, and gives its place there."""
        command = self._exec(NAME, "--", "tar", "--create", "-C", f"{MOUNTS}/{claim}", path)
        result = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COPY_TIMEOUT_S, check=True)
        with tarfile.open(fileobj=io.BytesIO(result.stdout)) as tar:
            tar.extractall(target, filter="data")
        return target / path

    def _exec(self, *words: str) -> list[str]:
        kubectl = self.cluster.kubectl
        return [str(kubectl.binary), f"--kubeconfig={kubectl.kubeconfig}", "exec", *self._place(), *words]

    def _place(self) -> tuple[str, str]:
        return ("--namespace", self.namespace)

    def _manifest(self, claims: list[str]) -> dict[str, object]:
        security = {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532}
        container = {
            "name": NAME,
            "image": self.cluster.images.name("server"),
            "command": ["sleep", "infinity"],
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": claim, "mountPath": f"{MOUNTS}/{claim}"} for claim in claims],
        }
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        spec = {
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
            "securityContext": security | {"seccompProfile": {"type": "RuntimeDefault"}},
        }
        metadata = {"name": NAME, "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
