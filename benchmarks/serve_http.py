"""The HTTP layer alone: CPU time of a request whose engine answers at once, beside a bare FastAPI echo.

Both are applications of one process, each on its port of the same kind of uvicorn, and get the same bodies from the
same client, in turn. The echo parses the body into a pydantic model and gives it back. Our own side does everything
but the engine's work and the file: it parses, checks, admits, names the file, watches for a client that leaves, makes
the text and the answer.

    python benchmarks/serve_http.py            # one JSON array
    python benchmarks/serve_http.py --serve    # what it starts
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from serve_load import bodies_of, run_load

LENGTHS = (16, 128, 1024)
NUM_REQUESTS, IN_FLIGHT, ROUNDS = 400, 32, 5
MODEL, VOCAB_SIZE = "tiny", 256


def main() -> None:
    """Measures, or serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(_serve())
    else:
        print(json.dumps(measure(arguments.rounds), indent=1))


def measure(rounds: int) -> list[dict[str, object]]:
    """For each length of prompts: microseconds of CPU of a request of both, and the ratio, round by round."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        urls: dict[str, str] = json.loads(process.stdout.readline())
        rows = [_compare(length, process.pid, urls, rounds) for length in LENGTHS]
    finally:
        process.kill()
        process.wait()
    return [{**row, **_conditions()} for row in rows]


def _conditions() -> dict[str, object]:
    packages = ("fastapi", "starlette", "uvicorn", "h11", "pydantic")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "cores": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
    }


def _compare(length: int, pid: int, urls: dict[str, str], rounds: int) -> dict[str, object]:
    prompts = np.random.default_rng(length).integers(0, VOCAB_SIZE, (NUM_REQUESTS, length))
    bodies = bodies_of(prompts, 1, MODEL)
    cpu_us: dict[str, list[float]] = {"echo": [], "ours": []}
    for round_ in range(rounds + 1):
        for kind in ("echo", "ours") if round_ % 2 else ("ours", "echo"):
            before = cpu_s(pid)
            run_load(urls[kind], bodies, IN_FLIGHT, lambda answer: None)
            cpu_us[kind].append((cpu_s(pid) - before) / NUM_REQUESTS * 1e6)
    pairs = list(zip(cpu_us["ours"], cpu_us["echo"], strict=True))[1:]  # the first round warms both up
    return {
        "workload": "http-layer",
        "prompt_tokens": length,
        "in_flight": IN_FLIGHT,
        "ours_cpu_us": round(statistics.median(ours for ours, _ in pairs), 1),
        "echo_cpu_us": round(statistics.median(echo for _, echo in pairs), 1),
        "ratios": [round(ours / echo, 3) for ours, echo in pairs],
        "ratio": round(statistics.median(ours / echo for ours, echo in pairs), 3),
    }


def cpu_s(pid: int) -> float:
    """Time on a CPU of a process and all of its threads so far, by the scheduler's own count in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _echo() -> object:
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Body(BaseModel):
        model: str
        prompt: list[int]
        max_tokens: int
        return_token_ids: bool

    app = FastAPI()

    async def echo(body: Body) -> Body:
        return body

    echo.__annotations__ = {"body": Body, "return": Body}
    app.post("/v1/completions")(echo)
    return app


async def _serve() -> None:
    import torch
    from random_model import make_model, write_model_folder

    from drillcore_server.api.app import create_app
    from drillcore_server.api.file_engine import FileEngine
    from drillcore_server.api.loading import load_model
    from drillcore_server.api.sample_target import SampleFile
    from drillcore_server.api.serving import freeze_memory, make_services
    from drillcore_server.api.settings import ServeSettings
    from drillcore_server.api.storage import Storage
    from drillcore_server.volumes import Volumes

    class InstantEngine(FileEngine):
        """Every file is published the moment that it is asked for."""

        def submit_to(self, request, target):  # noqa: ANN001
            future = asyncio.get_running_loop().create_future()
            generated = np.array([7] * request.max_tokens)
            future.set_result(SampleFile(generated, request.num_prompt_tokens, 4096))
            return future

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model("tiny", torch.device("cpu"))
        write_model_folder(model, Path(folder) / "model")
        settings = ServeSettings(
            model_uri=(Path(folder) / "model").as_uri(),
            model_id=MODEL,
            layers=(2, 4),
            storage=Path(folder) / "storage",
        )
        loaded, storage = load_model(settings, Volumes(Path(folder))), Storage(settings.storage)
        engine = InstantEngine(loaded.decoder, loaded.plan, loaded.config, settings)
        async with engine:
            freeze_memory()
            apps = {"echo": _echo(), "ours": create_app(make_services(settings, loaded, engine, storage))}
            await _listen(apps)


async def _listen(apps: dict[str, object]) -> None:
    from drillcore_server.api.serving import make_server

    listeners = {name: socket.create_server(("127.0.0.1", 0), backlog=1024) for name in apps}
    ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
    print(json.dumps({name: f"http://127.0.0.1:{port}" for name, port in ports.items()}), flush=True)
    serving = (make_server(app).serve(sockets=[listeners[name]]) for name, app in apps.items())  # type: ignore[arg-type]
    await asyncio.gather(*serving)


if __name__ == "__main__":
    main()
