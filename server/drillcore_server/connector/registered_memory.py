"""Host memory of our own, registered with CUDA so that a GPU copies to it directly and without holding up the host.

A copy to memory that is not registered goes through a staging buffer of the driver, and the call returns only when
it is done: the engine would stand still with every chunk. Registering pins pages; pages that exist already are
pinned at 30 GB/s, others are made one by one first (measured on an H200), so the owner faults them in before, with
several threads.
"""

from __future__ import annotations

import numpy as np
import torch

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation: the driver, or a limit on locked memory, refuses to pin so much."""


class RegisteredMemory:
    """A buffer that is registered until `release`. Keeps the buffer's memory alive for so long."""

    def __init__(self, buffer: memoryview) -> None:
        """Registers `buffer`, which starts at a page.

        Raises:
            ShardError: OutOfMemory when the pages cannot be pinned, Internal for any other error of the driver.
        """
        self._buffer: memoryview | None = buffer
        self._address = np.frombuffer(buffer, np.uint8).ctypes.data
        code = int(torch.cuda.cudart().cudaHostRegister(self._address, buffer.nbytes, 0))  # type: ignore[no-untyped-call]
        if code != 0:
            self._buffer = None
            raise ShardError(
                Reason.OUT_OF_MEMORY if code == _OUT_OF_MEMORY else Reason.INTERNAL,
                f"the ring's {buffer.nbytes:,} bytes must be registered with the GPU; cudaHostRegister gave error "
                f"{code}. Lower ring.size, or raise the container's memory and its limit on locked memory",
            )

    def release(self) -> None:
        """Unregisters the buffer; no copy to it may be under way. A second call does nothing.

        Raises:
            ShardError: Internal; the driver refused.
        """
        if self._buffer is None:
            return
        self._buffer = None
        code = int(torch.cuda.cudart().cudaHostUnregister(self._address))  # type: ignore[no-untyped-call]
        if code != 0:
            raise ShardError(Reason.INTERNAL, f"cudaHostUnregister gave error {code} for the ring")


def register_for(device: torch.device, buffer: memoryview) -> RegisteredMemory | None:
    """Registers `buffer` if `device` is a GPU; a CPU needs nothing."""
    return RegisteredMemory(buffer) if device.type == "cuda" else None
