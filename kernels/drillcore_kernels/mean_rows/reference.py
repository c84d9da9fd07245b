"""Means over rows of the hidden cache in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor


def mean_rows(cache: Tensor, slots: Tensor, cu_rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Give [B, C, D]; see `drillcore_kernels.ops.MeanRows`."""
    rows = cache.view(-1, *cache.shape[2:])
    if out is None:
        out = cache.new_empty(len(cu_rows) - 1, *cache.shape[2:])
    for sample, (start, stop) in enumerate(pairwise(cu_rows.tolist())):
        wanted = rows.index_select(0, slots[start:stop])
        out[sample] = wanted.mean(dim=0, dtype=torch.float32)
    return out
