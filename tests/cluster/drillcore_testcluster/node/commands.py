"""Running the programs that a node is made of: an error carries what the program said."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from drillcore_testcluster.errors import MissingPiece, TestClusterError

TIMEOUT_S = 120.0

PACKAGES = (
    "containerd runc containernetworking-plugins iptables conntrack iproute2 openssl buildah debootstrap gcc libc6-dev"
)
"""Debian's packages that hold the programs below; what CI installs."""
_PROGRAMS = ("containerd", "runc", "ctr", "iptables", "conntrack", "ip", "openssl", "buildah", "debootstrap", "gcc")
_PLUGINS = Path("/usr/lib/cni/ptp")


def require_programs() -> None:
    """Raises MissingPiece unless this is root on a machine with every program that a node needs."""
    if os.geteuid() != 0:
        raise MissingPiece("a node needs root: network namespaces, mounts and containers")
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing or not _PLUGINS.exists():
        lacking = ", ".join([*missing, *([] if _PLUGINS.exists() else [str(_PLUGINS)])])
        raise MissingPiece(f"{lacking} not found: `apt-get install --no-install-recommends {PACKAGES}`")


def checked(
    *argv: str | Path, timeout_s: float = TIMEOUT_S, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Runs a program, which must succeed, and gives its standard output.

    Raises:
        TestClusterError: It failed; the message ends with its standard error.
    """
    words = [str(word) for word in argv]
    result = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=env)
    if result.returncode != 0:
        raise TestClusterError(f"`{' '.join(words)}` ended with code {result.returncode}:\n{result.stderr[-4000:]}")
    return result.stdout


def piped(source: Sequence[str | Path], target: Sequence[str | Path]) -> None:
    """Runs `source | target`; both must succeed.

    Raises:
        TestClusterError: One of them failed; what it said is on standard error.
    """
    with subprocess.Popen([str(word) for word in source], stdout=subprocess.PIPE) as first:
        second = subprocess.run([str(word) for word in target], stdin=first.stdout, stdout=subprocess.DEVNULL)
    if first.returncode or second.returncode:
        raise TestClusterError(f"`{source[0]} | {target[0]}` ended with {first.returncode} and {second.returncode}")


@contextmanager
def only_one(name: str, doing: str) -> Iterator[None]:
    """Keeps every other process of this machine from doing the same meanwhile; the kernel ends it with the process.

    Raises:
        MissingPiece: Another process has it.
    """
    with (Path("/run/lock") / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MissingPiece(f"another process on this machine {doing}") from None
        yield


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints how long something took."""
    started_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started_s:.0f} s", flush=True)
