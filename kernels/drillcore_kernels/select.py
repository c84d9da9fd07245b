"""The one switch: which implementation of the operations runs for a device and a dtype."""

from __future__ import annotations

import torch

from drillcore_kernels.ops import Ops
from drillcore_kernels.reference_ops import REFERENCE_OPS

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def select_ops(device: torch.device | str, dtype: torch.dtype) -> Ops:
    """Give the operations for activations of `dtype` on `device`.

    CUDA devices run the Triton kernels in the 16-bit types. Everything else runs the references: float32
    on a GPU is for checking, and the matrix units would round it to tf32.

    Raises:
        ValueError: no implementation runs there.
        ImportError: the device is a GPU and Triton is not installed.
    """
    kind = torch.device(device).type
    if dtype not in _DTYPES:
        raise ValueError(f"activations must be float32, float16 or bfloat16; got {dtype}")
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"the operations run on cpu and cuda; got device {device}")
    if kind == "cuda" and dtype != torch.float32:
        from drillcore_kernels.triton_ops import TRITON_OPS

        return TRITON_OPS
    return REFERENCE_OPS
