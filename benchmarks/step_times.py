"""Where an engine's time goes: how long each step ran on the device, how long the host issued it, when nothing ran.

host     |issue 1|issue 2|issue 3|...wait...|issue 4|
device           |== step 1 ==|= step 2 =|idle|= step 3 =|
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from drillcore_server.engine.model_runner import ModelRunner


@dataclass(frozen=True)
class StepTimes:
    """Sums and medians over the steps of one run; None where there is no GPU."""

    num_steps: int
    issue_ms: float
    """Median of the host's time in the runner, from the step's arrays to the end of its launches."""
    device_ms: float | None
    """Median of the device's time for a step."""
    device_busy_s: float | None
    """Sum of the device's times."""
    device_idle_s: float | None
    """Between the first step's start and the last one's end, when the device had no step."""
    first_step_s: float | None
    """From the start of the run until the first step was issued."""


@dataclass
class _Watch:
    """Collects while steps run: two events and two clock readings a step."""

    issued: list[tuple[float, float]] = field(default_factory=list)
    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def summary(self, began: float) -> StepTimes:
        """The times of all steps so far, which must be done; `began` is when the run began."""
        if not self.issued:
            return StepTimes(0, 0.0, None, None, None, None)
        issue_ms = round(1e3 * statistics.median(end - start for start, end in self.issued), 3)
        first_step_s = round(self.issued[0][0] - began, 4)
        if not self.events:
            return StepTimes(len(self.issued), issue_ms, None, None, None, first_step_s)
        torch.cuda.synchronize()
        steps = [start.elapsed_time(end) for start, end in self.events]
        whole = self.events[0][0].elapsed_time(self.events[-1][1])
        return StepTimes(
            num_steps=len(self.issued),
            issue_ms=issue_ms,
            device_ms=round(statistics.median(steps), 3),
            device_busy_s=round(sum(steps) / 1e3, 4),
            device_idle_s=round((whole - sum(steps)) / 1e3, 4),
            first_step_s=first_step_s,
        )


@contextlib.contextmanager
def watch_steps(runner: ModelRunner) -> Iterator[_Watch]:
    """Times every step that `runner` executes inside the block."""
    watch, execute = _Watch(), runner.execute
    on_gpu = runner.drafter.cache.states.device.type == "cuda"

    def timed(*arguments: Any) -> Any:
        start = time.perf_counter()
        before = _event() if on_gpu else None
        result = execute(*arguments)
        if before is not None:
            watch.events.append((before, _event()))
        watch.issued.append((start, time.perf_counter()))
        return result

    runner.execute = timed  # type: ignore[method-assign]
    try:
        yield watch
    finally:
        runner.execute = execute  # type: ignore[method-assign]


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
