"""The one switch: which implementation of the operations runs on which device."""

from __future__ import annotations

import torch

from drillcore_kernels.ops import Ops
from drillcore_kernels.reference_ops import REFERENCE_OPS

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def select_ops(device: torch.device | str, dtype: torch.dtype) -> Ops:
    """Give the operations for activations of `dtype` on `device`: references on the CPU.

    Raises:
        ValueError: no implementation runs there.
    """
    kind = torch.device(device).type
    if dtype not in _DTYPES:
        raise ValueError(f"activations must be float32, float16 or bfloat16; got {dtype}")
    if kind == "cpu":
        return REFERENCE_OPS
    raise ValueError(f"operations run on cpu; got device {device}")
