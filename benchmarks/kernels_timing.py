"""Times kernels with CUDA events: median over runs, after a warm-up that compiles them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

WARM_UP_RUNS = 3
TIMED_RUNS = 20


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
