"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import os
import random
import re
import socket

LOOPBACK = "127.0.0.1"
_FIRST = 10_000
_LAST = 32_000
"""Below the ports that Linux gives to outgoing connections, which could else take one before its server does
(net.ipv4.ip_local_port_range).
"""
_NUM_SHARES = 16
"""Workers of pytest-xdist draw from shares of their own, so that two never draw the same one."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    share = (_LAST - _FIRST) // _NUM_SHARES
    first = _FIRST + share * (_worker_number() % _NUM_SHARES)
    candidates = random.sample(range(first, first + share), share)
    free = (port for port in candidates if _is_free(port))
    return [next(free) for _ in range(count)]


def _worker_number() -> int:
    number = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return int(number[0]) if number else 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
