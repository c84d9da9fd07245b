from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from drillcore_kernels import select_ops
from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.capture import NoCapture
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.random_weights import random_decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.weights import build_weights

BLOCK_SIZE = 8
PROMPT = torch.randint(0, 320, (75,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture(params=["llama", "qwen3"])
def folder(request, tiny_model_folder):
    return tiny_model_folder(request.param)


@pytest.fixture
def load(folder):
    def load(**options):
        options = {"num_layers": 3, "lm_head": True, "final_norm": True} | options
        return load_decoder(folder, ModelSpec.from_folder(folder), device="cpu", dtype=torch.float32, **options)

    return load


class PagedStep:
    """Sequences with KV caches whose every value is NaN until the decoder writes it."""

    def __init__(self, decoder, num_blocks=64):
        spec = decoder.spec
        shape = (num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        self.decoder = decoder
        self.kv = [(torch.full(shape, torch.nan), torch.full(shape, torch.nan)) for _ in decoder.weights.blocks]

    def __call__(self, sink_type, *rows):
        """Runs rows of (token ids, first position, block ids) in one step; the sink and n_L."""
        query_lens = [len(tokens) for tokens, _, _ in rows]
        positions = torch.cat([torch.arange(first, first + len(tokens)) for tokens, first, _ in rows])
        block_of = torch.cat(
            [
                torch.tensor(blocks)[torch.arange(start, start + len(tokens)) // BLOCK_SIZE]
                for tokens, start, blocks in rows
            ]
        )
        attention = AttentionMetadata.build(
            query_lens,
            [first + len(tokens) for tokens, first, _ in rows],
            block_table=torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(blocks, dtype=torch.int32) for _, _, blocks in rows], batch_first=True
            ),
            slot_mapping=block_of * BLOCK_SIZE + positions % BLOCK_SIZE,
        )
        token_ids = torch.tensor([token for tokens, _, _ in rows for token in tokens])
        sink = sink_type(range(4), len(token_ids), self.decoder.spec.hidden_size, final_norm=True)
        hidden = self.decoder.forward(token_ids, positions, attention, self.kv, sink, want_hidden=True)
        return sink, hidden


@pytest.mark.parametrize("budget", [1, 7, 64, 1000])
def test_chunks_of_a_prompt_give_the_states_of_the_whole(
    load, folder, budget, recording_sink, reference_states, row_criterion
):
    step, blocks = PagedStep(load()), list(range(10, 0, -1))
    chunks = [
        step(recording_sink, (PROMPT[start : start + budget], start, blocks)) for start in range(0, len(PROMPT), budget)
    ]
    reference = reference_states(folder, PROMPT)
    for i in range(4):
        row_criterion(torch.cat([sink.states(i) for sink, _ in chunks]), reference.residual[i])
    row_criterion(torch.cat([hidden for _, hidden in chunks]), reference.final_norm)


def test_decodes_extends_and_prefills_share_a_step(load, folder, recording_sink, reference_states, row_criterion):
    step = PagedStep(load())
    decoded, extended, fresh = PROMPT[:30], PROMPT[10:60], PROMPT[40:]
    step(recording_sink, (decoded[:29], 0, [1, 2, 3, 4]), (extended[:17], 0, list(range(5, 12))))
    sink, _ = step(
        recording_sink,
        (decoded[29:], 29, [1, 2, 3, 4]),
        (extended[17:], 17, list(range(5, 12))),
        (fresh, 0, list(range(20, 30))),
    )
    for i in range(4):
        references = [reference_states(folder, tokens).residual[i] for tokens in (decoded, extended, fresh)]
        row_criterion(sink.states(i), torch.cat([references[0][29:], references[1][17:], references[2]]))


def test_a_prefix_that_another_sequence_computed_gives_the_same_states(
    load, folder, recording_sink, reference_states, row_criterion
):
    step = PagedStep(load())
    other = PROMPT[:16] + PROMPT[40:50]
    step(recording_sink, (PROMPT, 0, list(range(1, 11))))
    sink, _ = step(recording_sink, (other[16:], 16, [1, 2, 30, 31]))
    row_criterion(sink.states(3), reference_states(folder, other).residual[3][16:])


def test_greedy_decoding_gives_the_tokens_of_transformers(load, folder, recording_sink):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(torch.tensor([PROMPT]), attention_mask=torch.ones(1, len(PROMPT)), **options)
    step, tokens, computed = PagedStep(load()), list(PROMPT), 0
    for _ in range(12):
        _, hidden = step(recording_sink, (tokens[computed:], computed, list(range(1, 20))))
        computed = len(tokens)
        tokens.append(int(step.decoder.logits(hidden[-1:]).argmax()))
    assert tokens == expected[0].tolist()


@pytest.mark.parametrize("last_layer", [0, 1, 2, 3])
def test_blocks_above_the_last_layer_are_neither_loaded_nor_run(
    load, folder, last_layer, recording_sink, reference_states, row_criterion
):
    decoder = load(num_layers=last_layer, lm_head=False, final_norm=False)
    sink = recording_sink([last_layer], len(PROMPT), decoder.spec.hidden_size)
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    positions = torch.arange(len(PROMPT))
    hidden = decoder.forward(torch.tensor(PROMPT), positions, attention, None, sink, want_hidden=False)
    assert hidden is None
    assert sink.asked == list(range(last_layer + 1))
    row_criterion(sink.states(last_layer), reference_states(folder, PROMPT).residual[last_layer])


def test_the_final_norm_is_captured_for_a_lower_layer_too(
    load, folder, recording_sink, reference_states, row_criterion
):
    decoder = load(lm_head=False)
    sink = recording_sink([1], len(PROMPT), decoder.spec.hidden_size, final_norm=True)
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    positions = torch.arange(len(PROMPT))
    assert decoder.forward(torch.tensor(PROMPT), positions, attention, None, sink, want_hidden=False) is None
    reference = reference_states(folder, PROMPT)
    row_criterion(sink.states(1), reference.residual[1])
    row_criterion(sink.final_states(), reference.final_norm)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_rows_leave_the_last_block_alone(load, num_layers, recording_sink, row_criterion):
    decoder, rows = load(num_layers=num_layers), torch.tensor([0, 7, 8, 74])
    attention = AttentionMetadata.build([40, 35], [40, 35])
    inputs = (torch.tensor(PROMPT), torch.arange(len(PROMPT)) % 40, attention, None)
    layers = [num_layers - 1, num_layers]
    whole, some = (recording_sink(layers, len(PROMPT), decoder.spec.hidden_size) for _ in range(2))

    decoder.forward(*inputs, whole, want_hidden=False)
    decoder.forward(*inputs, some, want_hidden=False, rows=rows)

    row_criterion(some.states(layers[0]), whole.states(layers[0]))
    row_criterion(some.states(layers[1])[rows], whole.states(layers[1])[rows])


def test_rows_give_the_logits_of_the_whole(load, recording_sink, row_criterion):
    decoder, rows = load(), torch.tensor([3, 74])
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    inputs = (torch.tensor(PROMPT), torch.arange(len(PROMPT)), attention, None)
    whole, some = (recording_sink([1], len(PROMPT), decoder.spec.hidden_size, final_norm=True) for _ in range(2))

    every = decoder.forward(*inputs, whole, want_hidden=True)
    hidden = decoder.forward(*inputs, some, want_hidden=True, rows=rows)

    row_criterion(hidden, every[rows])
    row_criterion(some.final_states()[rows], every[rows])
    row_criterion(some.states(1), whole.states(1))


def test_without_a_block_every_row_is_captured(load, recording_sink):
    decoder = load(num_layers=0, lm_head=False, final_norm=False)
    sink = recording_sink([0], len(PROMPT), decoder.spec.hidden_size)
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    inputs = (torch.tensor(PROMPT), torch.arange(len(PROMPT)), attention, None)

    decoder.forward(*inputs, sink, want_hidden=False, rows=torch.tensor([2]))

    assert torch.equal(sink.states(0), decoder.weights.embedding[torch.tensor(PROMPT)])


def test_captured_states_carry_their_norm_and_largest_value(load, recording_sink):
    decoder = load()
    sink = recording_sink([1], len(PROMPT), decoder.spec.hidden_size)
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    decoder.forward(torch.tensor(PROMPT), torch.arange(len(PROMPT)), attention, None, sink, want_hidden=False)
    states = sink.states(1)
    expected = torch.stack((states.norm(dim=-1), states.abs().amax(dim=-1)), dim=-1)
    torch.testing.assert_close(sink.stats_of(1), expected)


def test_later_blocks_do_not_change_what_was_captured(load, recording_sink):
    decoder = load()
    attention = AttentionMetadata.build([len(PROMPT)], [len(PROMPT)])
    inputs = (torch.tensor(PROMPT), torch.arange(len(PROMPT)), attention, None)
    alone, among = (recording_sink(ids, len(PROMPT), decoder.spec.hidden_size) for ids in ([1], [1, 2, 3]))
    for sink in (alone, among):
        decoder.forward(*inputs, sink, want_hidden=False)
    assert torch.equal(alone.states(1), among.states(1))
    assert not torch.equal(among.states(1), among.states(2))


def test_a_sequence_with_context_needs_a_kv_cache(load):
    attention = AttentionMetadata.build(
        [1], [5], block_table=torch.ones(1, 1, dtype=torch.int32), slot_mapping=torch.tensor([12])
    )
    with pytest.raises(ValueError, match="KV cache"):
        load().forward(torch.tensor([3]), torch.tensor([4]), attention, None, NoCapture(3), want_hidden=False)


@pytest.mark.parametrize("loaded", [{"num_layers": 2}, {"final_norm": False}])
def test_what_was_not_loaded_is_never_left_out_silently(load, loaded):
    attention = AttentionMetadata.build([2], [2])
    inputs = (torch.tensor([3, 4]), torch.arange(2), attention, None)
    with pytest.raises(ValueError, match="loaded"):
        load(**loaded).forward(*inputs, NoCapture(1), want_hidden=True)


def test_logits_need_the_output_embedding(load):
    with pytest.raises(ValueError, match="lm_head"):
        load(lm_head=False).logits(torch.zeros(1, 64))


def test_a_forward_pass_reads_nothing_back_from_the_device(folder):
    """On the meta device there are shapes but no values: whatever waits for one raises."""
    decoder = meta_decoder(ModelSpec.from_folder(folder))
    attention = AttentionMetadata.build([4, 9], [4, 9], device="meta")
    tokens = torch.empty(13, dtype=torch.int64, device="meta")
    hidden = decoder.forward(tokens, tokens, attention, None, NoCapture(3), want_hidden=True)
    assert decoder.logits(hidden).shape == (13, 320)


def meta_decoder(spec):
    """A decoder without values, whose attention only gives shapes, as the launch of a kernel does."""

    def make(parameter):
        return torch.empty(parameter.shape, device="meta")

    def varlen_prefill(q, k, v, cu_seqlens, *, out, **_):
        return out

    ops = replace(select_ops("cpu", torch.float32), varlen_prefill=varlen_prefill)
    weights = build_weights(spec, make, num_layers=3, final_norm=True, lm_head=True)
    return Decoder(spec, weights, ops, *spec.rope.tables(16, "meta"))


def test_random_weights_are_the_same_for_the_same_seed(folder):
    spec = ModelSpec.from_folder(folder)
    first, again, other = (
        random_decoder(spec, device="cpu", dtype=torch.bfloat16, num_layers=2, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first.weights.blocks[1].down.weight, again.weights.blocks[1].down.weight)
    assert not torch.equal(first.weights.blocks[1].down.weight, other.weights.blocks[1].down.weight)
    assert first.weights.final_norm.float().mean() == pytest.approx(1.0, abs=0.05)
    assert len(first.weights.blocks) == 2
