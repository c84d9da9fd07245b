"""Attention of one sequence in torch, which the references of the three attention operations share.

The plain cases go to torch's fused attention. Windows, soft caps and sinks are computed for 512 queries at
a time over only the keys that those may see, so memory stays linear in the length.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_QUERIES_PER_CHUNK = 512


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Give [S, Hq, Dh] for the last S of L tokens (bottom-right causal).

    Args:
        q: [S, Hq, Dh] with S <= L.
        k: [L, Hkv, Dh]; v likewise.
        v: See k.
        scale: See `drillcore_kernels.ops.VarlenPrefill`; so are window, softcap and sinks.
        window: See scale.
        softcap: See scale.
        sinks: See scale.
    """
    num_queries, length = q.shape[0], k.shape[0]
    windowed = window is not None and window < length
    if not windowed and softcap is None and sinks is None and num_queries in (1, length):
        return _fused(q, k, v, scale, causal=num_queries > 1, mask=None)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    for start in range(0, num_queries, _QUERIES_PER_CHUNK):
        rows = slice(start, min(start + _QUERIES_PER_CHUNK, num_queries))
        mask, keys = _visible(rows, length - num_queries, window, q.device)
        if softcap is None and sinks is None:
            out[rows] = _fused(q[rows], k[keys], v[keys], scale, causal=False, mask=mask)
        else:
            out[rows] = _explicit(q[rows], k[keys], v[keys], scale, mask, softcap, sinks)
    return out


def _visible(rows: slice, num_context: int, window: int | None, device: torch.device) -> tuple[Tensor, slice]:
    """Give the mask [rows, keys] of a chunk of queries and the slice of keys that it covers."""
    first, stop = num_context + rows.start, num_context + rows.stop
    keys = slice(0 if window is None else max(0, first - window + 1), stop)
    distance = torch.arange(first, stop, device=device)[:, None] - torch.arange(keys.start, stop, device=device)
    mask = distance >= 0
    return (mask if window is None else mask & (distance < window)), keys


def _fused(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool, mask: Tensor | None) -> Tensor:
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        k.transpose(0, 1).unsqueeze(0),
        v.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
        enable_gqa=True,
    )
    return out.squeeze(0).transpose(0, 1)


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Attention with its scores in float32, for a soft cap and sinks (Gemma 2, gpt-oss)."""
    num_queries, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    grouped = q.float().view(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
    scores = grouped @ k.float().permute(1, 2, 0).unsqueeze(1) * scale
    if softcap is not None:
        scores = (scores / softcap).tanh_() * softcap
    scores = scores.masked_fill_(~mask, -torch.inf)
    if sinks is not None:
        column = sinks.float().view(num_kv_heads, -1, 1, 1).expand(-1, -1, num_queries, 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = scores.softmax(dim=-1)[..., : k.shape[0]]
    out = weights @ v.float().transpose(0, 1).unsqueeze(1)
    return out.permute(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim).to(q.dtype)
