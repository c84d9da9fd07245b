"""A workload from its first prompt to its last complete file: engine, ring, and a sidecar in a process of its own."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pool_use import PoolUse, watch_pool
from step_times import StepTimes, watch_steps
from workload_list import Prompts, Workload

import drillcore
from drillcore.manifest import Manifest, ModelIdentity
from drillcore_server.connector.registered_memory import register_for
from drillcore_server.connector.ring_sink import RingSink
from drillcore_server.engine import CapturePlan, Engine, EngineConfig, Request
from drillcore_server.engine.device import stored_name
from drillcore_server.engine.sizing import with_blocks
from drillcore_server.models.decoder import Decoder
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.producer import RingProducer
from drillcore_spec.enums import LayerConvention

PART_BYTES = 1 << 30
_CONNECT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Places:
    """Where a run keeps its files."""

    output_root: Path
    """A folder for the output is made here and removed after the run."""
    ring_root: Path
    num_writers: int


@dataclass(frozen=True)
class Disturbance:
    """A sidecar that stands still for a while."""

    after_s: float
    """Of the first request."""
    pause_s: float


@dataclass(frozen=True)
class Extraction:
    """What one end-to-end run took."""

    seconds: float
    """From the first request to the sidecar's word that the shard is committed."""
    num_tokens: int
    """Tokens of prompts, computed or hit in the prefix cache, and generated ones that were an input."""
    num_computed_tokens: int
    num_samples: int
    num_bytes: int
    """Of the output's parts."""
    num_steps: int
    drain_s: float
    """After the engine's last sample: writing, closing of parts, commit."""
    steps: StepTimes
    pool: PoolUse


def plan_of(workload: Workload, decoder: Decoder) -> CapturePlan:
    """The workload's layers as columns."""
    spec = decoder.spec
    return CapturePlan.resolve(workload.layers, LayerConvention.RESIDUAL_IN, False, spec.num_layers, spec.hidden_size)


def limits_of(workload: Workload, num_blocks: int = 2) -> EngineConfig:
    """The engine's limits for a workload."""
    return EngineConfig(
        max_model_len=workload.max_model_len,
        num_blocks=num_blocks,
        max_num_batched_tokens=workload.max_num_batched_tokens,
        prefix_caching=workload.prefix_caching,
        max_tokens=workload.max_tokens,
    )


def config_of(workload: Workload, decoder: Decoder) -> EngineConfig:
    """The limits with as many blocks as a job of the product would get on this device."""
    plan, stored = plan_of(workload, decoder), decoder.weights.embedding.dtype
    return with_blocks(limits_of(workload), plan, decoder, stored)


def requests_of(workload: Workload, prompts: Prompts) -> Iterator[Request]:
    """One request a row, made when the engine takes it."""
    return (Request(row, ids, workload.positions, max_tokens=workload.max_tokens) for row, ids in enumerate(prompts))


def extract(
    workload: Workload,
    decoder: Decoder,
    prompts: Prompts,
    places: Places,
    disturbance: Disturbance | None = None,
) -> Extraction:
    """Runs the workload; its output is checked for the number of rows, and removed.

    Raises:
        RuntimeError: the output is not what was to be written, or the engine's blocks do not add up.
    """
    plan, device = plan_of(workload, decoder), decoder.weights.embedding.device
    with _sidecar(places) as (ring_dir, output, sidecar):
        dtype = stored_name(decoder.weights.embedding.dtype)
        hidden = decoder.spec.hidden_size
        _job_file(workload, decoder, len(prompts), places).write(ring_dir)
        producer = RingProducer.create(
            ring_dir, workload.ring_bytes, dtype=dtype.value, columns=plan.num_columns, hidden=hidden
        )
        memory = register_for(device, producer.buffer)
        engine = Engine(decoder, plan, config_of(workload, decoder), RingSink(producer))
        producer.connect(_CONNECT_TIMEOUT_S)
        with watch_steps(engine.runner) as steps, watch_pool(engine) as pool, _disturbed(sidecar, disturbance):
            began = time.perf_counter()
            engine.run(requests_of(workload, prompts))
            computed = time.perf_counter()
            producer.end()
            while not producer.committed:
                producer.wait(0.1)
            ended = time.perf_counter()
        engine.check_integrity()
        producer.close()
        if memory is not None:
            memory.release()
        found = drillcore.open(output).counts
        if found.rows_out != len(prompts):
            raise RuntimeError(f"{workload.name}: {len(prompts)} rows were to be written; the output has {found}")
        return Extraction(
            seconds=ended - began,
            num_tokens=sum(len(ids) + max(0, workload.max_tokens - 1) for ids in prompts),
            num_computed_tokens=engine.scheduler_counters.computed_tokens,
            num_samples=len(prompts),
            num_bytes=sum(path.stat().st_size for path in output.rglob("*.safetensors")),
            num_steps=engine.scheduler_counters.steps,
            drain_s=ended - computed,
            steps=steps.summary(began),
            pool=pool,
        )


@contextlib.contextmanager
def _sidecar(places: Places) -> Iterator[tuple[Path, Path, subprocess.Popen[bytes]]]:
    """Folders of a ring and an output, and the sidecar that serves them."""
    ring_dir = Path(tempfile.mkdtemp(prefix="workload-ring-", dir=places.ring_root))
    output = Path(tempfile.mkdtemp(prefix="workload-output-", dir=places.output_root))
    command = [sys.executable, "-m", "drillcore_server.sidecar", "--ring-dir", str(ring_dir), "--output", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield ring_dir, output, process
        if process.wait(_CONNECT_TIMEOUT_S):
            raise RuntimeError(f"the sidecar ended with code {process.returncode}")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(ring_dir)
        shutil.rmtree(output)


@contextlib.contextmanager
def _disturbed(sidecar: subprocess.Popen[bytes], disturbance: Disturbance | None) -> Iterator[None]:
    """Stops the sidecar for a while from another thread."""
    if disturbance is None:
        yield
        return

    def pause() -> None:
        sidecar.send_signal(signal.SIGSTOP)
        time.sleep(disturbance.pause_s)
        sidecar.send_signal(signal.SIGCONT)

    timer = threading.Timer(disturbance.after_s, pause)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _job_file(workload: Workload, decoder: Decoder, num_rows: int, places: Places) -> JobFile:
    dtype = stored_name(decoder.weights.embedding.dtype)
    manifest = Manifest(
        engine_version="benchmark",
        model=ModelIdentity(f"random://{workload.model}", None, "0", "0", "0"),
        dataset={"uri": f"benchmark://{workload.name}", "files": []},
        layers=workload.layers,
        final_norm=False,
        hidden_size=decoder.spec.hidden_size,
        positions=workload.positions.value,
        dtype=dtype,
        store_dtype=dtype,
        generation=None,
        max_model_len=workload.max_model_len,
        shard_count=1,
        special_token_ids=(),
    )
    return JobFile(
        manifest=manifest,
        shard=0,
        first_row=0,
        rows_in=num_rows,
        part_bytes=PART_BYTES,
        commit_interval_s=60.0,
        size_limit_bytes=None,
        num_writers=places.num_writers,
    )
