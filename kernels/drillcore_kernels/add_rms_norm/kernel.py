"""Residual add, RMS norm and capture in one Triton kernel: a program a token, its row in registers.

Everything that needs the row once it is loaded (sum, norm, store to the hidden cache, statistics) is done
there, so a capture costs only its own write.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from drillcore_kernels.capture import Capture
from drillcore_kernels.kinds import NormKind


@triton.jit
def apply_norm(
    row: tl.tensor,
    weight: tl.tensor,
    sum_of_squares: tl.tensor,
    eps: tl.tensor,
    SIZE: tl.constexpr,
    DTYPE: tl.constexpr,
    KIND: tl.constexpr,
) -> tl.tensor:
    """Give norm(row) * weight in float32, rounded where `NormKind` rounds; row and weight are float32."""
    normed = row * tl.rsqrt(sum_of_squares / SIZE + eps)
    if KIND == "llama":
        normed = normed.to(DTYPE).to(tl.float32)
    if KIND == "gemma":
        weight = weight + 1.0
    return (normed * weight).to(DTYPE).to(tl.float32)


@triton.jit
def _store_captured(
    row: tl.tensor,
    offsets: tl.tensor,
    token: tl.tensor,
    cache_ptr: tl.tensor,
    stats_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    column: tl.tensor,
    num_columns: tl.tensor,
    HIDDEN: tl.constexpr,
) -> None:
    """Write a row to its slot, and the norm and largest absolute value of what was written."""
    stored = row.to(cache_ptr.dtype.element_ty)
    target = tl.load(slots_ptr + token).to(tl.int64) * num_columns + column
    tl.store(cache_ptr + target * HIDDEN + offsets, stored, mask=offsets < HIDDEN)
    value = stored.to(tl.float32)
    sum_of_squares = tl.sum(value * value, 0)
    # A maximum may drop a NaN; a sum of squares keeps it, and only a NaN differs from itself.
    largest = tl.where(sum_of_squares == sum_of_squares, tl.max(tl.abs(value), 0), sum_of_squares)
    tl.store(stats_ptr + target * 2, tl.sqrt(sum_of_squares))
    tl.store(stats_ptr + target * 2 + 1, largest)


@triton.jit(
    do_not_specialize=["x_stride", "column", "normed_column"],
    do_not_specialize_on_alignment=["slots_ptr", "normed_slots_ptr"],
)
def _add_rms_norm_kernel(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    normed_ptr: tl.tensor,
    cache_ptr: tl.tensor,
    stats_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    column: tl.tensor,
    normed_cache_ptr: tl.tensor,
    normed_stats_ptr: tl.tensor,
    normed_slots_ptr: tl.tensor,
    normed_column: tl.tensor,
    num_columns: tl.tensor,
    x_stride: tl.tensor,
    eps: tl.tensor,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    KIND: tl.constexpr,
) -> None:
    """One token a program; pointers that are None leave their part out."""
    token = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < HIDDEN
    dtype = x_ptr.dtype.element_ty
    row = tl.load(x_ptr + token * x_stride + offsets, mask=mask, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        residual_row = residual_ptr + token * HIDDEN + offsets
        row += tl.load(residual_row, mask=mask, other=0.0).to(tl.float32)
        tl.store(residual_row, row.to(dtype), mask=mask)
        row = row.to(dtype).to(tl.float32)
    if cache_ptr is not None:
        _store_captured(row, offsets, token, cache_ptr, stats_ptr, slots_ptr, column, num_columns, HIDDEN)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        normed = apply_norm(row, weight, tl.sum(row * row, 0), eps, HIDDEN, dtype, KIND)
        tl.store(normed_ptr + token * HIDDEN + offsets, normed.to(dtype), mask=mask)
        if normed_cache_ptr is not None:
            _store_captured(
                normed,
                offsets,
                token,
                normed_cache_ptr,
                normed_stats_ptr,
                normed_slots_ptr,
                normed_column,
                num_columns,
                HIDDEN,
            )


def add_rms_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    eps: float,
    kind: NormKind = NormKind.LLAMA,
    *,
    capture: Capture | None = None,
    capture_normed: Capture | None = None,
) -> tuple[Tensor | None, Tensor]:
    """Give (norm(r) * weight, r) for r = x + residual; see `drillcore_kernels.ops.AddRmsNorm`.

    `x` may have any row stride; `residual` is contiguous.
    """
    num_tokens, hidden = x.shape
    normed = None if weight is None else torch.empty_like(x, memory_format=torch.contiguous_format)
    captured = capture or capture_normed
    if num_tokens > 0 and (residual is not None or weight is not None or captured is not None):
        block = triton.next_power_of_2(hidden)
        _add_rms_norm_kernel[(num_tokens,)](
            x,
            residual,
            weight,
            normed,
            *_capture_arguments(capture),
            *_capture_arguments(capture_normed),
            captured.cache.shape[2] if captured else 0,
            x.stride(0),
            eps,
            HIDDEN=hidden,
            BLOCK=block,
            KIND=kind.value,
            num_warps=min(max(block // 512, 1), 16),
        )
    return normed, x if residual is None else residual


def _capture_arguments(capture: Capture | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, int]:
    if capture is None:
        return None, None, None, 0
    return capture.cache, capture.stats, capture.slot_mapping, capture.column
