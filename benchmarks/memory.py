"""Memory of both processes of a job: RssAnon when 1,000 samples are written, and when 10,000 are.

A model folder (a small one: the figure is about bookkeeping, not weights) extracts 12,000 short rows through
`drillcore run`; the job's own progress says when to look.

    python benchmarks/memory.py MODEL_FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS = 12_000
MARKS = (1_000, 10_000)
POLL_S = 0.02
SERVER, SIDECAR = "drillcore_server.shard", "drillcore_server.sidecar"


def write_job(folder: Path, model: Path) -> None:
    """A job of short rows of many lengths, and its dataset."""
    with (folder / "rows.jsonl").open("w") as rows:
        for i in range(ROWS):
            rows.write(json.dumps({"text": f"Core {i}: " + "clay and chalk, " * (i % 7)}) + "\n")
    job = {
        "apiVersion": "drillcore.dev/v1alpha1",
        "kind": "ExtractionJob",
        "metadata": {"name": "memory"},
        "spec": {
            "model": {"uri": model.absolute().as_uri()},
            "dataset": {"uri": (folder / "rows.jsonl").as_uri(), "columns": {"text": "text"}},
            "extraction": {"layers": [1, 2]},
            "output": {"claimName": "out", "partSize": "8Mi"},
            "ring": {"size": "8Mi"},
            "engine": {"prefixCaching": False},
        },
    }
    (folder / "job.json").write_text(json.dumps(job))


def children(pid: int) -> dict[str, int]:
    """Process ids of the job's two processes by module."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        found.update({module: int(child) for module in (SERVER, SIDECAR) if module in command})
    return found


def rss_anon_kib(pid: int) -> int:
    """RssAnon of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("RssAnon")).split()[1])


def rows_written(pid: int) -> int:
    """Rows that the sidecar has written, by its own progress file."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    progress = Path(command[command.index("--ring-dir") + 1]) / "progress.json"
    return json.loads(progress.read_text())["rowsWritten"] if progress.exists() else 0


def measure(folder: Path) -> dict[str, list[int]]:
    """RssAnon of both processes at each mark."""
    command = [sys.executable, "-m", "drillcore_server.cli", "run", str(folder / "job.json"), "--json"]
    run = subprocess.Popen([*command, "--output", str(folder / "out")], stdout=subprocess.DEVNULL)
    seen: dict[str, list[int]] = {SERVER: [], SIDECAR: []}
    marks = list(MARKS)
    while run.poll() is None and marks:
        processes = children(run.pid)
        if SIDECAR in processes and SERVER in processes and rows_written(processes[SIDECAR]) >= marks[0]:
            marks.pop(0)
            for module, pid in processes.items():
                seen[module].append(rss_anon_kib(pid))
        time.sleep(POLL_S)
    if run.wait() or marks:
        raise SystemExit(f"the run ended with {run.returncode} before {marks} samples were written")
    return seen


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_job(Path(name), arguments.model)
        seen = measure(Path(name))
    growth = {module: round(100 * (kib[1] / kib[0] - 1), 2) for module, kib in seen.items()}
    print(json.dumps({"workload": "memory", "samples": MARKS, "rss_anon_kib": seen, "growth_percent": growth}))
    sys.exit(os.EX_OK if max(growth.values()) < 5 else 1)


if __name__ == "__main__":
    main()
