"""How long a fresh process takes to import drillcore and open an output of 100,000 samples in 128 parts.

    python benchmarks/open_output.py [--samples 100000] [--parts 128] [--shards 8] [--repeats 5]

Prints one line of JSON; ends with 1 when the median is not below 0.5 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from drillcore.dtypes import StoreDType
from drillcore.journal import Journal, QuarantineLog
from drillcore.layout import Layout, new_attempt_id
from drillcore.manifest import Manifest, ModelIdentity
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.publish import publish_commit, publish_complete, publish_manifest
from drillcore.records import SampleEnd

LIMIT_S = 0.5
_TOKENS = 4
_FRESH = """
import time
began = time.perf_counter()
import drillcore, sys
output = drillcore.open(sys.argv[1])
print(time.perf_counter() - began, len(output))
"""


def main() -> int:
    """Write the output, open it in fresh processes, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--parts", type=int, default=128)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_output(Path(folder), arguments.samples, arguments.parts, arguments.shards)
        runs = [open_fresh(folder, arguments.samples) for _ in range(arguments.repeats)]
        numpy_alone = [seconds_of("import numpy") for _ in range(arguments.repeats)]
    inside, whole, cpu = zip(*runs, strict=True)
    result = {
        "benchmark": "open_output",
        "samples": arguments.samples,
        "parts": arguments.parts,
        "shards": arguments.shards,
        "importAndOpenSeconds": round(statistics.median(inside), 4),
        "processSeconds": round(statistics.median(whole), 4),
        "processCpuSeconds": round(statistics.median(cpu), 4),
        "numpyImportProcessSeconds": round(statistics.median(numpy_alone), 4),
        "limitSeconds": LIMIT_S,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(result))
    return int(result["processSeconds"] >= LIMIT_S)


def open_fresh(folder: str, samples: int) -> tuple[float, float, float]:
    """Seconds for import and open; for the whole process with the start of the interpreter; and of CPU for it."""
    cpu_before, began = children_cpu_s(), time.perf_counter()
    run = subprocess.run([sys.executable, "-c", _FRESH, folder], capture_output=True, text=True, check=True)
    whole, cpu = time.perf_counter() - began, children_cpu_s() - cpu_before
    inside, found = run.stdout.split()
    if int(found) != samples:
        raise SystemExit(f"expected {samples} samples; the output has {found}")
    return float(inside), whole, cpu


def seconds_of(program: str) -> float:
    """Seconds of a fresh process: on a busy machine, what it costs to do nearly nothing."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def children_cpu_s() -> float:
    """CPU seconds of all ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def write_output(root: Path, samples: int, parts: int, shards: int) -> None:
    """An output of tiny samples, as the sidecar writes it."""
    manifest = Manifest(
        engine_version="benchmark",
        model=ModelIdentity("file:///model", None, "0", "0", "0"),
        dataset={"uri": "file:///data.jsonl", "files": []},
        layers=(2, 16, 29),
        final_norm=False,
        hidden_size=16,
        positions="All",
        dtype=StoreDType.BF16,
        store_dtype=StoreDType.BF16,
        generation=None,
        max_model_len=2048,
        shard_count=shards,
        special_token_ids=(),
    )
    layout = Layout(root)
    publish_manifest(layout, manifest)
    for shard, rows in enumerate(np.array_split(np.arange(samples), shards)):
        write_shard(layout, manifest, shard, np.array_split(rows, parts // shards))
    publish_complete(layout, manifest)


def write_shard(layout: Layout, manifest: Manifest, number: int, parts: list[np.ndarray]) -> None:
    """One committed shard."""
    shard, attempt, schema = layout.shard(number), new_attempt_id(), PartSchema.of(manifest)
    journal, quarantine = Journal(shard, attempt), QuarantineLog(shard, attempt)
    states = memoryview(bytes(_TOKENS * schema.state_bytes))
    norms = np.zeros(schema.num_columns)
    infos = []
    for part, rows in enumerate(parts):
        writer = PartWriter(shard.part(part, attempt), schema)
        for row in rows.tolist():
            writer.append(states)
            writer.end_sample(
                SampleEnd(
                    row=row,
                    id=f"conversation-{row}",
                    token_ids=np.arange(_TOKENS),
                    num_prompt_tokens=_TOKENS,
                    original_tokens=_TOKENS,
                    last_token=None,
                    num_states=_TOKENS,
                    positions=None,
                    loss_mask=None,
                    norm_sums=norms,
                    max_abs=norms,
                )
            )
        info = writer.close()
        if info is not None:
            journal.append(info)
            infos.append(info)
    rows_in = sum(len(rows) for rows in parts)
    publish_commit(shard, manifest, attempt, parts=infos, quarantine=quarantine, rows_in=rows_in)
    journal.close()
    quarantine.close()


if __name__ == "__main__":
    sys.exit(main())
