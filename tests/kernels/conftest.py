"""Packed sequences and their pages, for the references and for the Triton kernels."""

import pytest
import torch

BLOCK_SIZE = 64


def packed_qkv(lengths, num_heads, num_kv_heads, head_dim, *, dtype=torch.float32, device="cpu"):
    """Give q, k, v as views of one packed buffer, as the model has them."""
    torch.manual_seed(1)
    qkv = torch.randn(sum(lengths), num_heads + 2 * num_kv_heads, head_dim).to(dtype).to(device)
    return qkv.split([num_heads, num_kv_heads, num_kv_heads], dim=1)


def offsets_of(lengths, device="cpu"):
    """Give [B + 1] int32 offsets of packed sequences."""
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)


def paged_rows(rows, lengths, num_spare_blocks=1):
    """Scatter packed rows over shuffled blocks; give (cache, block_table).

    Block 0 and every row that holds no token are NaN; table entries beyond a sequence are out of range.
    """
    generator = torch.Generator().manual_seed(2)
    counts = [-(-length // BLOCK_SIZE) for length in lengths]
    order = torch.randperm(sum(counts), generator=generator) + num_spare_blocks
    shape = (sum(counts) + num_spare_blocks, BLOCK_SIZE, *rows.shape[1:])
    cache = torch.full(shape, torch.nan, dtype=rows.dtype, device=rows.device)
    table = torch.full((len(lengths), max(counts, default=0)), 2**30, dtype=torch.int32)
    parts = zip(order.split(counts), rows.split(lengths), lengths, strict=True)
    for sequence, (blocks, part, length) in enumerate(parts):
        table[sequence, : len(blocks)] = blocks
        slots = (blocks[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()[:length]
        cache.view(-1, *rows.shape[1:])[slots.to(rows.device)] = part
    return cache, table.to(rows.device)


@pytest.fixture
def packed():
    return packed_qkv


@pytest.fixture
def offsets():
    return offsets_of


@pytest.fixture
def paged():
    return paged_rows
