"""The Triton kernel of causal attention, over packed rows or pages, and the loop that decode shares with it.

Online softmax over key tiles (Dao, FlashAttention-2, arXiv:2307.08691), in base 2. Keys and values come
through tensor descriptors made on the host: the copy engine of Hopper fetches them, the compiler lowers them
to plain loads on older chips. A descriptor is [Hkv, rows, Dh]; its tiles are [1, 64, Dh padded to a power of
two], and what lies outside reads as 0.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_MINUS_INFINITY = tl.constexpr(float("-inf"))


@triton.jit
def attend_tiles(
    acc: tl.tensor,
    row_sum: tl.tensor,
    row_max: tl.tensor,
    q: tl.tensor,
    positions: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    length: tl.tensor,
    k_desc: tl.tensor,
    v_desc: tl.tensor,
    kv_head: tl.tensor,
    first_row: tl.tensor,
    blocks_ptr: tl.tensor,
    scale: tl.tensor,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASKED: tl.constexpr,
    FOREIGN: tl.constexpr,
    STAGES: tl.constexpr,
) -> tl.tensor:
    """Take the key tiles of [start, stop) into the running softmax of queries at `positions` [M].

    Keys are rows `first_row + key` of the descriptors, or, with blocks_ptr, those of the sequence's pages.
    Without MASKED every query must see every key of the tiles; without FOREIGN the tiles must end within the
    sequence. STAGES overrides how many tiles are in flight: one or two masked tiles are not worth the
    registers of a pipeline. The scale is positive, so the largest score is that of the largest product.
    """
    to_log2 = scale * _LOG2_E
    if SOFTCAP is not None:
        to_log2 = SOFTCAP * _LOG2_E
    for tile_start in tl.range(start, stop, BLOCK_N, num_stages=STAGES):
        row = first_row + tile_start
        if blocks_ptr is not None:
            row = tl.load(blocks_ptr + tile_start // BLOCK_N) * BLOCK_N
        k = k_desc.load([kv_head, row, 0]).reshape(BLOCK_N, BLOCK_D)
        scores = tl.dot(q, tl.trans(k))
        if SOFTCAP is not None:
            # tanh(x) is 2 * sigmoid(2x) - 1.
            scores = 2.0 * tl.sigmoid(scores * (2.0 * scale / SOFTCAP)) - 1.0
        if MASKED:
            keys = tile_start + tl.arange(0, BLOCK_N)
            distance = positions[:, None] - keys[None, :]
            visible = distance >= 0
            if WINDOW is not None:
                visible = visible & (distance < WINDOW)
            scores = tl.where(visible, scores, _MINUS_INFINITY)
        new_max = tl.maximum(row_max, tl.max(scores, 1) * to_log2)
        # A row that has seen no key yet has no maximum: 0 keeps its exponents at exp2(-inf) = 0.
        pivot = tl.where(new_max == _MINUS_INFINITY, 0.0, new_max) if MASKED else new_max
        weights = tl.exp2(scores * to_log2 - pivot[:, None])
        correction = tl.exp2(row_max - pivot)
        row_sum = row_sum * correction + tl.sum(weights, 1)
        v = v_desc.load([kv_head, row, 0]).reshape(BLOCK_N, BLOCK_D)
        if FOREIGN:
            # Rows beyond the sequence are another's or nobody's: a NaN there times a weight of 0 is NaN.
            v = tl.where((keys < length)[:, None], v, 0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit(
    do_not_specialize=["blocks_stride", "max_tiles"],
    do_not_specialize_on_alignment=["cu_seqlens_ptr", "seq_lens_ptr", "blocks_ptr", "tiles_ptr"],
)
def attention_kernel(
    q_ptr: tl.tensor,
    k_desc: tl.tensor,
    v_desc: tl.tensor,
    out_ptr: tl.tensor,
    sinks_ptr: tl.tensor,
    cu_seqlens_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    blocks_ptr: tl.tensor,
    tiles_ptr: tl.tensor,
    blocks_stride: tl.tensor,
    max_tiles: tl.tensor,
    q_stride: tl.tensor,
    q_head_stride: tl.tensor,
    scale: tl.tensor,
    NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
) -> None:
    """One head of one query tile a program; the heads of a tile run next to each other and share its keys."""
    head = tl.program_id(0)
    if tiles_ptr is not None:
        sequence = tl.load(tiles_ptr + tl.program_id(1) * 2)
        tile = tl.load(tiles_ptr + tl.program_id(1) * 2 + 1)
    else:
        sequence = tl.program_id(1) // max_tiles
        tile = max_tiles - 1 - tl.program_id(1) % max_tiles
    first_query = tl.load(cu_seqlens_ptr + sequence)
    num_queries = tl.load(cu_seqlens_ptr + sequence + 1) - first_query
    if tile * BLOCK_M >= num_queries:
        return
    length = num_queries
    if seq_lens_ptr is not None:
        length = tl.load(seq_lens_ptr + sequence)
    if blocks_ptr is not None:
        blocks_ptr += sequence.to(tl.int64) * blocks_stride

    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    mask = (queries < num_queries)[:, None] & (dims < HEAD_DIM)[None, :]
    token = (first_query + queries).to(tl.int64)
    q_at = q_ptr + token[:, None] * q_stride + head * q_head_stride + dims[None, :]
    q = tl.load(q_at, mask=mask, other=0.0)

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    row_max = tl.full([BLOCK_M], _MINUS_INFINITY, dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    if sinks_ptr is not None:
        # A sink is a key without a value: the softmax starts with it.
        row_max = tl.zeros_like(row_sum) + tl.load(sinks_ptr + head).to(tl.float32) * _LOG2_E
        row_sum += 1.0

    # Key tiles: [start, full_start) cut by the window, [full_start, full_stop) seen whole by every query of
    # the tile, [full_stop, stop) cut by the diagonal.
    first_position = length - num_queries + tile * BLOCK_M
    positions = length - num_queries + queries
    stop = tl.minimum(first_position + BLOCK_M, length)
    full_stop = (first_position + 1) // BLOCK_N * BLOCK_N
    kv_head = head // GROUP
    first_row = first_query if blocks_ptr is None else 0
    full_start = 0
    if WINDOW is not None:
        start = tl.maximum(first_position - (WINDOW - 1), 0) // BLOCK_N * BLOCK_N
        seen_by_all = tl.maximum(first_position + BLOCK_M - WINDOW, 0)
        full_start = tl.minimum((seen_by_all + BLOCK_N - 1) // BLOCK_N * BLOCK_N, full_stop)
        acc, row_sum, row_max = attend_tiles(
            acc,
            row_sum,
            row_max,
            q,
            positions,
            start,
            full_start,
            length,
            k_desc,
            v_desc,
            kv_head,
            first_row,
            blocks_ptr,
            scale,
            BLOCK_N,
            BLOCK_D,
            WINDOW,
            SOFTCAP,
            MASKED=True,
            FOREIGN=False,
            STAGES=1,
        )
    acc, row_sum, row_max = attend_tiles(
        acc,
        row_sum,
        row_max,
        q,
        positions,
        full_start,
        full_stop,
        length,
        k_desc,
        v_desc,
        kv_head,
        first_row,
        blocks_ptr,
        scale,
        BLOCK_N,
        BLOCK_D,
        WINDOW,
        SOFTCAP,
        MASKED=False,
        FOREIGN=False,
        STAGES=None,
    )
    if tl.cdiv(stop, BLOCK_N) * BLOCK_N <= length:
        acc, row_sum, row_max = attend_tiles(
            acc,
            row_sum,
            row_max,
            q,
            positions,
            full_stop,
            stop,
            length,
            k_desc,
            v_desc,
            kv_head,
            first_row,
            blocks_ptr,
            scale,
            BLOCK_N,
            BLOCK_D,
            WINDOW,
            SOFTCAP,
            MASKED=True,
            FOREIGN=False,
            STAGES=1,
        )
    else:
        acc, row_sum, row_max = attend_tiles(
            acc,
            row_sum,
            row_max,
            q,
            positions,
            full_stop,
            stop,
            length,
            k_desc,
            v_desc,
            kv_head,
            first_row,
            blocks_ptr,
            scale,
            BLOCK_N,
            BLOCK_D,
            WINDOW,
            SOFTCAP,
            MASKED=True,
            FOREIGN=True,
            STAGES=1,
        )

    out = acc / row_sum[:, None]
    out_at = out_ptr + (token[:, None] * NUM_HEADS + head) * HEAD_DIM + dims[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=mask)
