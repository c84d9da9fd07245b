from __future__ import annotations

import socket
from pathlib import Path

import pytest

from drillcore_server.ring.connection import connect_to, listen_at


@pytest.fixture(params=["short", "x" * 200])
def ring_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / request.param
    folder.mkdir()
    return folder


def test_the_server_reaches_the_sidecar_however_long_the_folders_path_is(ring_dir: Path) -> None:
    with listen_at(ring_dir) as listener, connect_to(ring_dir, 0.0) or pytest.fail("refused") as ours:
        theirs, _ = listener.accept()
        with theirs:
            ours.send(b"one")
            ours.send(b"two")
            assert theirs.recv(100) == b"one"
            assert theirs.recv(100) == b"two"


def test_a_stale_socket_of_a_dead_sidecar_is_replaced(ring_dir: Path) -> None:
    listen_at(ring_dir).close()
    assert connect_to(ring_dir, 0.0) is None
    with listen_at(ring_dir):
        connection = connect_to(ring_dir, 0.0)
    assert isinstance(connection, socket.socket)
    connection.close()


def test_nobody_there_is_none_after_the_timeout(ring_dir: Path) -> None:
    assert connect_to(ring_dir, 0.06) is None
