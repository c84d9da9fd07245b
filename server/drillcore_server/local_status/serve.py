"""The API and the page on a port of this machine, from a thread beside the supervisor."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from drillcore_server.errors import ShardError
from drillcore_server.local_status.source import LocalJobSource
from drillcore_spec.reasons import Reason
from drillcore_status import OpenAuthorizer, Services, create_app
from drillcore_status.serving import Server, make_server
from drillcore_status.views import Login, LoginKind

LOOPBACK: Final = "127.0.0.1"
STREAM_INTERVAL_S: Final = 0.5
LAST_WORD_S: Final = 2 * STREAM_INTERVAL_S
"""How long the server stays after the run's end, if somebody looks."""
_OWN_NAMES: Final = frozenset({LOOPBACK, "localhost"})


@contextmanager
def serve_status(source: LocalJobSource, port: int) -> Iterator[str]:
    """Serves while the context lasts, without log-in, for this machine only; gives the page's address.

    Raises:
        ShardError: the port cannot be had (`Reason.BAD_SPEC`).
    """
    services = Services(
        source=source,
        authorizer=OpenAuthorizer(),
        login=Login(kind=LoginKind.NONE, namespace=source.namespace),
        allowed_hosts=_OWN_NAMES,
        stream_interval_s=STREAM_INTERVAL_S,
    )
    with _listener(port) as listener:
        server = make_server(create_app(services), LOOPBACK, port)
        thread = threading.Thread(target=_serve, args=(server, listener), name="status", daemon=True)
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{listener.getsockname()[1]}/"
        finally:
            _end(server, thread, services)


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        message = f"`--status-port` must be a free port of this machine; got {port}: {error.strerror}"
        raise ShardError(Reason.BAD_SPEC, message) from error


def _serve(server: Server, listener: socket.socket) -> None:
    asyncio.run(server.serve(sockets=[listener]))


def _end(server: Server, thread: threading.Thread, services: Services) -> None:
    if server.server_state.connections:
        time.sleep(LAST_WORD_S)
    services.closing.set()
    server.should_exit = True
    thread.join()
