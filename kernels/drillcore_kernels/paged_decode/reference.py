"""Attention of one query a sequence over paged keys in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

import torch
from torch import Tensor

from drillcore_kernels.paged_extend.reference import paged_extend


def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Give [B, Hq, Dh], one query a sequence; see `drillcore_kernels.ops.PagedDecode`."""
    return paged_extend(
        q,
        k_cache,
        v_cache,
        block_table,
        torch.arange(q.shape[0] + 1, dtype=torch.int32),
        seq_lens,
        max_seqlen_q=1,
        max_seqlen=block_table.shape[1] * k_cache.shape[1],
        scale=scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        out=out,
    )
