"""One row of the results for each system and workload, with the conditions it was measured under."""

from __future__ import annotations

import threading
from dataclasses import asdict
from types import TracebackType

import torch
from conditions import ClockReading, Row, conditions
from end_to_end import Extraction
from forward_only import Forward
from job_run import JobTimes
from parity_check import Parity
from workload_list import Prompts, Workload

_CLOCK_DELAY_S = 1.5
"""The clock falls within half a second of full load; what is read then is the clock of the measurement."""


class ClockUnderLoad:
    """Reads the clock while its block runs, if that takes long enough."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._reading: ClockReading | None = None
        self._timer = threading.Timer(_CLOCK_DELAY_S, self._read)

    def __enter__(self) -> ClockUnderLoad:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()

    def result(self) -> str:
        """The reading."""
        return "not read" if self._reading is None else self._reading.result()

    def _read(self) -> None:
        self._reading = ClockReading(self._device)


def extraction_row(workload: Workload, run: Extraction, parity: Parity, clock: ClockUnderLoad) -> Row:
    """The row of an end-to-end run."""
    return _row(workload, "drillcore", run.seconds, run.num_tokens, run.num_samples, run.num_bytes) | {
        "num_computed_tokens": run.num_computed_tokens,
        "num_steps": run.num_steps,
        "drain_s": round(run.drain_s, 4),
        "step_times": asdict(run.steps),
        "device_memory": memory(),
        "pool": asdict(run.pool),
        "parity": asdict(parity),
        **_conditions(clock),
    }


def forward_row(
    workload: Workload, system: str, run: Forward, parity: Parity, clock: ClockUnderLoad, **more: object
) -> Row:
    """The row of a run that writes no files."""
    return _row(workload, system, run.seconds, run.num_tokens, run.num_samples, 0) | {
        "num_steps": run.num_steps,
        "parity": asdict(parity),
        **more,
        **_conditions(clock),
    }


def job_row(workload: Workload, times: JobTimes, prompts: Prompts, parity: Parity) -> Row:
    """The row of a job that ran in processes of its own."""
    num_tokens = sum(map(len, prompts))
    row = _row(workload, "drillcore", times.seconds, num_tokens, len(prompts), times.num_bytes)
    return row | {
        "first_durable_s": round(times.first_durable_s, 3),
        "parity": asdict(parity),
        **_conditions(ClockUnderLoad(current_device())),
    }


def memory() -> dict[str, int]:
    """Bytes of this process on the device: most in use, and free for others now."""
    if current_device().type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info()
    return {"max_allocated": torch.cuda.max_memory_allocated(), "free_after": free, "total": total}


def current_device() -> torch.device:
    """The GPU if there is one."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def _row(workload: Workload, system: str, seconds: float, num_tokens: int, num_samples: int, num_bytes: int) -> Row:
    return {
        "workload": workload.name,
        "system": system,
        "tokens_per_s": round(num_tokens / seconds, 1),
        "samples_per_s": round(num_samples / seconds, 2),
        "seconds": round(seconds, 4),
        "bytes": num_bytes,
        "num_tokens": num_tokens,
        "model": workload.model,
        "layers": list(workload.layers),
        "positions": workload.positions.value,
        "max_num_batched_tokens": workload.max_num_batched_tokens,
    }


def _conditions(clock: ClockUnderLoad) -> Row:
    return conditions(current_device(), clock.result())
