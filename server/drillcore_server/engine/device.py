"""The device of an engine and its number formats."""

from __future__ import annotations

import torch

from drillcore.dtypes import StoreDType
from drillcore_server.errors import ShardError
from drillcore_spec.enums import DType
from drillcore_spec.reasons import Reason

_TORCH = {DType.FLOAT32: torch.float32, DType.FLOAT16: torch.float16, DType.BFLOAT16: torch.bfloat16}
_STORED = {torch.float32: StoreDType.F32, torch.float16: StoreDType.F16, torch.bfloat16: StoreDType.BF16}


def choose_device(gpus: int, *, local: bool) -> torch.device:
    """The device to run on: in a pod what the job asks for, here whatever there is.

    Raises:
        ShardError: NoDevice; the job asks for a GPU and CUDA is not there. It never falls back to the CPU.
    """
    if torch.cuda.is_available() and (local or gpus > 0):
        return torch.device("cuda")
    if gpus > 0 and not local:
        raise ShardError(
            Reason.NO_DEVICE,
            f"`server.resources.gpus` is {gpus}, and no CUDA device is visible in the container; check the node's "
            "driver and device plugin, or set gpus: 0 to run on the CPU",
        )
    return torch.device("cpu")


def compute_dtype(asked: DType, checkpoint: torch.dtype, device: torch.device) -> torch.dtype:
    """Number format of weights and computation. Auto: the checkpoint's on a GPU, float32 on a CPU."""
    if asked is not DType.AUTO:
        return _TORCH[asked]
    return checkpoint if device.type == "cuda" else torch.float32


def store_dtype(asked: DType, checkpoint: torch.dtype) -> torch.dtype:
    """Number format of the stored states. Auto: the checkpoint's."""
    return checkpoint if asked is DType.AUTO else _TORCH[asked]


def stored_name(dtype: torch.dtype) -> StoreDType:
    """The name on disk of a number format."""
    return _STORED[dtype]
