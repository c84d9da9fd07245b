"""`drillcore serve` beside the path of `drillcore run`, on the same rows, the same model and the same device.

In each round, in processes of their own: the engine with its ring and a sidecar (what `drillcore run` is made of),
from the first request to the commit; then a server with 1, 32 and 256 requests in flight, from the first request to
the last answer, with `max_tokens` 0 as a job has it, and with 1 as speculators' client sends it. Start and weights are
in neither. The client is one more process, on the same cores. Ratios are taken round by round, of wall time and of the
CPU time of all processes but the client: the second is the one to trust on a machine that has other work.

    python benchmarks/serve.py --model volumes/models/smollm2-135m-instruct --layers 2,15,27,30 --out FILE
    python benchmarks/serve.py --shape qwen3-0.6b --layers 2,14,25,28 --rows 5000 --root /dev/shm   # random weights
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from serve_http import cpu_s
from serve_load import Load, bodies_of, remove_files, run_load

IN_FLIGHT = (1, 32, 256)
_MAX_TOKENS = (0, 1)
_SHORTEST = 16
_ONE_AT_A_TIME = 100
"""Requests of a pass with one in flight: its latency needs no more."""


@dataclass(frozen=True)
class Rows:
    """What both are given."""

    model: Path
    layers: tuple[int, ...]
    count: int
    longest: int
    batched_tokens: int

    def prompts(self) -> list[np.ndarray]:
        """Random ids; the same on each call."""
        rng = np.random.default_rng(0)
        vocab_size = json.loads((self.model / "config.json").read_text())["vocab_size"]
        return [rng.integers(0, vocab_size, rng.integers(_SHORTEST, self.longest + 1)) for _ in range(self.count)]


def main() -> None:
    """Prints, and writes, one JSON array."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder")
    parser.add_argument("--shape", help="instead: a shape of random_model, made with random weights below --root")
    parser.add_argument("--layers", type=lambda text: tuple(map(int, text.split(","))), required=True)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--longest", type=int, default=64, help="tokens of the longest row")
    parser.add_argument("--batched-tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()), help="where files are written")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.root) as folder:
        model = arguments.model or _make_model(arguments.shape, Path(folder) / "model")
        rows = Rows(model, arguments.layers, arguments.rows, arguments.longest, arguments.batched_tokens)
        if arguments.job:
            print(json.dumps(_run_job(rows, Path(folder))))
            return
        results = measure(rows, Path(folder), arguments.rounds)
    text = json.dumps(results, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


def measure(rows: Rows, folder: Path, rounds: int) -> list[dict[str, object]]:
    """One row for the job, and one for each way to ask the server."""
    jobs, loads = [], {}
    for _ in range(rounds):
        jobs.append(_job_in_its_process(rows, folder))
        for max_tokens in _MAX_TOKENS:
            for in_flight, measured in _serve_rounds(rows, folder, max_tokens):
                loads.setdefault((max_tokens, in_flight), []).append(measured)
    tokens = sum(map(len, rows.prompts()))
    job_row = {
        "system": "drillcore-run",
        "tokens_per_s": round(statistics.median(tokens / job["seconds"] for job in jobs), 1),
        "cpu_us_per_token": round(statistics.median(job["cpu_s"] / tokens * 1e6 for job in jobs), 1),
    }
    served = [
        _served_row(max_tokens, in_flight, measured, jobs, tokens)
        for (max_tokens, in_flight), measured in sorted(loads.items())
    ]
    about = _conditions(rows, rounds)
    return [{"workload": "serve", **row, **about} for row in [job_row, *served]]


@dataclass(frozen=True)
class Measured:
    """One pass over the rows."""

    load: Load
    cpu_s: float
    tokens: int


def _served_row(
    max_tokens: int, in_flight: int, measured: list[Measured], jobs: list[dict[str, float]], tokens: int
) -> dict[str, object]:
    wall = [m.tokens / m.load.seconds * job["seconds"] / tokens for m, job in zip(measured, jobs, strict=True)]
    cpu = [job["cpu_s"] / tokens * m.tokens / m.cpu_s for m, job in zip(measured, jobs, strict=True)]
    all_latencies = Load(0, [latency for m in measured for latency in m.load.latencies_s])
    return {
        "system": "drillcore-serve",
        "max_tokens": max_tokens,
        "in_flight": in_flight,
        "tokens_per_s": round(statistics.median(m.tokens / m.load.seconds for m in measured), 1),
        "latency_ms": all_latencies.percentiles_ms(),
        "cpu_us_per_token": round(statistics.median(m.cpu_s / m.tokens * 1e6 for m in measured), 1),
        "wall_ratios_to_run": [round(ratio, 3) for ratio in wall],
        "cpu_ratios_to_run": [round(ratio, 3) for ratio in cpu],
        "cpu_ratio_to_run": round(statistics.median(cpu), 3),
    }


def _serve_rounds(rows: Rows, folder: Path, max_tokens: int) -> Iterator[tuple[int, Measured]]:
    prompts = rows.prompts()
    with _server(rows, folder / "storage") as (process, url):
        run_load(url, bodies_of(prompts[:8], max_tokens, "benchmark"), 1, remove_files)
        for in_flight in IN_FLIGHT:
            asked = prompts[:_ONE_AT_A_TIME] if in_flight == 1 else prompts
            bodies = bodies_of(asked, max_tokens, "benchmark")
            before = cpu_s(process.pid)
            load = run_load(url, bodies, in_flight, remove_files)
            yield in_flight, Measured(load, cpu_s(process.pid) - before, sum(map(len, asked)))


@contextmanager
def _server(rows: Rows, storage: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "drillcore_server.cli", "serve", str(rows.model), "--storage", str(storage)]
    command += ["--layers", ",".join(map(str, rows.layers)), "--served-model-name", "benchmark", "--port", "0"]
    command += ["--max-num-batched-tokens", str(rows.batched_tokens), "--max-model-len", str(_model_len(rows))]
    command += ["--no-enable-prefix-caching", "--store-dtype", _store_dtype(), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            raise SystemExit(f"the server ended with code {process.wait()}; its own messages stand above")
        yield process, json.loads(line)["url"]
    finally:
        process.terminate()
        process.wait()


def _job_in_its_process(rows: Rows, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--job", "--model", str(rows.model), "--rows", str(rows.count)]
    command += ["--layers", ",".join(map(str, rows.layers)), "--longest", str(rows.longest), "--root", str(folder)]
    command += ["--batched-tokens", str(rows.batched_tokens)]
    answer: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer


def _run_job(rows: Rows, folder: Path) -> dict[str, float]:
    """Seconds and CPU seconds of engine and sidecar, from the first request to the commit."""
    from end_to_end import Places, extract
    from workload_list import Workload

    from drillcore_server.engine.device import choose_device, compute_dtype
    from drillcore_server.engine.sizing import step_tokens
    from drillcore_server.models.loader import load_decoder
    from drillcore_server.models.spec import ModelSpec
    from drillcore_spec.enums import DType

    device, spec, prompts = choose_device(0, local=True), ModelSpec.from_folder(rows.model), rows.prompts()
    decoder = load_decoder(
        rows.model,
        spec,
        device=device,
        dtype=compute_dtype(DType.AUTO, spec.dtype, device),
        num_layers=max(rows.layers),
        lm_head=False,
        final_norm=False,
    )
    workload = Workload(
        name="serve",
        model=rows.model.name,
        layers=rows.layers,
        make_prompts=lambda count, vocab_size: prompts,
        count=rows.count,
        max_num_batched_tokens=step_tokens(rows.batched_tokens, decoder),
        max_model_len=_model_len(rows),
        ring_bytes=256 << 20,
    )
    places = Places(folder, Path("/dev/shm"), num_writers=4)
    extract(workload, decoder, prompts[:8], places)
    before = _cpu_of_all_s()
    extraction = extract(workload, decoder, prompts, places)
    return {"seconds": extraction.seconds, "cpu_s": _cpu_of_all_s() - before}


def _cpu_of_all_s() -> float:
    """This process's CPU time, and that of children that have ended: the sidecar's, its start included."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _store_dtype() -> str:
    """The engine's own, in which the job of `end_to_end` stores, too."""
    import torch

    return "auto" if torch.cuda.is_available() else "float32"


def _model_len(rows: Rows) -> int:
    """Positions of the engine: room for the longest row, not for the model's longest, which no row needs."""
    return max(rows.longest, 512)


def _make_model(shape: str, folder: Path) -> Path:
    import torch
    from random_model import make_model, write_model_folder

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    write_model_folder(make_model(shape, device), folder)
    return folder


def _conditions(rows: Rows, rounds: int) -> dict[str, object]:
    import torch
    from conditions import ClockReading, conditions

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = conditions(device, ClockReading(device).result())
    load = [round(value, 1) for value in os.getloadavg()]
    return {
        **about,
        "rows": rows.count,
        "longest_row": rows.longest,
        "layers": rows.layers,
        "rounds": rounds,
        "cores": os.cpu_count(),
        "load_average": load,
    }


if __name__ == "__main__":
    main()
