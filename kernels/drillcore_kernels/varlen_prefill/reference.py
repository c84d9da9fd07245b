"""Causal attention over packed fresh sequences in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor

from drillcore_kernels.attention.reference import attend


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
    """Give [T, Hq, Dh]; see `drillcore_kernels.ops.VarlenPrefill`."""
    out = q.new_empty(q.shape) if out is None else out
    for start, stop in pairwise(cu_seqlens.tolist()):
        if stop > start:
            rows = slice(start, stop)
            out[rows] = attend(q[rows], k[rows], v[rows], scale=scale, window=window, softcap=softcap, sinks=sinks)
    return out
