"""The product's three images, built from the Dockerfile and named after what they are built of.

`python -m drillcore_testcluster.node.images` builds what is missing and prints where the time went. With
DRILLCORE_TEST_REGISTRY the images are pushed there, for a cluster that is not on this machine.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drillcore_testcluster.errors import MissingPiece
from drillcore_testcluster.node import folders
from drillcore_testcluster.node.base_image import BASE_IMAGE, ensure_base_image, ensure_pause_image
from drillcore_testcluster.node.buildah import Buildah
from drillcore_testcluster.node.commands import only_one, require_programs, timed

REPOSITORY = Path(__file__).resolve().parents[4]
TARGETS = ("operator", "sidecar", "server")
REGISTRY_VARIABLE = "DRILLCORE_TEST_REGISTRY"
TAG_VARIABLE = "DRILLCORE_TEST_TAG"
"""Images of this tag are there already: nothing is built."""

_FILES = ("Dockerfile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md")
_FOLDERS = ("operator", "server", "kernels", "images")
_LOCAL_REGISTRY = "localhost"


@dataclass(frozen=True)
class Images:
    """Names of the three images of one state of the source."""

    registry: str
    tag: str
    """Hash of everything that goes into a build."""

    @classmethod
    def of_source(cls) -> Images:
        """Those of the source as it is now, in the registry that the environment names."""
        return cls(os.environ.get(REGISTRY_VARIABLE, _LOCAL_REGISTRY), os.environ.get(TAG_VARIABLE) or _content_hash())

    @property
    def is_local(self) -> bool:
        """Whether no registry is used: the node gets the images as archives."""
        return self.registry == _LOCAL_REGISTRY

    def repository(self, target: str) -> str:
        """An image's name without its tag."""
        return f"{self.registry}/drillcore/{target}"

    def name(self, target: str) -> str:
        """An image's name."""
        return f"{self.repository(target)}:{self.tag}"

    def chart_values(self) -> list[str]:
        """`--set` options that make the chart use them."""
        options: list[str] = []
        for target in TARGETS:
            options += ["--set", f"images.{target}.repository={self.repository(target)}"]
            options += ["--set", f"images.{target}.tag={self.tag}"]
        return options


def image_builder() -> Buildah:
    """buildah with the storage that is kept between runs."""
    return Buildah(folders.storage() / "buildah", folders.BUILDAH_RUN)


def build_images(images: Images) -> None:
    """Builds what is missing, and pushes it where a registry is named.

    Raises:
        MissingPiece: This machine lacks a program, or this is not root.
        TestClusterError: A build failed.
    """
    if os.environ.get(TAG_VARIABLE):
        return
    require_programs()
    with only_one("drillcore-images", "is building images"):
        _build(images)


def _build(images: Images) -> None:
    buildah = image_builder()
    buildah("rm", "--all")  # what a killed build left
    with timed("base image"):
        ensure_base_image(buildah)
        ensure_pause_image(buildah)
    for target in TARGETS:
        with timed(f"{target} image"):
            if not buildah.has(images.name(target)):
                buildah.build(REPOSITORY, target, images.name(target), {"BASE": BASE_IMAGE})
            stale = f"{images.repository(target)}:"
            buildah.remove([n for n in buildah.names() if n.startswith(stale) and n != images.name(target)])
            if not images.is_local:
                buildah("push", images.name(target), f"docker://{images.name(target)}", timeout_s=1800.0)


def _content_hash() -> str:
    digest = hashlib.sha256(BASE_IMAGE.encode())
    for path in _source_files():
        digest.update(f"{path.relative_to(REPOSITORY)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _source_files() -> Iterator[Path]:
    """Everything that .dockerignore lets into the build, in a fixed order."""
    yield from (REPOSITORY / name for name in _FILES)
    for folder in _FOLDERS:
        files = (path for path in (REPOSITORY / folder).rglob("*") if path.is_file())
        yield from sorted(path for path in files if "__pycache__" not in path.parts)


def main() -> int:
    """Builds; without root or a program it says so, which is an error in CI only."""
    try:
        build_images(Images.of_source())
    except MissingPiece as missing:
        print(missing, file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
