"""Slots whose offset in elements passes 2^31, on the card only: 32-bit arithmetic would wrap around."""

import torch

from drillcore_kernels import Capture

BLOCK_SIZE = 64


def test_capture_gather_and_mean_beyond_32_bits(ops):
    columns, hidden = 4, 4096
    first_slot = 2**31 // (columns * hidden) + 5
    num_blocks = first_slot // BLOCK_SIZE + 2
    cache = torch.zeros(num_blocks, BLOCK_SIZE, columns, hidden, dtype=torch.bfloat16, device="cuda")
    stats = torch.zeros(num_blocks, BLOCK_SIZE, columns, 2, device="cuda")
    slots = torch.arange(first_slot, first_slot + 3, device="cuda")
    x = torch.randn(3, hidden, dtype=torch.bfloat16, device="cuda")
    ops.add_rms_norm(x, None, None, 0.0, capture=Capture(cache, stats, 2, slots))
    assert torch.equal(cache.view(-1, columns, hidden)[slots, 2], x)
    gathered = ops.gather_rows(cache, slots)
    assert torch.equal(gathered[:, 2], x)
    mean = ops.mean_rows(cache, slots, torch.tensor([0, 3], dtype=torch.int32, device="cuda"))
    torch.testing.assert_close(mean[0, 2].float(), x.float().mean(0), atol=1e-2, rtol=1e-2)


def test_pages_beyond_32_bits(ops, packed, offsets, assert_close):
    num_kv_heads, head_dim, length = 8, 128, 100
    num_blocks = 2**31 // (num_kv_heads * head_dim * BLOCK_SIZE) + 4
    shape = (num_blocks, BLOCK_SIZE, num_kv_heads, head_dim)
    k_cache, v_cache = (torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    table = torch.tensor([[num_blocks - 1, num_blocks - 2]], dtype=torch.int32, device="cuda")
    slots = (table[0].long()[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device="cuda")).flatten()[:length]
    q, k, v = packed([length], 32, num_kv_heads, head_dim, dtype=torch.bfloat16, device="cuda")
    positions = torch.arange(length, device="cuda")
    ops.rope_kv_write(q, k, v, None, None, positions, k_cache=k_cache, v_cache=v_cache, slot_mapping=slots)
    assert torch.equal(k_cache.view(-1, num_kv_heads, head_dim)[slots], k)
    fresh = ops.varlen_prefill(q, k, v, offsets([length], "cuda"), max_seqlen=length, scale=0.1)
    seq_lens = torch.tensor([length], dtype=torch.int32, device="cuda")
    limits = {"max_seqlen_q": length, "max_seqlen": length, "scale": 0.1}
    extended = ops.paged_extend(q, k_cache, v_cache, table, offsets([length], "cuda"), seq_lens, **limits)
    assert_close(extended, fresh, torch.bfloat16)
    decoded = ops.paged_decode(q[-1:], k_cache, v_cache, table, seq_lens, scale=0.1)
    assert_close(decoded, fresh[-1:], torch.bfloat16)
