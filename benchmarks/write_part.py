"""How fast `PartWriter` writes one part, next to `dd` with the same block size, in turn on the same disk.

    python benchmarks/write_part.py [--folder DIR] [--part-bytes 1073741824] [--block-bytes 1048576] [--repeats 5]

Both end with an fsync of the file. Prints one line of JSON; ends with 1 when the median of the ratios is below 0.8.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from drillcore.checksum import check_file
from drillcore.dtypes import StoreDType
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.records import SampleEnd

LIMIT = 0.8
COLUMNS, HIDDEN = 4, 4096


def main() -> int:
    """Write in turn, check what was written, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--part-bytes", type=int, default=1 << 30)
    parser.add_argument("--block-bytes", type=int, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for number in range(arguments.repeats):
            theirs.append(dd(Path(folder) / "dd", arguments.part_bytes, arguments.block_bytes))
            ours.append(write_part(Path(folder), number, arguments.part_bytes, arguments.block_bytes))
    ratio = statistics.median(mine / dds for mine, dds in zip(ours, theirs, strict=True))
    result = {
        "benchmark": "write_part",
        "partBytes": arguments.part_bytes,
        "blockBytes": arguments.block_bytes,
        "writerBytesPerSecond": round(statistics.median(ours)),
        "ddBytesPerSecond": round(statistics.median(theirs)),
        "ratio": round(ratio, 3),
        "limit": LIMIT,
        "endSampleMicroseconds": round(end_sample_us(), 2),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    print(json.dumps(result))
    return int(ratio < LIMIT)


def dd(path: Path, size_bytes: int, block_bytes: int) -> float:
    """Bytes a second of `dd`."""
    count = size_bytes // block_bytes
    began = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={path}", f"bs={block_bytes}", f"count={count}", "conv=fsync"],
        check=True,
        capture_output=True,
    )
    speed = count * block_bytes / (time.perf_counter() - began)
    path.unlink()
    return speed


def write_part(folder: Path, number: int, size_bytes: int, block_bytes: int) -> float:
    """Bytes a second of a part of samples of one block each, from open to rename; the part is then checked."""
    schema = PartSchema(StoreDType.BF16, COLUMNS, HIDDEN, every_token=True, means=False, metadata={})
    block = memoryview(os.urandom(block_bytes))
    end = sample_end(block_bytes // schema.state_bytes)
    began = time.perf_counter()
    writer = PartWriter(folder / f"part-{number:05d}-00000001.safetensors", schema)
    for _ in range(size_bytes // block_bytes):
        writer.append(block)
        writer.end_sample(end)
    info = writer.close()
    seconds = time.perf_counter() - began
    if info is None:
        raise SystemExit("--part-bytes must be at least --block-bytes")
    check_file(writer.path, info)
    writer.path.unlink()
    return info.bytes / seconds


def end_sample_us(samples: int = 50_000) -> float:
    """Microseconds of `end_sample` for a sample of 64 tokens."""
    schema = PartSchema(StoreDType.F32, 1, 1, every_token=True, means=False, metadata={})
    end = sample_end(64, columns=1)
    states = memoryview(bytes(64 * schema.state_bytes))
    with tempfile.TemporaryDirectory() as folder:
        writer = PartWriter(Path(folder) / "part-00000-00000001.safetensors", schema)
        spent = 0.0
        for _ in range(samples):
            writer.append(states)
            began = time.perf_counter()
            writer.end_sample(end)
            spent += time.perf_counter() - began
        writer.abandon()
    return spent / samples * 1e6


def sample_end(num_tokens: int, columns: int = COLUMNS) -> SampleEnd:
    """The end of a sample with so many tokens, each with a state."""
    return SampleEnd(
        row=0,
        id="conversation-12345",
        token_ids=np.arange(num_tokens),
        num_prompt_tokens=num_tokens,
        original_tokens=num_tokens,
        last_token=None,
        num_states=num_tokens,
        positions=None,
        loss_mask=np.ones(num_tokens, np.uint8),
        norm_sums=np.ones(columns),
        max_abs=np.ones(columns),
    )


if __name__ == "__main__":
    sys.exit(main())
