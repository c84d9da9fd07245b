"""A network namespace of its own for a node, its pods, the control plane and the tests.

Nothing on the machine's own network changes. The node's address stands on a bridge without ports, because not
every kernel has dummy devices; the default route over it only makes kube-proxy's and CNI's look-ups succeed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drillcore_testcluster.node.commands import checked
from drillcore_testcluster.node.folders import NAME

NODE_ADDRESS = "192.168.254.1"
POD_CIDR = "10.244.0.0/24"
_GATEWAY = "192.168.254.254"
_HANDLE = Path("/run/netns") / NAME
_CLONE_NEWNET = 0x40000000


def create() -> None:
    """Makes the namespace with loopback, the node's address, a default route and forwarding."""
    checked("ip", "netns", "add", NAME)
    for words in (
        "link set lo up",
        "link add eth0 type bridge",
        f"addr add {NODE_ADDRESS}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {_GATEWAY}",
    ):
        checked("ip", "-n", NAME, *words.split())
    # Not `ip netns exec`: it mounts /sys anew, which hides the cgroups.
    checked("nsenter", f"--net={_HANDLE}", "sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1")


def remove() -> None:
    """Removes the namespace, if it is there; the kernel ends it with its last process."""
    if _HANDLE.exists():
        checked("ip", "netns", "delete", NAME)


@contextmanager
def entered() -> Iterator[None]:
    """The calling thread, and every process and thread that it starts, is in the namespace meanwhile.

    Raises:
        OSError: The kernel refused.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    inside = os.open(_HANDLE, os.O_RDONLY)
    try:
        _set_namespace(inside)
        yield
    finally:
        _set_namespace(before)
        os.close(inside)
        os.close(before)


def _set_namespace(descriptor: int) -> None:
    """setns(2), which Python has from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")
