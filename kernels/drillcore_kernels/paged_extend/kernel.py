"""Causal attention of new queries over pages: the Triton kernel of `attention` through the block table."""

from __future__ import annotations

from torch import Tensor

from drillcore_kernels.attention.launch import launch_attention, page_descriptor


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
    """Give [T, Hq, Dh]; see `drillcore_kernels.ops.PagedExtend`.

    Raises:
        ValueError: no kernel is built for the head size, or the block size is not 64.
    """
    out = q.new_empty(q.shape) if out is None else out
    if len(q) > 0:
        launch_attention(
            q,
            page_descriptor(k_cache),
            page_descriptor(v_cache),
            out,
            cu_seqlens_q,
            seq_lens=seq_lens,
            block_table=block_table,
            tiles=tiles,
            max_seqlen_q=max_seqlen_q,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks=sinks,
        )
    return out
