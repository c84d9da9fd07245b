"""Causal attention over packed fresh sequences: the Triton kernel of `attention` on this step's own rows."""

from __future__ import annotations

from torch import Tensor

from drillcore_kernels.attention.launch import launch_attention, row_descriptor


def varlen_prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    *,
    max_seqlen: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    tiles: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Give [T, Hq, Dh]; see `drillcore_kernels.ops.VarlenPrefill`.

    Raises:
        ValueError: no kernel is built for the head size.
    """
    out = q.new_empty(q.shape) if out is None else out
    if len(q) > 0:
        launch_attention(
            q,
            row_descriptor(k, k.shape[2]),
            row_descriptor(v, v.shape[2]),
            out,
            cu_seqlens,
            seq_lens=None,
            block_table=None,
            tiles=tiles,
            max_seqlen_q=max_seqlen,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks=sinks,
        )
    return out
