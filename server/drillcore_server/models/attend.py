"""The attention of one step: fresh keys and values, or those in the KV cache.

Shapes: T packed tokens, H query heads, K key/value heads, Dh head dim.
"""

from __future__ import annotations

import torch

from drillcore_kernels import Ops
from drillcore_server.models.attention import AttentionGroup, AttentionKind, AttentionMetadata

KVCache = tuple[torch.Tensor, torch.Tensor]
"""K and V cache of one block, each [num_blocks, block_size, K, Dh]."""


def attend(
    ops: Ops,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache: KVCache | None,
    attention: AttentionMetadata,
    *,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """Attention [T, H, Dh] of a step's queries, group by group.

    Args:
        ops: the operations of the device.
        q: [T, H, Dh], rotated; k and v [T, K, Dh] are this step's, already written to `cache` if there is one.
        k: see q.
        v: see q.
        cache: the block's KV cache; needed when a sequence has context.
        attention: the step's sequences.
        scale: factor on q k^T.
        window: how many positions a query sees, itself included; None: all before it.
    """
    out = q.new_empty(q.shape)
    for group in attention.groups:
        rows = group.tokens
        if group.kind is AttentionKind.PREFILL:
            ops.varlen_prefill(
                q[rows],
                k[rows],
                v[rows],
                group.cu_seqlens_q,
                max_seqlen=group.max_seqlen,
                scale=scale,
                window=window,
                tiles=group.tiles,
                out=out[rows],
            )
        else:
            _attend_paged(ops, q[rows], cache, group, scale=scale, window=window, out=out[rows])
    return out


def _attend_paged(
    ops: Ops,
    q: torch.Tensor,
    cache: KVCache | None,
    group: AttentionGroup,
    *,
    scale: float,
    window: int | None,
    out: torch.Tensor,
) -> None:
    if cache is None or group.block_table is None:
        raise ValueError("sequences with context need a KV cache and slots")
    if group.kind is AttentionKind.DECODE:
        ops.paged_decode(q, *cache, group.block_table, group.seq_lens, scale=scale, window=window, out=out)
        return
    ops.paged_extend(
        q,
        *cache,
        group.block_table,
        group.cu_seqlens_q,
        group.seq_lens,
        max_seqlen_q=group.max_seqlen_q,
        max_seqlen=group.max_seqlen,
        scale=scale,
        window=window,
        tiles=group.tiles,
        out=out,
    )
