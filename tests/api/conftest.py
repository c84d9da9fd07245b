"""Servers over a tiny model, on a real port, in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from drillcore_server.api.app import create_app
from drillcore_server.api.file_engine import FileEngine
from drillcore_server.api.loading import load_model
from drillcore_server.api.services import Services
from drillcore_server.api.serving import make_server, make_services
from drillcore_server.api.settings import ServeSettings
from drillcore_server.api.storage import Storage
from drillcore_server.volumes import Volumes

TIMEOUT_S = 60
LAYERS = (1, 3, 2)
MODEL_ID = "tiny"


@dataclass
class Served:
    """A running server and its parts, which belong to its own thread."""

    url: str
    storage: Path
    services: Services
    engine: FileEngine
    stop: Callable[[], None]

    def post(self, path: str = "/v1/completions", **fields: Any) -> httpx.Response:
        """One JSON request."""
        return httpx.post(self.url + path, json=fields, timeout=TIMEOUT_S, trust_env=False)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=TIMEOUT_S, trust_env=False, **options)

    def connect(self, path: str = "/v1/completions", **fields: Any) -> socket.socket:
        """A connection on which one request was sent and nothing read."""
        body = json.dumps(fields).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection = self.open_connection()
        connection.sendall(head.encode() + body)
        return connection

    def open_connection(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def in_engine(self, function: Callable[[], Any]) -> Any:
        """What `function` gives in the engine's thread, between two turns."""
        done: list[Any] = []
        ready = threading.Event()

        def call() -> None:
            try:
                done.append(function())
            except BaseException as error:  # noqa: BLE001 - handed to the test
                done.append(error)
            ready.set()

        self.engine.call(call)
        assert ready.wait(TIMEOUT_S), "the engine's thread does not answer"
        if isinstance(done[0], BaseException):
            raise done[0]
        return done[0]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.005)

    def assert_whole(self) -> None:
        """Nothing is under way, and every block is back."""
        core = self.engine.engine
        self.wait_until(lambda: self.services.admission.num_admitted == 0, "every prompt is answered")
        self.wait_until(lambda: not self.in_engine(lambda: core.has_unfinished), "the engine is idle")
        self.wait_until(lambda: self.engine.sink.num_saving == 0, "every sample is settled")
        self.in_engine(core.check_integrity)
        assert self.in_engine(lambda: core.kv.pool.num_available) == core.config.num_blocks - 1
        assert self.engine.sink.held_bytes == 0
        assert self.get("/health").json() == {"status": "ok"}

    def files(self) -> list[Path]:
        """Everything on the storage, hidden and partial files too, but the servers' own locks."""
        locks = self.storage / ".serve"
        return sorted(path for path in self.storage.rglob("*") if not path.is_dir() and path.parent != locks)


@contextmanager
def serving(settings: ServeSettings) -> Iterator[Served]:
    """A server while the context lasts; its end is the end of its thread."""
    loaded = load_model(settings, Volumes(Path("/nowhere")))
    storage = Storage(settings.storage)
    ready: list[Served] = []
    started, ended = threading.Event(), threading.Event()

    async def run() -> None:
        engine = FileEngine(loaded.decoder, loaded.plan, loaded.config, settings, store_dtype=loaded.store_dtype)
        services = make_services(settings, loaded, engine, storage)
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        stop = asyncio.Event()
        async with engine:
            server = make_server(create_app(services, settings.api_key))
            task = asyncio.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            loop = asyncio.get_running_loop()
            served = Served(url, storage.root, services, engine, lambda: loop.call_soon_threadsafe(stop.set))
            while not server.started:
                await asyncio.sleep(0.005)
            ready.append(served)
            started.set()
            await stop.wait()
            server.should_exit = True
            await task
        ended.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="server")
    thread.start()
    assert started.wait(TIMEOUT_S)
    try:
        yield ready[0]
    finally:
        ready[0].stop()
        thread.join(TIMEOUT_S)
        storage.close()
        assert ended.is_set(), "the server did not end"


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> Iterator[None]:
    """The tiny model is faster so, and the tests do not disturb each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_folder(tiny_model_folder: Callable[..., Path]) -> Path:
    return tiny_model_folder("llama")


@pytest.fixture(scope="session")
def settings_of(tiny_folder: Path) -> Callable[..., ServeSettings]:
    """`settings_of(storage, max_queue=3)`: of a server of the tiny model."""

    def make(storage: Path, **fields: Any) -> ServeSettings:
        given = {"model_uri": tiny_folder.as_uri(), "model_id": MODEL_ID, "layers": LAYERS, "storage": storage}
        return ServeSettings(**(given | fields))

    return make


@pytest.fixture
def serve(settings_of: Callable[..., ServeSettings], tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """`serve(max_queue=3)`: a server of its own."""
    with ExitStack() as stack:
        yield lambda **fields: stack.enter_context(serving(settings_of(tmp_path / "storage", **fields)))


@pytest.fixture(scope="module")
def served(settings_of: Callable[..., ServeSettings], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for tests that leave it as it was."""
    with serving(settings_of(tmp_path_factory.mktemp("storage"))) as server:
        yield server


@pytest.fixture(scope="session")
def expected_states(tiny_folder: Path, reference_states: Any) -> Callable[..., torch.Tensor]:
    """`expected_states(ids)`: [S, C, D] by transformers, in the order of the server's layers."""

    def states(ids: list[int], layers: tuple[int, ...] = LAYERS) -> torch.Tensor:
        reference = reference_states(tiny_folder, ids)
        return torch.stack([reference.residual[i] for i in layers], dim=1)

    return states


@pytest.fixture(scope="session")
def assert_file(
    expected_states: Callable[..., torch.Tensor], row_criterion: Callable[..., None]
) -> Callable[..., None]:
    """`assert_file(path, ids, start, end)`: the file has the states of ids[start:end], and nothing else."""

    def check(path: str | Path, ids: list[int], start: int = 0, end: int | None = None) -> None:
        tensors = load_file(path)
        assert set(tensors) == {"hidden_states", "token_ids"}
        assert tensors["token_ids"].tolist() == ids[start:end]
        row_criterion(tensors["hidden_states"], expected_states(ids)[start:end])

    return check


class ServerProcess(subprocess.Popen[str]):
    """`drillcore serve` as a process."""

    @cached_property
    def url(self) -> str:
        """Its address, once it is ready."""
        assert self.stdout is not None
        url: str = json.loads(self.stdout.readline())["url"]
        return url


@pytest.fixture
def start(tiny_folder: Path, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """`start("--port", "0")`: the command over the tiny model."""
    processes = []

    def run(*arguments: str, **environment: str) -> ServerProcess:
        command = [sys.executable, "-m", "drillcore_server.cli", "serve", str(tiny_folder), "--layers", "1,3"]
        command += ["--storage", str(tmp_path / "storage"), "--port", "0", "--json", *arguments]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        process = ServerProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()
