"""How fast the sidecar writes, from the first sealed record to commit.json, beside `dd` on the same folder.

    python benchmarks/sidecar_write.py [--output DIR] [--gib 4] [--writers 4] [--ring-gib 1] [--part-gib 1]

Both write the same number of bytes in blocks of the same size (dd conv=fsync), in turn. A server without a model seals
records whose bytes lie in the ring already, so nothing but the sidecar works. Prints one line of JSON; ends with 1
when the median of the sidecar's rates is below 0.8 of dd's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.manifest import Manifest, ModelIdentity
from drillcore.records import SampleEnd
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.producer import RingProducer

LIMIT = 0.8
GIB = 1 << 30
COLUMNS, HIDDEN, TOKENS = 4, 4096, 896
"""Four layers of an 8B model in bfloat16, and a conversation of usual length: 28 MiB a sample."""
ROW_BYTES = COLUMNS * HIDDEN * 2
BLOCK_BYTES = 2 << 20


def main() -> int:
    """Write in turn, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="folder to write under (default: a temporary one)")
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--ring-gib", type=float, default=1.0)
    parser.add_argument("--part-gib", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    num_samples = max(1, round(arguments.gib * GIB / (TOKENS * ROW_BYTES)))
    num_bytes = num_samples * TOKENS * ROW_BYTES
    dd, sidecar = [], []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory(dir=arguments.output) as folder:
            dd.append(num_bytes / dd_seconds(Path(folder), num_bytes))
        with tempfile.TemporaryDirectory(dir=arguments.output) as folder:
            sidecar.append(num_bytes / sidecar_seconds(Path(folder), num_samples, arguments))
    ratio = statistics.median(sidecar) / statistics.median(dd)
    result = {
        "benchmark": "sidecar_write",
        "bytes": num_bytes,
        "blockBytes": BLOCK_BYTES,
        "writers": arguments.writers,
        "sidecarGBs": [round(rate / 1e9, 3) for rate in sidecar],
        "ddGBs": [round(rate / 1e9, 3) for rate in dd],
        "ratio": round(ratio, 3),
        "limit": LIMIT,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "commit": os.environ.get("BENCHMARK_COMMIT") or commit(),
        "command": " ".join(sys.argv),
    }
    print(json.dumps(result))
    return 0 if ratio >= LIMIT else 1


def commit() -> str:
    """The commit that is measured."""
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def dd_seconds(folder: Path, num_bytes: int) -> float:
    """Seconds that dd takes for a file of that size, its fsync included."""
    os.sync()
    began = time.perf_counter()
    subprocess.run(
        [
            "dd",
            "if=/dev/zero",
            f"of={folder / 'dd'}",
            f"bs={BLOCK_BYTES}",
            f"count={num_bytes // BLOCK_BYTES}",
            "conv=fsync",
        ],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


def sidecar_seconds(folder: Path, num_samples: int, arguments: argparse.Namespace) -> float:
    """Seconds from the first record to the commit."""
    output = folder / "output"
    ring_dir = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="sidecar-write-"))
    manifest = manifest_of()
    sidecar = subprocess.Popen(
        [sys.executable, "-m", "drillcore_server.sidecar", "--ring-dir", str(ring_dir), "--output", str(output)],
        stderr=subprocess.DEVNULL,
    )
    try:
        producer = RingProducer.create(
            ring_dir, int(arguments.ring_gib * GIB), dtype="BF16", columns=COLUMNS, hidden=HIDDEN
        )
        np.frombuffer(producer.buffer, np.uint8)[:] = 7
        JobFile(
            manifest=manifest,
            shard=0,
            first_row=0,
            rows_in=num_samples,
            part_bytes=int(arguments.part_gib * GIB),
            commit_interval_s=60.0,
            size_limit_bytes=None,
            num_writers=arguments.writers,
        ).write(ring_dir)
        producer.connect(60)
        os.sync()
        began = time.perf_counter()
        send(producer, num_samples)
        seconds = time.perf_counter() - began
        producer.close()
        if sidecar.wait(60) or drillcore.open(output).counts.rows_out != num_samples:
            raise RuntimeError("the sidecar did not write what was sealed")
        return seconds
    finally:
        sidecar.kill()
        sidecar.wait()
        shutil.rmtree(ring_dir)


def send(producer: RingProducer, num_samples: int) -> None:
    """Seals every sample and waits for the commit."""
    token_ids, ones = np.zeros(TOKENS, np.int64), np.ones(COLUMNS)
    for row in range(num_samples):
        first = 0
        while first < TOKENS:
            chunk = producer.reserve(min(TOKENS - first, BLOCK_BYTES // ROW_BYTES))
            if chunk is None:
                producer.wait(1)
                continue
            producer.seal(chunk, row=row, first_state=first)
            first += chunk.num_states
        end = SampleEnd(
            row=row,
            id=None,
            token_ids=token_ids,
            num_prompt_tokens=TOKENS,
            original_tokens=TOKENS,
            last_token=None,
            num_states=TOKENS,
            positions=None,
            loss_mask=None,
            norm_sums=ones,
            max_abs=ones,
        )
        while not producer.end_sample(end):
            producer.wait(1)
        producer.poll()
    producer.end()
    while not producer.committed:
        producer.wait(1)


def manifest_of() -> Manifest:
    """Any job of this shape."""
    return Manifest(
        engine_version="0",
        model=ModelIdentity("file:///model", None, "0", "0", "0"),
        dataset={"uri": "file:///data", "files": []},
        layers=tuple(range(COLUMNS)),
        final_norm=False,
        hidden_size=HIDDEN,
        positions="All",
        dtype=StoreDType.BF16,
        store_dtype=StoreDType.BF16,
        generation=None,
        max_model_len=TOKENS,
        shard_count=1,
        special_token_ids=(),
    )


if __name__ == "__main__":
    sys.exit(main())
