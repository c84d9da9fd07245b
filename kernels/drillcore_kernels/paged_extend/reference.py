"""Causal attention of new queries over paged keys in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from drillcore_kernels.attention.reference import attend


def paged_extend(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    cu_seqlens_q: Tensor,
    seq_lens: Tensor,
    *,
    max_seqlen_q: int,
    max_seqlen: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    tiles: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Give [T, Hq, Dh]; see `drillcore_kernels.ops.PagedExtend`."""
    out = q.new_empty(q.shape) if out is None else out
    spans = pairwise(cu_seqlens_q.tolist())
    for blocks, (start, stop), length in zip(block_table, spans, seq_lens.tolist(), strict=True):
        if stop > start:
            keys, values = (_sequence_rows(cache, blocks, length) for cache in (k_cache, v_cache))
            out[start:stop] = attend(
                q[start:stop],
                keys.to(q.dtype),
                values.to(q.dtype),
                scale=scale,
                window=window,
                softcap=softcap,
                sinks=sinks,
            )
    return out


def _sequence_rows(cache: Tensor, blocks: Tensor, length: int) -> Tensor:
    """Copy the first `length` rows of a sequence out of its blocks: [length, Hkv, Dh]."""
    num_blocks = -(-length // cache.shape[1])
    return cache.index_select(0, blocks[:num_blocks]).flatten(0, 1)[:length]
