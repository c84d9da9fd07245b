"""Making the doorbell's connection: the sidecar binds the socket, the server connects to it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from drillcore_spec.names import SIDECAR_SOCKET

CONNECT_RETRY_S: Final = 0.05
"""How often the server knocks while no sidecar listens: connect(2) on a path cannot wait for a process to come."""


def listen_at(ring_dir: Path) -> socket.socket:
    """Binds the doorbell, in place of the stale socket of a dead sidecar, and listens.

    The name is never removed by the process that bound it: by then it may be that of its successor.
    """
    (ring_dir / SIDECAR_SOCKET).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _short_address(ring_dir) as address:
        listener.bind(address)
    (ring_dir / SIDECAR_SOCKET).chmod(0o660)
    listener.listen(4)
    return listener


def connect_to(ring_dir: Path, timeout_s: float) -> socket.socket | None:
    """The connection to the sidecar, or `None` when none listens within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    with _short_address(ring_dir) as address:
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                connection.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
            else:
                return connection
            if time.monotonic() >= deadline:
                return None
            time.sleep(CONNECT_RETRY_S)


@contextmanager
def _short_address(ring_dir: Path) -> Iterator[str]:
    """The socket's address by way of an open folder: unix(7) allows 107 bytes, and a folder's path may be longer."""
    folder = os.open(ring_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SIDECAR_SOCKET}"
    finally:
        os.close(folder)
