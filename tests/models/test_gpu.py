"""The decoder on the card: the same states as in float32 on the CPU, and never a wait for the device."""

from __future__ import annotations

import pytest
import torch

from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.capture import NoCapture
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BLOCK_SIZE = 64
QUERY_LENS, KV_LENS = (1, 1, 40, 90, 5, 200), (130, 1 + 64, 100, 154, 5, 200)
"""Two decodes, two extends, two prefills."""
SIZES = {"head_dim": 64, "hidden_size": 256, "intermediate_size": 512, "initializer_range": 0.08}


@pytest.fixture(params=["llama", "qwen2", "qwen3"])
def folder(request, tiny_model_folder):
    return tiny_model_folder(request.param, **SIZES)


def load(folder, device, dtype):
    spec = ModelSpec.from_folder(folder)
    return load_decoder(folder, spec, device=device, dtype=dtype, num_layers=3, lm_head=True, final_norm=True)


def run_in_two_steps(decoder, device, dtype):
    """The contexts as prefills, then all the queries in one mixed step: n_L of the queries."""
    generator = torch.Generator().manual_seed(5)
    sequences = [torch.randint(0, 320, (length,), generator=generator) for length in KV_LENS]
    spec = decoder.spec
    table = torch.randperm(6 * 4, generator=generator).view(6, 4).int() + 1
    shape = (25, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
    kv = [tuple(torch.full(shape, torch.nan, dtype=dtype, device=device) for _ in "kv") for _ in range(3)]
    contexts = [kv_len - query_len for query_len, kv_len in zip(QUERY_LENS, KV_LENS, strict=True)]
    first = [(row, 0, context) for row, context in enumerate(contexts) if context]
    second = [(row, contexts[row], kv_len) for row, kv_len in enumerate(KV_LENS)]
    for spans in (first, second):
        hidden = step(decoder, device, kv, table, sequences, spans)
    return hidden


def step(decoder, device, kv, table, sequences, spans):
    rows = [row for row, _, _ in spans]
    positions = torch.cat([torch.arange(start, stop) for _, start, stop in spans])
    sequence_of = torch.cat([torch.full((stop - start,), row) for row, start, stop in spans])
    attention = AttentionMetadata.build(
        [stop - start for _, start, stop in spans],
        [stop for _, _, stop in spans],
        block_table=table[rows],
        slot_mapping=table[sequence_of, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE,
        device=device,
        plan_tiles=decoder.ops.plan_tiles,
    )
    token_ids = torch.cat([sequences[row][start:stop] for row, start, stop in spans])
    inputs = token_ids.to(device), positions.to(device), attention, kv
    return decoder.forward(*inputs, NoCapture(3), want_hidden=True)


@pytest.mark.parametrize(("dtype", "least_cosine"), [(torch.bfloat16, 0.997), (torch.float16, 0.9999)])
def test_a_mixed_step_gives_the_states_of_the_cpu_in_float32(folder, dtype, least_cosine):
    """The bounds allow for rounding: float16 has 8 times finer steps, so 64 times smaller angles squared."""
    expected = run_in_two_steps(load(folder, "cpu", torch.float32), "cpu", torch.float32)
    hidden = run_in_two_steps(load(folder, "cuda", dtype), "cuda", dtype)
    cosine = torch.nn.functional.cosine_similarity(hidden.cpu().double(), expected.double(), dim=-1)
    assert cosine.min() >= least_cosine


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_forward_pass_never_waits_for_the_device(folder):
    decoder = load(folder, "cuda", torch.bfloat16)
    tokens, lengths = torch.zeros(300, dtype=torch.int64, device="cuda"), [100, 200]
    positions = torch.arange(300, device="cuda") % 100

    def forward():
        attention = AttentionMetadata.build(lengths, lengths, device="cuda", plan_tiles=decoder.ops.plan_tiles)
        hidden = decoder.forward(tokens, positions, attention, None, NoCapture(3), want_hidden=True)
        return decoder.logits(hidden[-1:])

    forward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        forward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_weights_arrive_on_the_card_as_on_the_cpu(folder):
    there, here = load(folder, "cuda", torch.bfloat16).weights, load(folder, "cpu", torch.bfloat16).weights
    assert torch.equal(there.embedding.cpu(), here.embedding)
    for block, expected in zip(there.blocks, here.blocks, strict=True):
        assert torch.equal(block.qkv.weight.cpu(), expected.qkv.weight)
        assert torch.equal(block.gate_up.weight.cpu(), expected.gate_up.weight)
