"""Attention of one query a sequence over its pages, its keys split over several programs.

The query heads of a KV head are the rows of one tile, so that a key is read once for all of them. The number
of splits depends on the batch and the table's width only, which makes a launch replayable by a CUDA graph
(Flash-Decoding, Dao et al. 2023).
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from drillcore_kernels.attention.kernel import attend_tiles
from drillcore_kernels.attention.launch import check_scale, page_descriptor
from drillcore_kernels.attention.tiles import KEY_TILE, tile_config

_MIN_ROWS = 16
_MAX_SPLITS = 32
_PROGRAMS_WANTED = 512
_LOG2_E = tl.constexpr(1.4426950408889634)
_MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit(do_not_specialize=["blocks_stride"], do_not_specialize_on_alignment=["seq_lens_ptr", "blocks_ptr"])
def _split_kernel(
    q_ptr: tl.tensor,
    k_desc: tl.tensor,
    v_desc: tl.tensor,
    partial_ptr: tl.tensor,
    log_sum_ptr: tl.tensor,
    sinks_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    blocks_ptr: tl.tensor,
    blocks_stride: tl.tensor,
    q_stride: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
) -> None:
    """One share of the keys of one sequence and KV head: its softmax's value and base-2 log of its sum."""
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(seq_lens_ptr + sequence)
    blocks_ptr += sequence * blocks_stride
    rows = tl.arange(0, BLOCK_M)
    heads = kv_head * GROUP + rows
    dims = tl.arange(0, BLOCK_D)
    mask = (rows < GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    q_at = q_ptr + sequence * q_stride + heads[:, None] * q_head_stride + dims[None, :]
    q = tl.load(q_at, mask=mask, other=0.0)

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], _MINUS_INFINITY, dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    if sinks_ptr is not None and split == 0:
        # A sink is a key without a value: the first share starts with it.
        row_max = tl.load(sinks_ptr + heads, mask=rows < GROUP, other=0.0).to(tl.float32) * _LOG2_E
        row_sum = row_sum + 1.0

    first_tile = 0
    if WINDOW is not None:
        first_tile = tl.maximum(length - WINDOW, 0) // BLOCK_N
    num_tiles = tl.cdiv(length, BLOCK_N)
    share = tl.cdiv(num_tiles - first_tile, SPLITS)
    start = (first_tile + split * share) * BLOCK_N
    stop = tl.minimum((first_tile + (split + 1) * share) * BLOCK_N, length)
    positions = tl.zeros([BLOCK_M], dtype=tl.int32) + (length - 1)
    acc, row_sum, row_max = attend_tiles(
        acc,
        row_sum,
        row_max,
        q,
        positions,
        start,
        stop,
        length,
        k_desc,
        v_desc,
        kv_head,
        0,
        blocks_ptr,
        scale,
        BLOCK_N,
        BLOCK_D,
        WINDOW,
        SOFTCAP,
        MASKED=True,
        FOREIGN=True,
        STAGES=None,
    )

    # A share without keys weighs exp2(-inf) = 0 in the sum over shares; its value only has to be finite.
    value = acc / tl.where(row_sum > 0.0, row_sum, 1.0)[:, None]
    part = (sequence * NUM_HEADS + heads) * SPLITS + split
    tl.store(partial_ptr + part[:, None] * HEAD_DIM + dims[None, :], value, mask=mask)
    tl.store(log_sum_ptr + part, row_max + tl.log2(row_sum), mask=rows < GROUP)


@triton.jit
def _combine_kernel(
    partial_ptr: tl.tensor,
    log_sum_ptr: tl.tensor,
    out_ptr: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
) -> None:
    """Add up the shares of one sequence and head, each with its part of the softmax's sum."""
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, BLOCK_D)
    log_sums = tl.load(log_sum_ptr + row * SPLITS + splits)
    weights = tl.exp2(log_sums - tl.max(log_sums, 0))
    at = partial_ptr + (row * SPLITS + splits)[:, None] * HEAD_DIM + dims[None, :]
    values = tl.load(at, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(values * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(out_ptr + row * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)


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
    """Give [B, Hq, Dh]; see `drillcore_kernels.ops.PagedDecode`.

    Raises:
        ValueError: no kernel is built for the head size, the block size is not 64, or the scale not positive.
    """
    check_scale(scale)
    num_sequences, num_heads, head_dim = q.shape
    out = q.new_empty(q.shape) if out is None else out
    if num_sequences == 0:
        return out
    num_kv_heads = k_cache.shape[2]
    k_desc, v_desc = page_descriptor(k_cache), page_descriptor(v_cache)
    config = tile_config(head_dim, q.device)
    splits = _num_splits(num_sequences * num_kv_heads, block_table.shape[1])
    block_dim = triton.next_power_of_2(head_dim)
    partial = q.new_empty((num_sequences, num_heads, splits, head_dim), dtype=torch.float32)
    log_sums = q.new_empty((num_sequences, num_heads, splits), dtype=torch.float32)
    _split_kernel[(num_sequences, num_kv_heads, splits)](
        q,
        k_desc,
        v_desc,
        partial,
        log_sums,
        sinks,
        seq_lens,
        block_table,
        block_table.stride(0),
        q.stride(0),
        q.stride(1),
        scale,
        NUM_HEADS=num_heads,
        GROUP=num_heads // num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_D=block_dim,
        BLOCK_M=max(_MIN_ROWS, triton.next_power_of_2(num_heads // num_kv_heads)),
        BLOCK_N=KEY_TILE,
        SPLITS=splits,
        WINDOW=window,
        SOFTCAP=softcap,
        num_warps=4,
        num_stages=config.num_paged_stages,
    )
    grid = (num_sequences * num_heads,)
    _combine_kernel[grid](partial, log_sums, out, HEAD_DIM=head_dim, BLOCK_D=block_dim, SPLITS=splits, num_warps=1)
    return out


def _num_splits(num_programs: int, max_blocks: int) -> int:
    """Give a power of two that fills the chip, without shares that could hold no block."""
    splits = 1
    while splits < _MAX_SPLITS and 2 * splits <= max_blocks and splits * num_programs < _PROGRAMS_WANTED:
        splits *= 2
    return splits
