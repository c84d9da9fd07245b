"""Times kernels with CUDA events: median over runs, after a warm-up that compiles them.

A run of some milliseconds finds the card cool and at its highest clock. In a whole forward pass the power cap
lowers it by a quarter; `composed_forward.py` measures that.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

WARM_UP_RUNS = 3
TIMED_RUNS = 20
CHECKS = Path(__file__).parents[1] / "tests" / "kernels" / "against_references"


def require_green_checks() -> None:
    """Run the kernels' tests on this card.

    Raises:
        SystemExit: one is red; a wrong kernel has no speed.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=check_*.py"]
    result = subprocess.run([*command, str(CHECKS)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"the kernels' tests must pass before they are timed:\n{result.stdout}{result.stderr}")


def median_us(run: Callable[[], object]) -> float:
    """Give the microseconds of one run on the GPU. Inputs should be larger than its L2 cache."""
    for _ in range(WARM_UP_RUNS):
        run()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(TIMED_RUNS)]
    for start, stop in events:
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return 1e3 * statistics.median(start.elapsed_time(stop) for start, stop in events)


def launch_us(run: Callable[[], object]) -> float:
    """Give the microseconds that the host needs to issue one run, the GPU not waited for."""
    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(TIMED_RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return 1e6 * statistics.median(times)
