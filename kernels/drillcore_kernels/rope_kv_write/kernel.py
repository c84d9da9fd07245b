"""Query/key norm, rotary embedding and KV write in one Triton kernel: a program a token, all heads at once.

The cosines of a token are loaded once for all of its heads, and a key goes from registers both back to the
packed buffer, where this step's attention reads it, and to its page, where later steps do.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from drillcore_kernels.add_rms_norm.kernel import apply_norm
from drillcore_kernels.kinds import NormKind


@triton.jit
def _norm_and_rotate(
    row_ptr: tl.tensor,
    cache_row_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    eps: tl.tensor,
    NUM_HEADS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    ROTATE: tl.constexpr,
    KIND: tl.constexpr,
) -> None:
    """Norm and rotate a token's heads in place and copy them to the cache row, if there is one.

    A head is [low | high | rest]: the pairs (low[i], high[i]) turn, the rest does not.
    """
    dtype = row_ptr.dtype.element_ty
    heads = tl.arange(0, BLOCK_HEADS)[:, None]
    pairs = tl.arange(0, BLOCK_HALF)[None, :]
    at = heads * HEAD_DIM + pairs
    mask = (heads < NUM_HEADS) & (pairs < HALF)
    low = tl.load(row_ptr + at, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(row_ptr + at + HALF, mask=mask, other=0.0).to(tl.float32)
    if BLOCK_REST > 0:
        rest_dims = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        rest_at = heads * HEAD_DIM + rest_dims
        rest_mask = (heads < NUM_HEADS) & (rest_dims < HEAD_DIM)
        rest = tl.load(row_ptr + rest_at, mask=rest_mask, other=0.0).to(tl.float32)

    if weight_ptr is not None:
        sum_of_squares = tl.sum(low * low, 1) + tl.sum(high * high, 1)
        if BLOCK_REST > 0:
            sum_of_squares += tl.sum(rest * rest, 1)
            rest_weight = tl.load(weight_ptr + rest_dims, mask=rest_dims < HEAD_DIM, other=0.0).to(tl.float32)
            rest = apply_norm(rest, rest_weight, sum_of_squares[:, None], eps, HEAD_DIM, dtype, KIND)
            tl.store(row_ptr + rest_at, rest.to(dtype), mask=rest_mask)
        low_weight = tl.load(weight_ptr + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)
        high_weight = tl.load(weight_ptr + HALF + pairs, mask=pairs < HALF, other=0.0).to(tl.float32)
        low = apply_norm(low, low_weight, sum_of_squares[:, None], eps, HEAD_DIM, dtype, KIND)
        high = apply_norm(high, high_weight, sum_of_squares[:, None], eps, HEAD_DIM, dtype, KIND)
    if ROTATE:
        turned = low * cos - high * sin
        high = high * cos + low * sin
        low = turned
    if ROTATE or weight_ptr is not None:
        tl.store(row_ptr + at, low.to(dtype), mask=mask)
        tl.store(row_ptr + at + HALF, high.to(dtype), mask=mask)
    if cache_row_ptr is not None:
        # Through the packed buffer's dtype, so that a page holds what the buffer holds.
        cache_dtype = cache_row_ptr.dtype.element_ty
        tl.store(cache_row_ptr + at, low.to(dtype).to(cache_dtype), mask=mask)
        tl.store(cache_row_ptr + at + HALF, high.to(dtype).to(cache_dtype), mask=mask)
        if BLOCK_REST > 0:
            tl.store(cache_row_ptr + rest_at, rest.to(dtype).to(cache_dtype), mask=rest_mask)


@triton.jit(do_not_specialize_on_alignment=["positions_ptr", "slots_ptr"])
def _rope_kv_write_kernel(
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    cos_ptr: tl.tensor,
    sin_ptr: tl.tensor,
    positions_ptr: tl.tensor,
    q_norm_ptr: tl.tensor,
    k_norm_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,
    v_cache_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    eps: tl.tensor,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    KIND: tl.constexpr,
) -> None:
    """One token a program; pointers that are None leave their part out."""
    token = tl.program_id(0).to(tl.int64)
    ROTATE: tl.constexpr = cos_ptr is not None
    cos = 1.0
    sin = 0.0
    if ROTATE:
        pairs = tl.arange(0, BLOCK_HALF)[None, :]
        at = tl.load(positions_ptr + token).to(tl.int64) * HALF + pairs
        cos = tl.load(cos_ptr + at, mask=pairs < HALF, other=0.0)
        sin = tl.load(sin_ptr + at, mask=pairs < HALF, other=0.0)
    k_cache_row_ptr = None
    if k_cache_ptr is not None:
        slot = tl.load(slots_ptr + token).to(tl.int64)
        k_cache_row_ptr = k_cache_ptr + slot * (NUM_KV_HEADS * HEAD_DIM)
        heads = tl.arange(0, BLOCK_KV_HEADS)[:, None]
        dims = tl.arange(0, BLOCK_DIM)[None, :]
        at_v = heads * HEAD_DIM + dims
        mask = (heads < NUM_KV_HEADS) & (dims < HEAD_DIM)
        v = tl.load(v_ptr + token * v_stride + at_v, mask=mask, other=0.0)
        v_cache_row_ptr = v_cache_ptr + slot * (NUM_KV_HEADS * HEAD_DIM)
        tl.store(v_cache_row_ptr + at_v, v.to(v_cache_ptr.dtype.element_ty), mask=mask)
    if ROTATE or q_norm_ptr is not None:
        _norm_and_rotate(
            q_ptr + token * q_stride,
            None,
            q_norm_ptr,
            cos,
            sin,
            eps,
            NUM_HEADS,
            BLOCK_HEADS,
            HEAD_DIM,
            HALF,
            BLOCK_HALF,
            BLOCK_REST,
            ROTATE,
            KIND,
        )
    _norm_and_rotate(
        k_ptr + token * k_stride,
        k_cache_row_ptr,
        k_norm_ptr,
        cos,
        sin,
        eps,
        NUM_KV_HEADS,
        BLOCK_KV_HEADS,
        HEAD_DIM,
        HALF,
        BLOCK_HALF,
        BLOCK_REST,
        ROTATE,
        KIND,
    )


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
    """Rotate q and k in place and write k and v; see `drillcore_kernels.ops.RopeKvWrite`.

    Raises:
        ValueError: the heads of a token do not lie next to each other.
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    if any(x.stride()[1:] != (head_dim, 1) for x in (q, k, v)):
        strides = [x.stride() for x in (q, k, v)]
        raise ValueError(f"q, k and v must have strides (any, {head_dim}, 1); got {strides}")
    if num_tokens == 0:
        return
    half = head_dim // 2 if cos is None else cos.shape[1]
    block_heads, block_half = triton.next_power_of_2(num_heads), triton.next_power_of_2(half)
    _rope_kv_write_kernel[(num_tokens,)](
        q,
        k,
        v,
        cos,
        sin,
        positions,
        q_norm,
        k_norm,
        k_cache,
        v_cache,
        slot_mapping,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        eps,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        BLOCK_HEADS=block_heads,
        BLOCK_KV_HEADS=triton.next_power_of_2(num_kv_heads),
        HEAD_DIM=head_dim,
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        HALF=half,
        BLOCK_HALF=block_half,
        BLOCK_REST=triton.next_power_of_2(head_dim - 2 * half) if head_dim > 2 * half else 0,
        KIND=norm_kind.value,
        num_warps=min(max(block_heads * block_half // 512, 1), 8),
    )
