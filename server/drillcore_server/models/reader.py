"""Bytes of a stored tensor into a parameter, wherever that lies."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import StoredTensor
from drillcore_spec.reasons import Reason

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Stored dtypes that can be read."""
_STAGING_BYTES = 16 << 20
"""Bytes read at once on the way to another dtype or device: a few per copy engine latency, small beside a model."""


def read_tensor(stored: StoredTensor, target: torch.Tensor) -> None:
    """Fills `target` with the values of `stored`, cast to its dtype.

    Uses pread and not a mapping: a file that shrinks, or a network volume that fails, is an error here
    and not a SIGBUS. Any number of threads may read at once.

    Args:
        stored: a tensor whose dtype is one of `DTYPES`.
        target: contiguous, as many values as `stored`; on any device. Modified.

    Raises:
        ShardError: MODEL_BROKEN when the file ends early, MODEL_UNAVAILABLE when it cannot be read.
    """
    source_dtype, flat = DTYPES[stored.dtype], target.view(-1)
    try:
        with stored.path.open("rb", buffering=0) as file:
            if flat.device.type == "cpu" and flat.dtype == source_dtype:
                _read(file.fileno(), flat.view(torch.uint8), stored.offset, stored.path)
            else:
                _read_staged(file.fileno(), stored, source_dtype, flat)
    except OSError as error:
        raise ShardError(Reason.MODEL_UNAVAILABLE, f"{stored.path} cannot be read: {error.strerror}") from error


def _read_staged(fd: int, stored: StoredTensor, source_dtype: torch.dtype, flat: torch.Tensor) -> None:
    num_values = flat.numel()
    chunk = min(_STAGING_BYTES // source_dtype.itemsize, num_values)
    staging = torch.empty(chunk, dtype=source_dtype, pin_memory=flat.device.type == "cuda")
    for start in range(0, num_values, chunk):
        part = staging[: min(chunk, num_values - start)]
        _read(fd, part.view(torch.uint8), stored.offset + start * source_dtype.itemsize, stored.path)
        flat[start : start + part.numel()].copy_(part)


def _read(fd: int, target: torch.Tensor, offset: int, path: Path) -> None:
    """Fills `target` (uint8, host memory) from byte `offset` on."""
    rest: memoryview = target.numpy().data
    while rest:
        num_read = os.preadv(fd, [rest], offset)
        if num_read == 0:
            raise ShardError(
                Reason.MODEL_BROKEN, f"{path} must have {len(rest)} bytes from byte {offset} on; it ends there"
            )
        rest, offset = rest[num_read:], offset + num_read
