"""W1 as a job: `drillcore run` from the start of its process to its end, and when its first part was durable."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workload_list import Prompts, Workload

from drillcore_spec import names

_POLL_S = 0.02


@dataclass(frozen=True)
class JobTimes:
    """Seconds since the process was started."""

    seconds: float
    """Until the process ended: every file is durable, the shard committed, both processes gone."""
    first_durable_s: float
    """Until the first part had its final name, so that its samples survive any crash."""
    num_bytes: int
    started_at: str
    """Time of day when the process was started."""
    server_log: str
    """The server's log; its lines begin with the time of day."""


def write_job(workload: Workload, prompts: Prompts, model_folder: Path, folder: Path) -> Path:
    """Writes dataset and job file into `folder`; gives the job file."""
    rows = folder / "rows.jsonl"
    with rows.open("w") as file:
        for ids in prompts:
            file.write(json.dumps({"ids": ids.tolist()}) + "\n")
    spec = {
        "model": {"uri": model_folder.absolute().as_uri()},
        "dataset": {"uri": rows.absolute().as_uri(), "columns": {"inputIds": "ids"}},
        "extraction": {"layers": list(workload.layers), "positions": workload.positions.value},
        "output": {"claimName": "outputs"},
        "engine": {
            "maxModelLen": workload.max_model_len,
            "maxNumBatchedTokens": workload.max_num_batched_tokens,
            "prefixCaching": workload.prefix_caching,
        },
    }
    job = {
        "apiVersion": names.API_VERSION,
        "kind": "ExtractionJob",
        "metadata": {"name": workload.name.lower()},
        "spec": spec,
    }
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    return path


def run_job(job: Path, output: Path, ring_bytes: int, limit_s: float) -> JobTimes:
    """Runs a job file in processes of its own.

    Raises:
        RuntimeError: the job failed; the message has what it said.
        subprocess.TimeoutExpired: it took longer than `limit_s`.
    """
    command = [sys.executable, "-m", "drillcore_server.cli", "run", str(job), "--json"]
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--output", str(output), "--ring", str(ring_bytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    first_durable_s, log = None, ""
    try:
        while process.poll() is None:
            elapsed = time.perf_counter() - began
            if first_durable_s is None and any(output.glob("shards/*/part-*.safetensors")):
                first_durable_s = elapsed
            log = _server_log() or log
            if elapsed > limit_s:
                raise subprocess.TimeoutExpired(command, limit_s, log)
            time.sleep(_POLL_S)
        seconds = time.perf_counter() - began
    finally:
        process.terminate()
        said, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the job ended with code {process.returncode}: {said}\n{log}")
    num_bytes = sum(path.stat().st_size for path in output.rglob("*.safetensors"))
    return JobTimes(seconds, first_durable_s or seconds, num_bytes, started_at, log)


def _server_log() -> str:
    """The log of the server that runs now: its folder is removed when it ends."""
    for path in Path(names.SHM_DIR).glob("drillcore-*/shard.log"):
        try:
            return path.read_text()
        except FileNotFoundError:
            continue
    return ""
