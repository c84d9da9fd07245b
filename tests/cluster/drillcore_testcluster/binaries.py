"""The cluster's programs: looked up, and built from Go modules where they are missing.

`python -m drillcore_testcluster.binaries [--node]` builds what is missing; tests only look up. A binary is
searched in $KUBEBUILDER_ASSETS (etcd, kube-apiserver and kubectl, as envtest lays them out), then in the
cache folder `tools/<family>-<key>`, whose key is the hash of the family's go.mod and go.sum.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster import helm4
from drillcore_testcluster.cache import cache_folder
from drillcore_testcluster.errors import MissingPiece

TOOLS_FOLDER = Path(__file__).resolve().parent.parent / "tools"
KUBERNETES_VERSION = "1.34.4"
BUILD_COMMAND = "make cluster-tools"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
EXISTING_VARIABLE = "USE_EXISTING_CLUSTER"

_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True)
class Binary:
    """One program of the cluster and the Go package it is built from."""

    name: str
    family: str
    """Folder below tools/ with the go.mod that pins it."""
    package: str


def _kubernetes(name: str) -> Binary:
    return Binary(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")


ETCD = Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3")
KUBE_APISERVER = _kubernetes("kube-apiserver")
KUBECTL = _kubernetes("kubectl")
KUBE_CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
KUBE_SCHEDULER = _kubernetes("kube-scheduler")
HELM = Binary("helm", "helm", "helm.sh/helm/v3/cmd/helm")
KUBELET = _kubernetes("kubelet")
KUBE_PROXY = _kubernetes("kube-proxy")

CONTROL_PLANE = (ETCD, KUBE_APISERVER, KUBECTL, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, HELM)
"""What the API-server suite needs."""
NODE = (KUBELET, KUBE_PROXY)
"""What a real node needs besides."""


def uses_existing_cluster() -> bool:
    """Whether the user asked for the cluster of their kubeconfig, which needs no binaries but theirs."""
    return os.environ.get(EXISTING_VARIABLE, "").lower() == "true"


def find(binary: Binary) -> Path:
    """Path of a binary that is there already.

    Raises:
        MissingPiece: It is in none of the places; the message names them and the command that builds it.
    """
    candidates = [_cached(binary)]
    if assets := os.environ.get(ASSETS_VARIABLE):
        candidates.insert(0, Path(assets) / binary.name)
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    looked = ", ".join(map(str, candidates))
    raise MissingPiece(f"no {binary.name} at {looked}: run `{BUILD_COMMAND}` (needs Go and 20 minutes, once)")


def build(binary: Binary) -> Path:
    """Builds a binary into the cache folder and gives its path.

    Raises:
        MissingPiece: There is no Go on this machine.
        subprocess.CalledProcessError: The build failed; the compiler's words are on standard error.
    """
    if shutil.which("go") is None:
        raise MissingPiece(f"{binary.name} has to be built and `go` is not on the PATH")
    target = _cached(binary)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags", _linker_flags(binary), "-o", unfinished, binary.package],
        cwd=TOOLS_FOLDER / binary.family,
        env=os.environ | {"CGO_ENABLED": "0"},
        check=True,
    )
    unfinished.replace(target)
    return target


def _cached(binary: Binary) -> Path:
    folder = TOOLS_FOLDER / binary.family
    content = (folder / "go.mod").read_bytes() + (folder / "go.sum").read_bytes()
    key = hashlib.sha256(content).hexdigest()[:12]
    return cache_folder() / "tools" / f"{binary.family}-{key}" / binary.name


def _linker_flags(binary: Binary) -> str:
    """Stripped; Kubernetes programs also get their version, which clients would else see as v0.0.0-master."""
    flags = ["-s", "-w"]
    if binary.family == "kubernetes":
        major, minor, _ = KUBERNETES_VERSION.split(".")
        values = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
        for package in _VERSION_PACKAGES:
            flags += [f"-X {package}.{name}={value}" for name, value in values.items()]
    return " ".join(flags)


def build_missing(wanted: Sequence[Binary]) -> None:
    """Builds what cannot be found; prints the seconds that each took.

    Raises:
        MissingPiece: Something has to be built and there is no Go.
    """
    for binary in wanted:
        try:
            find(binary)
        except MissingPiece:
            started_s = time.monotonic()
            path = build(binary)
            print(f"built {path} in {time.monotonic() - started_s:.0f} s", flush=True)


def _fetch_helm4() -> None:
    try:
        helm4.find()
    except MissingPiece:
        print(f"fetched {helm4.fetch()}", flush=True)


def main() -> int:
    """Without Go it says so; that is an error in CI only, elsewhere the tests skip with the reason."""
    parser = argparse.ArgumentParser(prog="drillcore_testcluster.binaries", description=__doc__)
    parser.add_argument("--node", action="store_true", help="also what a real node needs")
    arguments = parser.parse_args()
    if uses_existing_cluster():
        return 0
    try:
        build_missing(CONTROL_PLANE + (NODE if arguments.node else ()))
        _fetch_helm4()
    except MissingPiece as missing:
        print(missing, file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
