"""Device-to-host copies of states: asynchronous on a GPU, plain on a CPU.

On a GPU everything here runs on one copy stream. It only reads states of steps whose results the host has seen,
so it never waits for the compute stream, and the compute stream never waits for it: a block is reused only after
the landing of its last copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore_kernels import Ops
from drillcore_server.connector.host_memory import Landing, empty_host, landing


class StateCopier(ABC):
    """Copies states from the hidden cache to chunk buffers."""

    def __init__(self, cache: torch.Tensor, ops: Ops) -> None:
        self._blocks = cache
        self._states = cache.view(-1, *cache.shape[2:])
        self._ops = ops

    @abstractmethod
    def copy_runs(self, slots: NDArray[np.int64], buffer: memoryview) -> None:
        """Copies the states at `slots`, one copy for each run of consecutive slots."""

    @abstractmethod
    def copy_gathered(self, slots: Sequence[NDArray[np.int64]], buffers: Sequence[memoryview]) -> None:
        """Copies scattered states: one gather on the device for all buffers, then one copy for each."""

    @abstractmethod
    def means(self, slots: Sequence[NDArray[np.int64]]) -> torch.Tensor:
        """Means [B, C, D] over the states at each of B arrays of slots, in host memory when `mark`ed copies landed."""

    @abstractmethod
    def mark(self) -> Landing:
        """Tells when everything copied so far has arrived."""

    def _copy_runs(self, slots: NDArray[np.int64], target: torch.Tensor) -> None:
        ends = np.flatnonzero(np.diff(slots) != 1) + 1
        start = 0
        for end in (*ends.tolist(), len(slots)):
            slot = int(slots[start])
            target[start:end].copy_(self._states[slot : slot + end - start], non_blocking=True)
            start = end

    def _as_states(self, buffer: memoryview) -> torch.Tensor:
        """The buffer as states [n, C, D]; shares its memory."""
        return torch.frombuffer(buffer, dtype=self._states.dtype).view(-1, *self._states.shape[1:])


class CpuCopier(StateCopier):
    """Plain copies in host memory."""

    def copy_runs(self, slots: NDArray[np.int64], buffer: memoryview) -> None:
        """See `StateCopier`."""
        self._copy_runs(slots, self._as_states(buffer))

    def copy_gathered(self, slots: Sequence[NDArray[np.int64]], buffers: Sequence[memoryview]) -> None:
        """Gathers straight into each buffer."""
        for slots_of_buffer, buffer in zip(slots, buffers, strict=True):
            self._ops.gather_rows(self._blocks, torch.from_numpy(slots_of_buffer), out=self._as_states(buffer))

    def means(self, slots: Sequence[NDArray[np.int64]]) -> torch.Tensor:
        """See `StateCopier`."""
        return self._ops.mean_rows(self._blocks, torch.from_numpy(np.concatenate(slots)), _row_offsets(slots))

    def mark(self) -> Landing:
        """Everything is there already."""
        return landing(self._states.device)


class CudaCopier(StateCopier):
    """Asynchronous copies on a stream of their own. A copy to a buffer that is not pinned blocks the host."""

    def __init__(self, cache: torch.Tensor, ops: Ops) -> None:
        super().__init__(cache, ops)
        self._stream = torch.cuda.Stream(cache.device)  # type: ignore[no-untyped-call]

    def copy_runs(self, slots: NDArray[np.int64], buffer: memoryview) -> None:
        """See `StateCopier`."""
        with torch.cuda.stream(self._stream):
            self._copy_runs(slots, self._as_states(buffer))

    def copy_gathered(self, slots: Sequence[NDArray[np.int64]], buffers: Sequence[memoryview]) -> None:
        """The gathered states are in memory of the copy stream, which is reused in that stream's order."""
        host = torch.from_numpy(np.concatenate(slots)).pin_memory()
        with torch.cuda.stream(self._stream):
            gathered = self._ops.gather_rows(self._blocks, host.to(self._states.device, non_blocking=True))
            start = 0
            for slots_of_buffer, buffer in zip(slots, buffers, strict=True):
                end = start + len(slots_of_buffer)
                self._as_states(buffer).copy_(gathered[start:end], non_blocking=True)
                start = end

    def means(self, slots: Sequence[NDArray[np.int64]]) -> torch.Tensor:
        """See `StateCopier`. The kernel runs on the copy stream, too."""
        device = self._states.device
        host_slots, offsets = torch.from_numpy(np.concatenate(slots)).pin_memory(), _row_offsets(slots).pin_memory()
        with torch.cuda.stream(self._stream):
            device_slots = host_slots.to(device, non_blocking=True)
            means = self._ops.mean_rows(self._blocks, device_slots, offsets.to(device, non_blocking=True))
            return empty_host(means.shape, means.dtype, device).copy_(means, non_blocking=True)

    def mark(self) -> Landing:
        """An event of the copy stream."""
        return landing(self._states.device, self._stream)


def _row_offsets(slots: Sequence[NDArray[np.int64]]) -> torch.Tensor:
    """int32 [B + 1] in host memory: where each array begins when all are joined."""
    offsets = np.zeros(len(slots) + 1, dtype=np.int32)
    np.cumsum([len(part) for part in slots], out=offsets[1:])
    return torch.from_numpy(offsets)


def copier_for(cache: torch.Tensor, ops: Ops) -> StateCopier:
    """The copier of the device that the hidden cache [num_blocks, block_size, C, D] is on."""
    return CudaCopier(cache, ops) if cache.device.type == "cuda" else CpuCopier(cache, ops)
