"""buildah with a storage of its own: images are built here and pushed from here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from drillcore_testcluster.errors import TestClusterError
from drillcore_testcluster.node.commands import checked

CERTIFICATES = "/etc/ssl/certs"
_ENVIRONMENT = {"BUILDAH_ISOLATION": "chroot"}


class Buildah:
    """Builds as root, without a daemon."""

    def __init__(self, storage: Path, run: Path) -> None:
        self._argv = ["buildah", "--root", str(storage), "--runroot", str(run), "--storage-driver", "overlay"]
        self._env = os.environ | _ENVIRONMENT

    def __call__(self, *arguments: str | Path, timeout_s: float = 600.0) -> str:
        """Runs buildah, which must succeed, and gives its standard output."""
        return checked(*self._argv, *arguments, timeout_s=timeout_s, env=self._env)

    def command(self, *arguments: str | Path) -> list[str]:
        """The command line, for a pipe."""
        return [*self._argv, *map(str, arguments)]

    def has(self, image: str) -> bool:
        """Whether the storage has an image of this name."""
        return image in self.names()

    def names(self) -> list[str]:
        """Names of the images in the storage."""
        return [name for entry in json.loads(self("images", "--json")) for name in entry["names"] or ()]

    def remove(self, images: list[str]) -> None:
        """Removes images; layers that others are built on stay."""
        if images:
            self("rmi", *images)

    def from_folder(self, root: Path, image: str, entrypoint: str | None = None) -> None:
        """An image whose only layer is a folder."""
        container = self("from", "scratch").strip()
        try:
            self("copy", "--quiet", container, root, "/")
            if entrypoint is not None:
                self("config", "--entrypoint", json.dumps([entrypoint]), container)
            self("commit", "--quiet", container, image)
        finally:
            self("rm", container)

    def build(self, context: Path, target: str, image: str, arguments: Mapping[str, str]) -> None:
        """Builds a stage of the Dockerfile in `context`; unchanged layers come from the storage.

        The machine's certificates are those of whatever proxy stands before its package indexes.

        Raises:
            TestClusterError: The build failed; what it said is on standard error.
        """
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options += ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro", "--target", target, "--tag", image]
        result = subprocess.run(self.command("build", "--layers", *options, context), env=self._env)
        if result.returncode != 0:
            raise TestClusterError(f"the build of the image {target} ended with code {result.returncode}")
