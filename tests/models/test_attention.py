from __future__ import annotations

import pytest
import torch

from drillcore_server.models.attention import AttentionKind, AttentionMetadata

TABLE = torch.arange(12, dtype=torch.int32).view(4, 3)
SLOTS = torch.arange(12)


def test_each_kind_is_one_range_of_tokens_with_its_own_offsets():
    attention = AttentionMetadata.build([1, 2, 3, 6], [5, 4, 3, 6], block_table=TABLE, slot_mapping=SLOTS)
    decode, extend, prefill = attention.groups
    assert [group.kind for group in attention.groups] == list(AttentionKind)
    assert [group.tokens for group in attention.groups] == [slice(0, 1), slice(1, 3), slice(3, 12)]
    assert (prefill.query_lens, prefill.max_seqlen_q, prefill.max_seqlen) == ((3, 6), 6, 6)
    assert prefill.cu_seqlens_q.tolist() == [0, 3, 9]
    assert prefill.cu_seqlens_q.dtype is torch.int32
    assert (extend.kv_lens, extend.seq_lens.tolist(), extend.max_seqlen_q) == ((4,), [4], 2)
    assert extend.block_table.tolist() == [[3, 4, 5]]
    assert decode.block_table.tolist() == [[0, 1, 2]]
    assert prefill.block_table is None


def test_prefills_alone_need_neither_blocks_nor_slots():
    attention = AttentionMetadata.build([3, 1], [3, 1])
    assert [group.kind for group in attention.groups] == [AttentionKind.PREFILL]
    assert attention.slot_mapping is None


def test_a_step_without_sequences_has_no_groups():
    assert AttentionMetadata.build([], []).groups == ()


def test_the_order_of_work_is_planned_once_a_group():
    planned = []

    def plan_tiles(query_lens, seq_lens, device):
        planned.append((list(query_lens), list(seq_lens), device))
        return torch.zeros(1, 2, dtype=torch.int32)

    attention = AttentionMetadata.build(
        [1, 2, 3], [5, 4, 3], block_table=TABLE[:3], slot_mapping=SLOTS[:6], plan_tiles=plan_tiles
    )
    assert planned == [([2], [4], torch.device("cpu")), ([3], [3], torch.device("cpu"))]
    assert [group.tiles is None for group in attention.groups] == [True, False, False]


@pytest.mark.parametrize(
    ("query_lens", "kv_lens"), [([3, 1], [3, 5]), ([2, 1], [4, 5]), ([3, 2], [3, 4]), ([1, 3, 1], [2, 3, 2])]
)
def test_another_order_is_refused(query_lens, kv_lens):
    table = TABLE[: len(query_lens)]
    with pytest.raises(ValueError, match="order"):
        AttentionMetadata.build(query_lens, kv_lens, block_table=table, slot_mapping=SLOTS[: sum(query_lens)])


@pytest.mark.parametrize(("query_len", "kv_len"), [(0, 3), (4, 3), (-1, 3)])
def test_impossible_lengths_are_refused(query_len, kv_len):
    with pytest.raises(ValueError, match="query_len"):
        AttentionMetadata.build([query_len], [kv_len], block_table=TABLE[:1], slot_mapping=SLOTS[:1])


@pytest.mark.parametrize("missing", ["block_table", "slot_mapping"])
def test_context_without_blocks_or_slots_is_refused(missing):
    options = {"block_table": TABLE[:1], "slot_mapping": SLOTS[:1]} | {missing: None}
    with pytest.raises(ValueError, match="block table and slots"):
        AttentionMetadata.build([1], [5], **options)
