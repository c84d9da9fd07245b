"""The cgroup below which kubelet puts all pods, in each hierarchy (version 1) or the only one (version 2)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from drillcore_testcluster.node.folders import NAME
from drillcore_testcluster.waiting import until

_MOUNT = Path("/sys/fs/cgroup")
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
_CPU_SHARES = 10 * 1024
"""All pods together count as ten processes, not as one, beside whatever else the machine does."""


def create() -> None:
    """Makes the cgroup; version 1's cpuset lets no process in before it has CPUs and memory nodes."""
    for parent in _hierarchies():
        group = parent / NAME
        group.mkdir(exist_ok=True)
        for name in _CPUSET_FILES:
            if (parent / name).exists():
                (group / name).write_text((parent / name).read_text())
        if (group / "cpu.shares").exists():
            (group / "cpu.shares").write_text(str(_CPU_SHARES))


def kill_processes() -> None:
    """Kills every process of every pod, and waits until they are gone."""
    for process in set(_processes()):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until(lambda: not list(_processes()), "the processes of the pods are gone")


def remove() -> None:
    """Removes the cgroup with everything below it; no process may be left."""
    for group in _groups():
        for below, _, _ in os.walk(group, topdown=False):
            Path(below).rmdir()


def _hierarchies() -> list[Path]:
    if (_MOUNT / "cgroup.controllers").exists():
        return [_MOUNT]
    return [path for path in sorted(_MOUNT.iterdir()) if path.is_dir()]


def _groups() -> list[Path]:
    return [group for parent in _hierarchies() if (group := parent / NAME).is_dir()]


def _processes() -> Iterator[int]:
    for group in _groups():
        for path in group.rglob("cgroup.procs"):
            try:
                yield from map(int, path.read_text().split())
            except FileNotFoundError:
                continue  # ended, and was removed, meanwhile
