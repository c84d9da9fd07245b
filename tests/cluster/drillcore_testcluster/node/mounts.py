"""What kubelet and containerd have mounted below the node's folders."""

from __future__ import annotations

from pathlib import Path

from drillcore_testcluster.node import folders
from drillcore_testcluster.node.commands import checked

_TABLE = Path("/proc/self/mounts")


def left() -> list[Path]:
    """Mount points below the node's folders, the latest first."""
    roots = (folders.RUN, folders.WORK, folders.containerd_root())
    points = [Path(_unescaped(line.split(" ")[1])) for line in _TABLE.read_text().splitlines()]
    return [point for point in reversed(points) if any(point.is_relative_to(root) for root in roots)]


def unmount_all() -> None:
    """Unmounts them; whoever still has a file open there keeps it until it ends."""
    for point in left():
        checked("umount", "--lazy", point)


def _unescaped(field: str) -> str:
    """The table writes spaces, tabs, newlines and backslashes as octal numbers."""
    return field.encode().decode("unicode_escape")
