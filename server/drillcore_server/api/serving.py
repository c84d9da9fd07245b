"""One server from its start to its end.

SIGTERM or SIGINT: nothing is accepted any more (503), what runs is finished, then the process ends. A second one, or
the end of `drain_s`, aborts what runs. An engine that fails ends the server: whoever watches it starts another one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from drillcore_server.api.admission import Admission
from drillcore_server.api.app import create_app
from drillcore_server.api.body import BodyReader
from drillcore_server.api.chat import ChatRenderer
from drillcore_server.api.extraction import Extractor
from drillcore_server.api.file_engine import FileEngine
from drillcore_server.api.loading import LoadedModel, load_model
from drillcore_server.api.metrics import ServeMetrics
from drillcore_server.api.services import Services
from drillcore_server.api.settings import ServeSettings
from drillcore_server.api.storage import Storage
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.reasons import Reason
from drillcore_status.serving import Server

logger = logging.getLogger(__name__)

KEEP_ALIVE_S: Final = 75
"""Longer than the pools of usual clients keep an idle connection: the client closes it, and no request is lost."""
BACKLOG: Final = 4096
CLOSE_S: Final = 5
"""How long connections may take to end when everything is answered."""
_FILES: Final = 65_536
_POLL_S: Final = 0.5


def run_server(settings: ServeSettings, volumes: Volumes, on_ready: Callable[[str], None]) -> None:
    """Serves until a signal says otherwise. `on_ready` takes the server's address.

    Raises:
        ShardError: what cannot be served; Internal if the engine failed.
    """
    _raise_file_limit()
    storage = Storage(settings.storage)
    try:
        with _bound(settings.host, settings.port) as listener:
            loaded = load_model(settings, volumes)
            asyncio.run(_serve(settings, loaded, storage, listener, on_ready))
    finally:
        storage.close()


async def _serve(
    settings: ServeSettings,
    loaded: LoadedModel,
    storage: Storage,
    listener: socket.socket,
    on_ready: Callable[[str], None],
) -> None:
    engine = FileEngine(loaded.decoder, loaded.plan, loaded.config, settings, store_dtype=loaded.store_dtype)
    services = make_services(settings, loaded, engine, storage)
    async with engine:
        server = make_server(create_app(services, settings.api_key))
        freeze_memory()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        ending = _on_signals(services.admission)
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        on_ready(_address(settings.host, listener))
        await _until_end(engine, ending, serving)
        services.admission.drain()
        await _drain(services.admission, engine, settings.drain_s, ending)
        server.should_exit = True
        await serving
    if not ending.first.is_set():
        raise ShardError(Reason.INTERNAL, "the engine failed; the log says how")


def freeze_memory() -> None:
    """Has the garbage collector pass over everything that is there by now.

    A look at the modules of torch and transformers costs more than hundreds of requests do, and a busy server would
    take one every few hundred requests.
    """
    gc.collect()
    gc.freeze()


def make_services(settings: ServeSettings, loaded: LoadedModel, engine: FileEngine, storage: Storage) -> Services:
    """The parts of one server, for the event loop that runs."""
    admission = Admission(settings.max_queue)
    return Services(
        model=loaded.model,
        extractor=Extractor(loaded.model, engine, storage),
        admission=admission,
        bodies=BodyReader(settings.max_body_bytes),
        chat=ChatRenderer(loaded.model.tokenizer),
        metrics=ServeMetrics(engine, admission),
        started_s=int(time.time()),
    )


def make_server(app: ASGIApp) -> Server:
    """A server that is not listening yet, and leaves signals to the process."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return Server(config)


class _Ending:
    """Signals that have come."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def take(self) -> None:
        """A signal."""
        (self.second if self.first.is_set() else self.first).set()


def _on_signals(admission: Admission) -> _Ending:
    ending, loop = _Ending(), asyncio.get_running_loop()

    def take() -> None:
        admission.drain()
        ending.take()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, take)
    return ending


async def _until_end(engine: FileEngine, ending: _Ending, serving: asyncio.Task[None]) -> None:
    """Until a signal comes, or the engine or the server has failed."""
    signalled = asyncio.create_task(ending.first.wait())
    while engine.is_alive and not serving.done() and not signalled.done():
        await asyncio.wait((signalled, serving), timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()


async def _drain(admission: Admission, engine: FileEngine, drain_s: float, ending: _Ending) -> None:
    """Until everything is answered, nothing can be any more, or patience ends."""
    if not engine.is_alive:
        return
    logger.info("ending: %d prompts are finished first", admission.num_admitted)
    idle, hurry = asyncio.create_task(admission.wait_idle()), asyncio.create_task(ending.second.wait())
    await asyncio.wait((idle, hurry), timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
    for task in (idle, hurry):
        task.cancel()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port and does not listen yet: nobody is let in before the model is there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ShardError(
            Reason.BAD_SPEC, f"`--host` {host} and `--port` {port} cannot be had: {error.strerror or error}"
        ) from error
    return listener


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def _raise_file_limit() -> None:
    """Each connection and each file that is written takes a descriptor; the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
