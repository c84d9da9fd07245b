"""Query/key norm, rotary embedding and KV write in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

from torch import Tensor

from drillcore_kernels.add_rms_norm.reference import rms_norm
from drillcore_kernels.kinds import NormKind


def rope_kv_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    positions: Tensor,
    *,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    norm_kind: NormKind = NormKind.LLAMA,
    k_cache: Tensor | None = None,
    v_cache: Tensor | None = None,
    slot_mapping: Tensor | None = None,
) -> None:
    """Rotate q and k in place and write k and v; see `drillcore_kernels.ops.RopeKvWrite`."""
    if q_norm is not None:
        q.copy_(rms_norm(q, q_norm, eps, norm_kind))
    if k_norm is not None:
        k.copy_(rms_norm(k, k_norm, eps, norm_kind))
    if cos is not None and sin is not None:
        token_cos = cos.index_select(0, positions).unsqueeze(1)
        token_sin = sin.index_select(0, positions).unsqueeze(1)
        _rotate(q, token_cos, token_sin)
        _rotate(k, token_cos, token_sin)
    if k_cache is not None and v_cache is not None and slot_mapping is not None:
        k_cache.view(-1, *k_cache.shape[2:]).index_copy_(0, slot_mapping, k.to(k_cache.dtype))
        v_cache.view(-1, *v_cache.shape[2:]).index_copy_(0, slot_mapping, v.to(v_cache.dtype))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate the first R values of each head: pairs (i, i + R/2) by the angle of (cos, sin) [T, 1, R/2]."""
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    low, high = first.float(), second.float()
    rotated_low = (low * cos).addcmul_(high, sin, value=-1.0)
    rotated_high = (high * cos).addcmul_(low, sin)
    first.copy_(rotated_low)
    second.copy_(rotated_high)
