"""Host buffers that a device can copy to, and when such copies have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class Landing(Protocol):
    """When everything that a stream was given so far is done."""

    def query(self) -> bool:
        """Whether it is."""
        ...

    def synchronize(self) -> None:
        """Blocks until it is, without spinning."""
        ...


class _Landed:
    """On a CPU everything is done when the call returns."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return


def landing(device: torch.device, stream: torch.cuda.Stream | None = None) -> Landing:
    """Marks what was given to `stream` (None: the current one) so far."""
    if device.type != "cuda":
        return _Landed()
    # A blocking event puts the waiting thread to sleep; the default one spins.
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record(stream or torch.cuda.current_stream(device))
    return event


def empty_host(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialised host tensor, pinned if `device` is a GPU.

    Pinned memory comes from torch's caching host allocator, which does not reuse a buffer before the asynchronous
    copies from and to it are done: it may be dropped at any time.
    """
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=device.type == "cuda")
