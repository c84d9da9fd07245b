"""The base of the three images where no registry is reached: a minimal Debian with Python, by debootstrap.

It stands in for the Dockerfile's `ARG BASE`. The pause image, which holds a pod's namespaces, is compiled from
Kubernetes' own source.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from drillcore_testcluster.binaries import TOOLS_FOLDER
from drillcore_testcluster.node.buildah import Buildah
from drillcore_testcluster.node.commands import checked

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
BASE_IMAGE = f"localhost/drillcore-test/base:{SUITE}-1"
PAUSE_IMAGE = "localhost/drillcore-test/pause:1"
DEBOOTSTRAP_TIMEOUT_S = 1200.0
_PAUSE_SOURCE = "build/pause/linux/pause.c"
_MODULE = "k8s.io/kubernetes"


def ensure_base_image(buildah: Buildah) -> None:
    """Makes the base image unless it is there."""
    if not buildah.has(BASE_IMAGE):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            root = Path(folder) / "root"
            try:
                command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, root]
                checked(*command, timeout_s=DEBOOTSTRAP_TIMEOUT_S)
            finally:
                _unmount_proc(root)
            buildah.from_folder(root, BASE_IMAGE)


def ensure_pause_image(buildah: Buildah) -> None:
    """Makes the pause image unless it is there."""
    if not buildah.has(PAUSE_IMAGE):
        module = checked("go", "-C", TOOLS_FOLDER / "kubernetes", "list", "-m", "-f", "{{.Dir}}", _MODULE).strip()
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "pause"
            checked("gcc", "-Os", "-Wall", "-static", "-o", target, Path(module) / _PAUSE_SOURCE)
            buildah.from_folder(Path(folder), PAUSE_IMAGE, entrypoint="/pause")


def _unmount_proc(root: Path) -> None:
    """debootstrap leaves /proc mounted: a removal of the folder would walk into this machine's processes."""
    for place in ("proc", "sys"):
        if (root / place).is_mount():
            checked("umount", "--lazy", root / place)
