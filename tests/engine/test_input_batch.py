"""A step's tensors against a model that goes through the tokens one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_kernels.reference_ops import REFERENCE_OPS
from drillcore_server.connector.metadata import StateSlice, StepMetadata
from drillcore_server.engine import Request
from drillcore_server.engine.input_batch import InputBatch
from drillcore_server.engine.request import Sequence
from drillcore_server.engine.scheduler_output import ScheduledRequest, SchedulerOutput
from drillcore_server.models.attention import AttentionKind

BLOCK_SIZE = 4


def make_batch(*, skips_unwanted_rows: bool = False) -> InputBatch:
    return InputBatch(
        BLOCK_SIZE,
        torch.device("cpu"),
        REFERENCE_OPS.plan_tiles,
        keeps_kv=True,
        skips_unwanted_rows=skips_unwanted_rows,
    )


@st.composite
def steps(draw):
    """One step in batch order: (first token, number of tokens, samples, positions of available states)."""
    parts = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 9), st.booleans()), min_size=1, max_size=6))
    parts.sort(key=lambda part: (part[0] == 0, part[0] > 0 and part[1] > 1))
    seed = draw(st.integers(0, 2**31))
    return parts, np.random.default_rng(seed)


def schedule(parts, rng) -> tuple[SchedulerOutput, StepMetadata]:
    free_blocks = iter((rng.permutation(200) + 1).tolist())
    requests, slices = [], []
    for request_id, (first, count, samples) in enumerate(parts):
        request = Request(request_id, rng.integers(0, 1000, first + count + 3))
        header = Sequence.of(request).header
        blocks = tuple(next(free_blocks) for _ in range(-(-(first + count) // BLOCK_SIZE)))
        requests.append(
            ScheduledRequest(
                request, header, first, request.prompt_token_ids[first : first + count], blocks, True, samples
            )
        )
        positions = np.flatnonzero(rng.random(first + count) < 0.5)
        slices.append(StateSlice(header, positions, True))
    num_tokens = sum(count for _, count, _ in parts)
    return SchedulerOutput(tuple(requests), (), num_tokens), StepMetadata(tuple(slices))


def slot_of(scheduled: ScheduledRequest, position: int) -> int:
    return scheduled.block_ids[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE


@settings(deadline=None, max_examples=80)
@given(steps())
def test_every_token_and_state_has_its_own_slot(step):
    output, metadata = schedule(*step)

    inputs = make_batch().build(output, metadata)

    ids, positions, slots, sampled, state_slots = [], [], [], [], []
    for scheduled, part in zip(output.requests, metadata.slices, strict=True):
        for offset, token_id in enumerate(scheduled.token_ids):
            position = scheduled.first_token + offset
            ids.append(token_id)
            positions.append(position)
            slots.append(slot_of(scheduled, position))
        if scheduled.samples:
            sampled.append(len(ids) - 1)
        state_slots += [slot_of(scheduled, position) for position in part.positions]
    assert inputs.token_ids.tolist() == ids
    assert inputs.positions.tolist() == positions
    assert inputs.slot_mapping.tolist() == slots
    assert inputs.sample_rows.tolist() == sampled
    assert inputs.state_slots.tolist() == inputs.device_state_slots.tolist() == state_slots


@settings(deadline=None, max_examples=80)
@given(steps())
def test_the_attention_of_every_sequence_reads_its_own_blocks(step):
    output, metadata = schedule(*step)

    attention = make_batch().build(output, metadata).attention

    rows = iter(output.requests)
    start = 0
    for group in attention.groups:
        for row, (query_len, kv_len) in enumerate(zip(group.query_lens, group.kv_lens, strict=True)):
            scheduled = next(rows)
            assert (query_len, kv_len) == (len(scheduled.token_ids), scheduled.end_token)
            assert group.tokens.start + int(group.cu_seqlens_q[row]) == start
            start += query_len
            if group.kind is not AttentionKind.PREFILL:
                table = group.block_table[row].tolist()
                assert table == [*scheduled.block_ids, *[0] * (len(table) - len(scheduled.block_ids))]
    assert next(rows, None) is None


def test_a_step_without_new_blocks_uses_the_table_of_before():
    batch = make_batch()
    request = Request(7, np.arange(12))
    header = Sequence.of(request).header
    for first, blocks in ((0, (9, 3, 5)), (4, None), (8, None)):
        scheduled = ScheduledRequest(
            request, header, first, request.prompt_token_ids[first : first + 4], blocks, first == 0, False
        )
        metadata = StepMetadata((StateSlice(header, np.arange(first, first + 4), first == 0),))
        inputs = batch.build(SchedulerOutput((scheduled,), (), 4), metadata)
        block = (9, 3, 5)[first // 4]
        assert inputs.slot_mapping.tolist() == [block * 4 + offset for offset in range(4)]


def test_the_table_of_an_ended_request_is_forgotten():
    batch = make_batch()
    output, metadata = schedule([(0, 5, False)], np.random.default_rng(0))
    batch.build(output, metadata)
    output, metadata = schedule([(0, 5, False)], np.random.default_rng(1))
    other = ScheduledRequest(Request(99, np.arange(5)), output.requests[0].header, 0, np.arange(5), (4, 5), True, False)

    batch.build(SchedulerOutput((other,), (0,), 5), metadata)

    assert list(batch._tables) == [99]


def test_without_a_kv_cache_the_attention_has_no_slots():
    output, metadata = schedule([(0, 5, False)], np.random.default_rng(0))
    batch = InputBatch(BLOCK_SIZE, torch.device("cpu"), REFERENCE_OPS.plan_tiles, keeps_kv=False)

    inputs = batch.build(output, metadata)

    assert inputs.attention.slot_mapping is None
    assert len(inputs.slot_mapping) == 5


@pytest.mark.parametrize("block", [131_072 // 64, 2**31 // 64])
def test_slots_beyond_32_bits_are_right(block):
    request = Request(0, np.arange(70))
    header = Sequence.of(request).header
    scheduled = ScheduledRequest(request, header, 0, request.prompt_token_ids, (block, block + 1), True, False)
    batch = InputBatch(64, torch.device("cpu"), REFERENCE_OPS.plan_tiles, keeps_kv=False)

    inputs = batch.build(
        SchedulerOutput((scheduled,), (), 70), StepMetadata((StateSlice(header, np.arange(70), True),))
    )

    assert inputs.slot_mapping.tolist() == list(range(block * 64, block * 64 + 70))


@settings(deadline=None, max_examples=80)
@given(steps())
def test_wanted_rows_are_those_with_a_state_or_a_sample(step):
    output, metadata = schedule(*step)

    whole = make_batch().build(output, metadata)
    inputs = make_batch(skips_unwanted_rows=True).build(output, metadata)

    wanted, row = set(whole.sample_rows.tolist()), 0
    for scheduled, part in zip(output.requests, metadata.slices, strict=True):
        places = range(row, row + len(scheduled.token_ids))
        kept = set(part.positions.tolist())
        wanted |= {place for p, place in enumerate(places, scheduled.first_token) if p in kept}
        row = places.stop
    assert whole.wanted_rows is None
    rows = list(range(row)) if inputs.wanted_rows is None else inputs.wanted_rows.tolist()
    assert rows == (sorted(wanted) or [row - 1])
    assert [rows[index] for index in inputs.sample_rows.tolist()] == whole.sample_rows.tolist()
    assert (inputs.wanted_rows is None) == (len(rows) == row)
