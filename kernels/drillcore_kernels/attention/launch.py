"""Launches the attention kernel: descriptors, tile sizes and the grid, without waiting for the device."""

from __future__ import annotations

import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from drillcore_kernels.attention.kernel import attention_kernel
from drillcore_kernels.attention.tiles import KEY_TILE, QUERY_TILE, check_head_dim, tile_config


def row_descriptor(rows: Tensor, head_dim: int) -> TensorDescriptor:
    """Give the descriptor of keys or values [rows, Hkv, Dh] (any strides of 16 bytes) for tiles of one head.

    Raises:
        ValueError: no kernel is built for the head size.
    """
    check_head_dim(head_dim)
    num_rows, num_kv_heads, _ = rows.shape
    row_stride, head_stride, _ = rows.stride()
    padded = triton.next_power_of_2(head_dim)
    return TensorDescriptor(
        rows, [num_kv_heads, num_rows, head_dim], [head_stride, row_stride, 1], [1, KEY_TILE, padded]
    )


def page_descriptor(cache: Tensor) -> TensorDescriptor:
    """Give the descriptor of a KV cache [num_blocks, 64, Hkv, Dh], whose rows are its slots.

    Raises:
        ValueError: the block size is not the key tile.
    """
    if cache.shape[1] != KEY_TILE:
        raise ValueError(f"the KV cache's block size must be {KEY_TILE}; got {cache.shape[1]}")
    return row_descriptor(cache.flatten(0, 1), cache.shape[3])


def check_scale(scale: float) -> None:
    """Raise ValueError unless the scale is positive, which the kernels' running maximum relies on."""
    if not scale > 0.0:
        raise ValueError(f"the scale of attention scores must be positive; got {scale}")


def launch_attention(
    q: Tensor,
    k_desc: TensorDescriptor,
    v_desc: TensorDescriptor,
    out: Tensor,
    cu_seqlens_q: Tensor,
    *,
    seq_lens: Tensor | None,
    block_table: Tensor | None,
    tiles: Tensor | None,
    max_seqlen_q: int,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> None:
    """Launch the kernel for q [T, Hq, Dh]; `seq_lens` and `block_table` are None for fresh rows."""
    check_scale(scale)
    _, num_heads, head_dim = q.shape
    config = tile_config(head_dim, q.device)
    max_tiles = triton.cdiv(max_seqlen_q, QUERY_TILE)
    num_tiles = len(tiles) if tiles is not None else max_tiles * (len(cu_seqlens_q) - 1)
    attention_kernel[(num_heads, num_tiles)](
        q,
        k_desc,
        v_desc,
        out,
        sinks,
        cu_seqlens_q,
        seq_lens,
        block_table,
        tiles,
        0 if block_table is None else block_table.stride(0),
        max_tiles,
        q.stride(0),
        q.stride(1),
        scale,
        NUM_HEADS=num_heads,
        GROUP=num_heads // k_desc.shape[0],
        HEAD_DIM=head_dim,
        BLOCK_D=triton.next_power_of_2(head_dim),
        BLOCK_M=QUERY_TILE,
        BLOCK_N=KEY_TILE,
        WINDOW=window,
        SOFTCAP=softcap,
        num_warps=config.num_warps,
        num_stages=config.num_stages if block_table is None else config.num_paged_stages,
    )
