"""Rows of the hidden cache by slot in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

import torch
from torch import Tensor


def gather_rows(cache: Tensor, slots: Tensor, out: Tensor | None = None) -> Tensor:
    """Give [P, C, D]; see `drillcore_kernels.ops.GatherRows`."""
    rows = cache.view(-1, *cache.shape[2:])
    if out is None:
        return rows.index_select(0, slots)
    return torch.index_select(rows, 0, slots, out=out)
