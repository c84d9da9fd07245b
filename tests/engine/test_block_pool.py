"""The block pool and the KV cache manager never lose, double or leak a block, whatever happens in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drillcore_server.engine import EngineConfig, Request
from drillcore_server.engine.block_pool import NULL_BLOCK, BlockPool
from drillcore_server.engine.kv_cache_manager import Admission, KVCacheManager
from drillcore_server.engine.request import Sequence

BLOCK_SIZE = 4
NUM_BLOCKS = 8


class PoolMachine(RuleBasedStateMachine):
    """Requests over a tiny alphabet, so that prefixes collide all the time, in a pool of 7 blocks.

    The model: what each block holds. A block is written when a step computes it, and a prefix hit must find in it
    exactly the tokens of the hitting prompt from the first token on.
    """

    def __init__(self):
        super().__init__()
        config = EngineConfig(max_model_len=32, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_tokens=5)
        self.manager = KVCacheManager(config)
        self.content: dict[int, tuple[int, ...]] = {}
        self.live: list[Sequence] = []
        self.next_id = 0

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=20), max_tokens=st.integers(0, 5))
    def admit(self, prompt, max_tokens):
        sequence = Sequence.of(Request(self.next_id, np.array(prompt), max_tokens=max_tokens))
        self.next_id += 1
        before = self.manager.pool.num_available
        admission = self.manager.admit(sequence)
        if admission is not Admission.ADMITTED:
            assert self.manager.pool.num_available == before
            assert not sequence.block_ids
            return
        assert sequence.num_computed_tokens < len(prompt)
        for index, block in enumerate(sequence.block_ids):
            assert self.content[block] == tuple(prompt[: (index + 1) * BLOCK_SIZE])
        self.live.append(sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def compute(self, data):
        sequence = data.draw(st.sampled_from(self.live))
        if sequence.num_new_tokens == 0:
            return
        self.compute_tokens(sequence, data.draw(st.integers(1, sequence.num_new_tokens)))

    def compute_tokens(self, sequence: Sequence, count: int) -> None:
        first, held = sequence.num_computed_tokens, list(sequence.block_ids)
        grew = self.manager.grow(sequence, count)
        assert grew == (sequence.block_ids != held)
        sequence.num_computed_tokens += count
        self.write(sequence, first, first + count)
        self.manager.publish_prefix(sequence)

    @precondition(lambda self: self.live)
    @rule()
    def finish_the_oldest(self):
        sequence = self.live[0]
        if sequence.num_new_tokens:
            self.compute_tokens(sequence, sequence.num_new_tokens)
        self.free(sequence)

    def write(self, sequence: Sequence, first: int, end: int) -> None:
        shared = {block for other in self.live if other is not sequence for block in other.block_ids}
        for index in range(first // BLOCK_SIZE, -(-end // BLOCK_SIZE)):
            block = sequence.block_ids[index]
            assert block not in shared, "a block that another request reads is written"
            self.content[block] = tuple(sequence.token_ids[: min(end, (index + 1) * BLOCK_SIZE)].tolist())

    @precondition(lambda self: self.live)
    @rule(data=st.data(), token=st.integers(0, 1))
    def sample(self, data, token):
        sequence = data.draw(st.sampled_from(self.live))
        if sequence.num_new_tokens == 0 and sequence.num_tokens < sequence.request.num_slots:
            sequence.append(token)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def stop_computing(self, data):
        sequence = data.draw(st.sampled_from(self.live))
        self.manager.stop_computing(sequence)
        assert sequence.num_reserved_blocks == 0
        self.free(sequence)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free_one(self, data):
        self.free(data.draw(st.sampled_from(self.live)))

    def free(self, sequence: Sequence) -> None:
        self.live.remove(sequence)
        self.manager.free(sequence)

    @invariant()
    def blocks_are_conserved(self):
        self.manager.check_integrity(self.live)

    @invariant()
    def the_null_block_is_never_given_out(self):
        assert all(NULL_BLOCK not in sequence.block_ids for sequence in self.live)

    @invariant()
    def whoever_is_admitted_can_always_finish(self):
        promised = sum(sequence.num_reserved_blocks for sequence in self.live)
        assert promised <= self.manager.pool.num_free

    def teardown(self):
        for sequence in list(self.live):
            self.free(sequence)
        self.manager.check_integrity([])
        assert self.manager.pool.num_available == NUM_BLOCKS - 1


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_blocks_are_conserved_and_hits_are_true = PoolMachine.TestCase


def test_blocks_come_in_the_order_in_which_they_were_given_back():
    pool = BlockPool(10)
    pool.reserve(9)
    first, second = pool.take(4), pool.take(5)
    pool.release(first)
    pool.release(second)
    pool.reserve(9)

    assert pool.take(9) == list(range(1, 10))


@pytest.mark.parametrize("count", [-1, 10])
def test_no_more_is_reserved_than_is_free(count):
    with pytest.raises(ValueError, match=f"cannot reserve {count} blocks; 9 are available"):
        BlockPool(10).reserve(count)


def test_nothing_is_taken_without_a_reservation():
    with pytest.raises(ValueError, match="0 are reserved"):
        BlockPool(10).take(1)


def test_a_block_is_released_only_by_who_holds_it():
    with pytest.raises(ValueError, match="block 3 is released, but nobody holds it"):
        BlockPool(10).release([3])


@pytest.mark.parametrize("mistake", ["leak", "double free", "shared twice"])
def test_the_integrity_check_notices(mistake):
    pool = BlockPool(10)
    pool.reserve(3)
    blocks = pool.take(3)
    held = {"leak": [], "double free": [blocks[:2]], "shared twice": [blocks, blocks]}[mistake]

    with pytest.raises(AssertionError, match="holders differ"):
        pool.check_integrity(held)
