"""How fast `activations` gives one layer, beside a plain sequential read of the same files from a warm page cache.

    python benchmarks/read_activations.py [--columns 1 3] [--hidden 2048] [--gib 1] [--rounds 7]

The plain read takes all bytes of all parts in pieces of a batch's size, each into memory of its own, as batches are.
With C columns a layer is 1/C of those bytes. Both run in this process in alternation; a rate is states a second, a
ratio that of the medians. Prints one line of JSON for each number of columns and each order.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.journal import Journal, QuarantineLog
from drillcore.layout import Layout, new_attempt_id
from drillcore.manifest import Manifest, ModelIdentity
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.publish import publish_commit, publish_complete, publish_manifest
from drillcore.records import SampleEnd

BATCH_STATES = 4096
SHUFFLE_STATES = 65_536
_TOKENS = 1024
_NUM_PARTS = 4


def main() -> int:
    """Write each output, read it in all ways, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; default: a temporary folder")
    arguments = parser.parse_args()
    for columns in arguments.columns:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            state_bytes = columns * arguments.hidden * StoreDType.BF16.itemsize
            num_samples = int(arguments.gib * 2**30 / state_bytes / _TOKENS)
            write_output(Path(folder), columns, arguments.hidden, num_samples)
            for row in measure(Path(folder), arguments.rounds):
                print(json.dumps({"columns": columns, "hidden": arguments.hidden} | row | conditions()), flush=True)
    return 0


def write_output(folder: Path, columns: int, hidden: int, num_samples: int) -> None:
    """An output of bfloat16 states over several parts; the first token of each sample is special."""
    manifest = Manifest(
        engine_version="0",
        model=ModelIdentity("file:///model", None, "", "", ""),
        dataset={"uri": "file:///rows.jsonl", "files": []},
        layers=tuple(range(columns)),
        final_norm=False,
        hidden_size=hidden,
        positions="All",
        dtype=StoreDType.BF16,
        store_dtype=StoreDType.BF16,
        generation=None,
        max_model_len=2 * _TOKENS,
        shard_count=1,
        special_token_ids=(0,),
    )
    layout, attempt = Layout(folder), new_attempt_id()
    publish_manifest(layout, manifest)
    shard = layout.shard(0)
    journal, quarantine = Journal(shard, attempt), QuarantineLog(shard, attempt)
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2**15, (2 * _TOKENS, columns, hidden), dtype=np.uint16)
    parts = []
    for number, rows in enumerate(np.array_split(np.arange(num_samples), _NUM_PARTS)):
        writer = PartWriter(shard.part(number, attempt), PartSchema.of(manifest))
        for row in rows.tolist():
            tokens = rng.integers(1, 50_000, int(rng.integers(_TOKENS // 2, _TOKENS * 3 // 2)))
            tokens[0] = 0
            writer.append(states[: len(tokens)].reshape(-1).view(np.uint8).data)
            writer.end_sample(_end(row, tokens, columns))
        part = writer.close()
        assert part is not None
        journal.append(part)
        parts.append(part)
    publish_commit(shard, manifest, attempt, parts=parts, quarantine=quarantine, rows_in=num_samples)
    publish_complete(layout, manifest)


def _end(row: int, tokens: np.ndarray, columns: int) -> SampleEnd:
    count, stats = len(tokens), np.ones(columns)
    return SampleEnd(row, None, tokens, count, count, None, count, None, None, stats, stats)


def measure(folder: Path, rounds: int) -> list[dict[str, object]]:
    """Rates of the plain read and of `activations` in both orders, and their ratios."""
    output = drillcore.open(folder)
    paths = [shard.shard.named(part.name) for shard in output.shards for part in shard.parts]
    batch_bytes = BATCH_STATES * output.manifest.hidden_size * output.manifest.store_dtype.itemsize
    ways: dict[str, Callable[[], None]] = {
        "plain read": lambda: read_plainly(paths, batch_bytes),
        "in order": lambda: read_epoch(folder, 0),
        "shuffled": lambda: read_epoch(folder, SHUFFLE_STATES),
    }
    for way in ways.values():
        way()
    seconds = {name: ([], []) for name in ways}  # type: dict[str, tuple[list[float], list[float]]]
    for _ in range(rounds):
        for name, way in ways.items():
            for times, spent in zip(seconds[name], seconds_of(way), strict=True):
                times.append(spent)
    plain_wall, plain_cpu = map(statistics.median, seconds["plain read"])
    states = output.counts.states
    rows: list[dict[str, object]] = []
    for name in ("in order", "shuffled"):
        wall, cpu = map(statistics.median, seconds[name])
        rows.append({
            "order": name,
            "states_per_s": round(states / wall),
            "plain_read_states_per_s": round(states / plain_wall),
            "ratio": round(plain_wall / wall, 2),
            "states_per_cpu_s": round(states / cpu),
            "plain_read_states_per_cpu_s": round(states / plain_cpu),
            "ratio_of_cpu_time": round(plain_cpu / cpu, 2),
            "gib": round(sum(path.stat().st_size for path in paths) / 2**30, 2),
        })  # fmt: skip
    return rows


def read_plainly(paths: list[Path], piece_bytes: int) -> None:
    """Read all bytes in the files' order, each piece into memory of its own."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(np.empty(piece_bytes, np.uint8).data):
                pass


def read_epoch(folder: Path, shuffle_buffer: int) -> None:
    """Open the output and read one epoch of its first layer."""
    for _ in drillcore.open(folder).activations(0, BATCH_STATES, shuffle_buffer):
        pass


def seconds_of(way: Callable[[], None]) -> tuple[float, float]:
    """Wall-clock and CPU seconds, of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - wall, time.process_time() - cpu


def conditions() -> dict[str, object]:
    """Where this was measured."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "command": " ".join(["python", *sys.argv]),
    }


if __name__ == "__main__":
    sys.exit(main())
