"""Admission, prefix hits and their eviction."""

from __future__ import annotations

import numpy as np
import pytest

from drillcore_server.engine import EngineConfig, Request
from drillcore_server.engine.kv_cache_manager import Admission, KVCacheManager
from drillcore_server.engine.prefix_cache import PrefixNode
from drillcore_server.engine.request import Sequence


@pytest.fixture
def manager() -> KVCacheManager:
    return KVCacheManager(EngineConfig(max_model_len=64, num_blocks=11, block_size=4, max_tokens=8))


def sequence_of(prompt, request_id=0, max_tokens=0) -> Sequence:
    return Sequence.of(Request(request_id, np.array(prompt), max_tokens=max_tokens))


def compute(manager: KVCacheManager, sequence: Sequence) -> None:
    """All tokens in one step."""
    count = sequence.num_new_tokens
    manager.grow(sequence, count)
    sequence.num_computed_tokens += count
    manager.publish_prefix(sequence)


@pytest.mark.parametrize(("max_tokens", "blocks"), [(0, 2), (1, 2), (2, 3), (5, 3), (6, 4)])
def test_a_request_needs_slots_for_prompt_and_generated_tokens_but_the_last(manager, max_tokens, blocks):
    sequence = sequence_of(range(8), max_tokens=max_tokens)

    assert manager.admit(sequence) is Admission.ADMITTED
    assert manager.pool.num_available == 10 - blocks


def test_blocks_are_promised_at_admission_and_taken_when_a_step_needs_them(manager):
    sequence = sequence_of(range(20), max_tokens=8)

    manager.admit(sequence)

    assert (manager.pool.num_free, manager.pool.num_available) == (10, 3)
    assert manager.grow(sequence, 3)
    assert len(sequence.block_ids) == 1
    sequence.num_computed_tokens = 3
    assert not manager.grow(sequence, 1)
    assert manager.pool.num_free == 9


def test_a_request_without_room_changes_nothing(manager):
    manager.admit(sequence_of(range(24)))
    late = sequence_of(range(100, 117), request_id=1)

    assert manager.admit(late) is Admission.NO_BLOCKS
    assert (late.block_ids, late.num_reserved_blocks, manager.pool.num_available) == ([], 0, 4)


def test_a_hit_counts_the_free_blocks_that_it_takes_away(manager):
    first = sequence_of(range(24))
    manager.admit(first)
    compute(manager, first)
    manager.free(first)
    other = sequence_of(range(100, 124), request_id=1)
    manager.admit(other)  # promises 6 of 10 blocks, 6 of which are cached

    again = sequence_of(range(24), request_id=2)  # hits 5 blocks, needs 1 more

    assert manager.admit(again) is Admission.NO_BLOCKS


def test_a_prefix_can_be_hit_from_the_step_after_it_was_scheduled(manager):
    first, second = sequence_of(range(9)), sequence_of([*range(8), 99], request_id=1)
    manager.admit(first)

    assert manager.admit(second) is Admission.AWAITS_PREFIX
    compute(manager, first)
    assert manager.admit(second) is Admission.ADMITTED
    assert second.block_ids == first.block_ids[:2]
    assert second.num_computed_tokens == 8


def test_who_waits_for_a_prefix_goes_on_when_it_will_never_be_computed(manager):
    first, second = sequence_of(range(9)), sequence_of([*range(8), 99], request_id=1)
    manager.admit(first)
    manager.admit(second)

    manager.stop_computing(first)

    assert manager.admit(second) is Admission.ADMITTED
    assert second.num_computed_tokens == 0


def test_a_chunk_publishes_only_whole_computed_blocks(manager):
    first, second = sequence_of(range(12)), sequence_of(range(12), request_id=1)
    manager.admit(first)
    manager.grow(first, 7)
    first.num_computed_tokens = 7
    manager.publish_prefix(first)

    assert manager.admit(second) is Admission.AWAITS_PREFIX
    assert second.awaited_prefix is first.prefix_nodes[1]


def test_the_least_recently_used_prefix_is_evicted_from_its_end(manager):
    sequences = [sequence_of(range(100 * i, 100 * i + 20), request_id=i) for i in range(2)]
    for sequence in sequences:
        manager.admit(sequence)
        compute(manager, sequence)
    for sequence in sequences:
        manager.free(sequence)
    big = sequence_of(range(900, 912), request_id=2)
    manager.admit(big)
    manager.grow(big, 12)  # evicts 3 of the first one's 5 blocks
    manager.stop_computing(big)
    manager.free(big)

    hits = []
    for i in range(2):
        again = sequence_of(range(100 * i, 100 * i + 20), request_id=10 + i)
        manager.admit(again)
        hits.append(again.num_computed_tokens)
    assert hits == [8, 16]


def test_equal_blocks_after_different_prefixes_are_different(manager):
    first, second = sequence_of([1, 1, 1, 1, 7, 7, 7, 7, 0]), sequence_of([2, 2, 2, 2, 7, 7, 7, 7, 0], 1)
    manager.admit(first)
    compute(manager, first)

    manager.admit(second)

    assert second.num_computed_tokens == 0


def test_hashes_that_collide_do_not_match(manager, monkeypatch):
    class Colliding(bytes):
        def __hash__(self):
            return 1

    monkeypatch.setattr(
        "drillcore_server.engine.prefix_cache.PrefixCache._key",
        lambda self, ids, i: Colliding(ids[4 * i : 4 * i + 4].tobytes()),
    )
    first, second = sequence_of([1, 1, 1, 1, 7]), sequence_of([2, 2, 2, 2, 7], 1)
    manager.admit(first)
    compute(manager, first)

    manager.admit(second)

    assert second.num_computed_tokens == 0


def test_a_dropped_prefix_leaves_its_parent():
    parent = PrefixNode(None, b"")
    child = parent.children[b"x"] = PrefixNode(parent, b"x", block=3)

    child.drop()

    assert parent.children == {}
    assert child.block is None
    assert not child.pending
