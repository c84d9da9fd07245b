"""What a step computes: order, budget, seats, packing, refusals. Without a model."""

from __future__ import annotations

import numpy as np
import pytest

from drillcore_server.engine import EngineConfig, Request, RequestRefused, RequestTooLarge
from drillcore_server.engine.kv_cache_manager import KVCacheManager
from drillcore_server.engine.scheduler import Scheduler


class Harness:
    """A scheduler whose steps are done as soon as they are scheduled; sampled tokens are 1."""

    def __init__(self, **limits):
        defaults = {"max_model_len": 100, "num_blocks": 100, "block_size": 4, "max_tokens": 8}
        self.config = EngineConfig(**(defaults | limits))
        self.has_room = True
        self.scheduler = Scheduler(self.config, KVCacheManager(self.config), lambda: self.has_room)

    def add(self, request_id, length, **fields):
        ids = np.random.default_rng(request_id).integers(0, 1000, length)
        self.scheduler.add(Request(request_id, ids, **fields))

    def step(self):
        """[(request id, first token, number of tokens)] in batch order."""
        output = self.scheduler.schedule()
        if output is None:
            return []
        for scheduled in output.requests:
            sequence = self.scheduler.update(scheduled, 1 if scheduled.samples else None)
            if sequence is not None:
                self.scheduler.release(sequence.request_id)
        return [(r.request.request_id, r.first_token, len(r.token_ids)) for r in output.requests]


def test_the_budget_is_filled_and_a_prompt_is_continued_where_it_was_cut():
    harness = Harness(max_num_batched_tokens=10)
    harness.add(0, 7)
    harness.add(1, 20)

    assert harness.step() == [(0, 0, 7), (1, 0, 3)]
    assert harness.step() == [(1, 3, 10)]
    assert harness.step() == [(1, 13, 7)]
    assert harness.step() == []


def test_a_batch_has_decodes_then_extends_then_prefills_without_context():
    harness = Harness(max_num_batched_tokens=20)
    harness.add(0, 30)
    harness.step()
    harness.add(1, 4, max_tokens=4)
    assert harness.step() == [(0, 20, 10), (1, 0, 4)]
    harness.add(2, 40)
    assert harness.step() == [(1, 4, 1), (2, 0, 19)]
    harness.add(3, 3)

    assert harness.step() == [(1, 5, 1), (2, 19, 19)]
    assert harness.step() == [(1, 6, 1), (2, 38, 2), (3, 0, 3)]


def test_running_requests_come_before_waiting_ones():
    harness = Harness(max_num_batched_tokens=8)
    harness.add(0, 20)
    harness.step()
    harness.add(1, 2)

    assert harness.step() == [(0, 8, 8)]
    assert harness.step() == [(0, 16, 4), (1, 0, 2)]


def test_no_more_requests_run_than_there_are_seats():
    harness = Harness(max_num_seqs=2)
    for request_id in range(5):
        harness.add(request_id, 3)

    assert [[row for row, _, _ in harness.step()] for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_a_request_that_finds_too_few_blocks_is_not_starved_by_small_ones():
    harness = Harness(num_blocks=11, max_num_batched_tokens=16)
    harness.add(0, 24, max_tokens=8)  # 8 of 10 blocks
    harness.step()
    harness.add(1, 12)
    harness.add(2, 4)

    assert harness.step() == [(0, 16, 8)]
    while (scheduled := harness.step()) and scheduled[0][0] == 0:
        pass
    assert scheduled == [(1, 0, 12), (2, 0, 4)]


def test_nothing_is_admitted_while_the_connector_has_no_room():
    harness = Harness(max_num_batched_tokens=4)
    harness.add(0, 8)
    harness.step()
    harness.add(1, 4)
    harness.has_room = False

    assert harness.step() == [(0, 4, 4)]
    assert harness.step() == []
    harness.has_room = True
    assert harness.step() == [(1, 0, 4)]


def test_without_a_kv_cache_only_whole_prompts_are_packed_and_gaps_are_filled_from_further_back():
    harness = Harness(max_model_len=16, max_num_batched_tokens=20, max_tokens=0, prefix_caching=False, max_num_seqs=100)
    for request_id, length in enumerate((12, 13, 14, 5, 16, 3, 4, 2)):
        harness.add(request_id, length)

    assert harness.step() == [(0, 0, 12), (3, 0, 5), (5, 0, 3)]
    assert harness.step() == [(1, 0, 13), (6, 0, 4), (7, 0, 2)]
    assert harness.step() == [(2, 0, 14)]
    assert harness.step() == [(4, 0, 16)]


def test_lognormal_documents_fill_whole_prompt_steps():
    harness = Harness(
        max_model_len=4096,
        num_blocks=20_000,
        max_num_batched_tokens=8192,
        max_tokens=0,
        prefix_caching=False,
    )
    lengths = np.random.default_rng(0).lognormal(np.log(900), 1.0, 512).clip(32, 4096).astype(int)
    for request_id, length in enumerate(lengths):
        harness.add(request_id, int(length))

    steps = []
    while step := harness.step():
        steps.append(sum(count for _, _, count in step))

    assert sum(steps) == lengths.sum()
    assert sum(steps) / (8192 * len(steps)) > 0.97


def test_the_look_ahead_is_bounded():
    harness = Harness(max_model_len=16, max_num_batched_tokens=20, max_tokens=0, prefix_caching=False, look_ahead=2)
    for request_id, length in enumerate((12, 13, 5)):
        harness.add(request_id, length)

    assert harness.step() == [(0, 0, 12)]


def test_a_group_waits_for_its_prefix_and_others_go_ahead():
    harness = Harness(max_num_batched_tokens=100)
    prefix = np.arange(8)
    for request_id in range(3):
        harness.scheduler.add(Request(request_id, np.append(prefix, [100 + request_id])))
    harness.add(3, 5)

    assert harness.step() == [(0, 0, 9), (3, 0, 5)]
    assert harness.step() == [(1, 8, 1), (2, 8, 1)]


def test_a_request_whose_token_is_being_sampled_is_not_scheduled():
    harness = Harness()
    harness.add(0, 3, max_tokens=2)
    output = harness.scheduler.schedule()

    assert harness.scheduler.schedule() is None
    harness.scheduler.update(output.requests[0], 5)
    assert harness.scheduler.schedule().requests[0].token_ids.tolist() == [5]


@pytest.mark.parametrize(
    ("length", "fields", "limits", "message"),
    [
        (101, {}, {}, r"at most max_model_len = 100; got 101 \(101 prompt tokens, max_tokens 0\)"),
        (99, {"max_tokens": 3}, {}, r"at most max_model_len = 100; got 101 \(99 prompt tokens, max_tokens 3\)"),
        (40, {}, {"num_blocks": 10}, "must fit into 9 blocks of 4 tokens; got 40 tokens, 10 blocks"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_with_the_numbers(length, fields, limits, message):
    harness = Harness(**limits)

    with pytest.raises(RequestTooLarge, match=message):
        harness.add(0, length, **fields)
    assert harness.scheduler.num_live == 0


@pytest.mark.parametrize(
    ("length", "fields", "message"),
    [
        (0, {}, "at least 1 token; got 0"),
        (5, {"max_tokens": 9}, "max_tokens must be 0 to 8; got 9"),
        (5, {"max_tokens": -1}, "max_tokens must be 0 to 8; got -1"),
    ],
)
def test_a_request_without_sense_is_refused(length, fields, message):
    with pytest.raises(RequestRefused, match=message):
        Harness().add(0, length, **fields)


def test_an_id_that_is_in_use_is_refused():
    harness = Harness()
    harness.add(3, 5)

    with pytest.raises(RequestRefused, match="request 3: its id must not be in use"):
        harness.add(3, 5)


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_a_prompt_of_exactly_max_model_len_is_served(max_tokens):
    harness = Harness()
    harness.add(0, 100, max_tokens=max_tokens)

    assert harness.step() == [(0, 0, 100)]
    assert harness.scheduler.num_live == 0


def test_a_running_request_gets_its_table_only_when_it_grew():
    harness = Harness(max_num_batched_tokens=2)
    harness.add(0, 7)

    tables = [harness.scheduler.schedule().requests[0].block_ids for _ in range(4)]

    assert tables == [(1,), None, (1, 2), None]
    assert harness.scheduler.counters.without_new_blocks == 2
