"""`drillcore run`: a job file, run here."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from drillcore_server.cli.display import Display, choose_display, human_bytes
from drillcore_server.errors import ShardError
from drillcore_server.local import LocalRun, Progress, ShardResult, Stopped, run_shards
from drillcore_server.volumes import Volumes
from drillcore_spec import ExtractionJob, load_job, names
from drillcore_spec.features import refuse_unbuilt
from drillcore_spec.messages import Counts
from drillcore_spec.quantity import quantity_bytes
from drillcore_spec.reasons import Reason

_MIN_RING_BYTES = 1 << 20


def command(arguments: argparse.Namespace) -> int:
    """Runs the job and prints where the states are; the exit code is that of the shard that failed, or 0."""
    job = load_job(arguments.job)
    refuse_unbuilt(job.spec)
    run = _local_run(job, arguments)
    started_s = time.monotonic()
    signal.signal(signal.SIGTERM, _stop)
    with choose_display(quiet=arguments.json) as display:
        if arguments.status_port is None:
            results = _run(run, display)
        else:
            results = _run_served(job, run, display, arguments.status_port)
    seconds = time.monotonic() - started_s
    if arguments.json:
        _print_json(run, results, seconds)
    elif results[-1].ok:
        _print_summary(run, results, seconds)
    else:
        _print_failure(results[-1])
    return results[-1].reason.exit_code


def _run(run: LocalRun, display: Display) -> list[ShardResult]:
    return run_shards(run, display.progress, lambda shard: _say_restart(display, shard))


def _run_served(job: ExtractionJob, run: LocalRun, display: Display, port: int) -> list[ShardResult]:
    """Runs, and serves the job's status on a port of this machine meanwhile."""
    # A web server takes a while to import: only who asks for it waits.
    from drillcore_server.local_status import LocalJobSource, serve_status

    source = LocalJobSource(job, run.output)

    def take_progress(shard: int, progress: Progress) -> None:
        display.progress(shard, progress)
        source.take_progress(shard, progress)

    def take_restart(shard: int) -> None:
        _say_restart(display, shard)
        source.take_sidecar_restart(shard)

    with serve_status(source, port) as address:
        display.say(f"status page: {address}")
        results = run_shards(run, take_progress, take_restart)
        source.take_results(results)
    return results


def _say_restart(display: Display, shard: int) -> None:
    display.say(f"shard {shard}: the sidecar ended and is started again")


def volumes_of(arguments: argparse.Namespace) -> Volumes:
    """The claims' folders: `--mount`, else ./volumes/CLAIM."""
    return Volumes(Path.cwd() / "volumes", {claim: folder.absolute() for claim, folder in arguments.mount})


def _local_run(job: ExtractionJob, arguments: argparse.Namespace) -> LocalRun:
    volumes = volumes_of(arguments)
    output = job.spec.output
    folder = arguments.output or volumes.claim(output.claim_name) / (output.sub_path or "")
    return LocalRun(
        spec=job.spec,
        volumes=volumes,
        output=folder.absolute(),
        shards=_shards(job, arguments.shard),
        ring_bytes=arguments.ring or _default_ring_bytes(job),
        run_root=_run_root(),
    )


def _shards(job: ExtractionJob, only: int | None) -> Sequence[int]:
    count = job.spec.shards.count
    if only is None:
        return range(count)
    if not 0 <= only < count:
        raise ShardError(Reason.BAD_SPEC, f"`--shard` must be 0 to {count - 1} (shards.count is {count}); got {only}")
    return [only]


def _default_ring_bytes(job: ExtractionJob) -> int:
    """ring.size, at most an eighth of this machine's memory."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_MIN_RING_BYTES, min(quantity_bytes(job.spec.ring.size), memory_bytes // 8))


def _run_root() -> Path:
    """A memory file system where there is one."""
    shared_memory = Path(names.SHM_DIR)
    return shared_memory if os.access(shared_memory, os.W_OK) else Path(tempfile.gettempdir())


def _stop(signum: int, frame: FrameType | None) -> None:
    raise Stopped


def _total(results: Sequence[ShardResult]) -> Counts:
    fields = Counts.model_fields
    return Counts(**{name: sum(getattr(result.counts, name) for result in results) for name in fields})


def _print_json(run: LocalRun, results: Sequence[ShardResult], seconds: float) -> None:
    last = results[-1]
    summary = {
        "output": str(run.output),
        "seconds": round(seconds, 3),
        "code": last.reason.exit_code,
        "reason": last.reason,
        "message": last.message,
        "counts": _total(results).model_dump(by_alias=True),
    }
    json.dump(summary, sys.stdout)
    sys.stdout.write("\n")


def _print_summary(run: LocalRun, results: Sequence[ShardResult], seconds: float) -> None:
    counts = _total(results)
    rows = f"{counts.rows_in} in, {counts.rows_out} out, {counts.rows_quarantined} quarantined"
    size = f"{counts.states:,} states, {human_bytes(counts.bytes)}"
    lines = [
        "",
        f"  rows     {rows}",
        f"  tokens   {counts.tokens:,} ({size})",
        f"  seconds  {seconds:.1f}",
        f"  output   {run.output}",
        "",
        "Read it (no torch needed):",
        "",
        "    import drillcore",
        f"    print(drillcore.open({str(run.output)!r})[0].hidden_states.shape)",
        "",
    ]
    if counts.rows_quarantined:
        lines.append("Quarantined rows, with file, line and reason: shards/*/quarantine-*.jsonl in the output.\n")
    sys.stdout.write("\n".join(lines))


def _print_failure(result: ShardResult) -> None:
    if result.log_tail:
        sys.stderr.write(result.log_tail + "\n")
    sys.stderr.write(f"drillcore run: shard {result.shard}: {result.reason}: {result.message}\n")
    if result.reason in (Reason.TERMINATED, Reason.OUTPUT_VOLUME_FULL, Reason.OUT_OF_MEMORY, Reason.INTERNAL):
        sys.stderr.write("Run the same command to go on: committed rows are not computed again.\n")
