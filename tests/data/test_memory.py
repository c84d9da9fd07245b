"""A dataset's size must not show in memory: measured in fresh processes, which do nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

READ_ALL = """
import sys
from collections import deque
from pathlib import Path
from drillcore_server.data.dataset import open_dataset
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource

source = DatasetSource.model_validate({"uri": f"file://{sys.argv[1]}", "columns": {"text": "text"}})
dataset = open_dataset(source, Volumes(Path("/nowhere")))
last = deque(dataset.read(dataset.shard_rows(int(sys.argv[2]), int(sys.argv[3]))), maxlen=1).pop()
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(dataset.num_rows, last.row, int(peak.split()[1]) * 1024)
"""
MIB = 1 << 20


def _write(path: Path, size_bytes: int) -> int:
    """A JSON Lines file of about a size; gives its number of rows."""
    block = b"".join(
        json.dumps({"text": "the sea is blue " * (number % 60)}).encode() + b"\n" for number in range(20_000)
    )
    copies = max(1, size_bytes // len(block))
    with path.open("wb") as file:
        for _ in range(copies):
            file.write(block)
    return copies * 20_000


def _read(path: Path, shard: int, count: int) -> tuple[int, int, int]:
    """Rows, last row read, and peak resident bytes of a process that opens the file and reads one shard."""
    command = [sys.executable, "-c", READ_ALL, str(path), str(shard), str(count)]
    rows, last, peak_bytes = map(
        int, subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    )
    return rows, last, peak_bytes


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_gigabytes_need_no_more_memory_than_ten_megabytes(tmp_path: Path) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small_rows, large_rows = _write(small, 10 * MIB), _write(large, 10 * 1024 * MIB)
    try:
        rows, last, small_peak = _read(small, 0, 1)
        assert (rows, last) == (small_rows, small_rows - 1)
        rows, last, large_peak = _read(large, 99, 100)
        assert (rows, last) == (large_rows, large_rows - 1)
    finally:
        large.unlink()
    assert large_peak < small_peak + 8 * MIB


def test_a_hundred_megabytes_need_no_more_memory_than_ten(tmp_path: Path) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    _write(small, 10 * MIB)
    _write(large, 100 * MIB)
    _, _, small_peak = _read(small, 0, 1)
    _, _, large_peak = _read(large, 9, 10)
    assert large_peak < small_peak + 8 * MIB
