"""The application on a port, inside somebody else's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

SHUTDOWN_S: Final = 2
"""How long open streams may keep the process from ending."""
MAX_CONNECTIONS: Final = 1000
RENEWAL_S: Final = 60.0


@dataclass(frozen=True)
class TlsFiles:
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Server(uvicorn.Server):
    """uvicorn that leaves signals to the process that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes no signal."""
        yield

    @property
    def port(self) -> int:
        """The port, once it is listening; the one that the system chose if 0 was asked for."""
        port: int = self.servers[0].sockets[0].getsockname()[1]
        return port


def make_server(app: ASGIApp, host: str, port: int, tls: TlsFiles | None = None) -> Server:
    """A server that is not listening yet: await its `serve()`."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return Server(config)


async def serve(server: Server) -> None:
    """Serves until it is cancelled, with the certificate that is on disk now: clusters renew them."""
    renewal = asyncio.create_task(_renew_certificate(server.config))
    try:
        await server.serve()
    finally:
        renewal.cancel()


async def _renew_certificate(config: uvicorn.Config) -> None:
    """Loads the certificate again when its file was replaced; new connections get it."""
    if config.ssl_certfile is None:
        return
    loaded_s = Path(config.ssl_certfile).stat().st_mtime
    while True:
        await asyncio.sleep(RENEWAL_S)
        changed_s = Path(config.ssl_certfile).stat().st_mtime
        if changed_s != loaded_s and config.ssl is not None:
            config.ssl.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
            loaded_s = changed_s
