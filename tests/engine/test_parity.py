"""States equal those of each prompt alone, however the engine cuts, packs, reuses and orders the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from drillcore_server.engine import EngineConfig, Request, RequestRefused
from drillcore_spec.enums import PositionsKind

BLOCK = EngineConfig.block_size
MAX_MODEL_LEN = 192
LENGTHS = (1, BLOCK - 1, BLOCK, BLOCK + 1, 2, 100, 128, MAX_MODEL_LEN - 1, MAX_MODEL_LEN, 3, 5, 17)


@pytest.fixture
def shared_prefix_requests() -> list[Request]:
    """20 prompts that share a prefix of 3 blocks of 8, and two that are equal."""
    rng = np.random.default_rng(1)
    prefix = rng.integers(0, 256, 24)
    prompts = [np.concatenate((prefix, rng.integers(0, 256, 1 + i))) for i in range(19)]
    return [Request(row, prompt) for row, prompt in enumerate([*prompts, prompts[7]])]


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [1, 7, 64, 10_000])
def test_states_do_not_depend_on_the_token_budget(
    make_engine, random_requests, assert_equal_states, budget, prefix_caching
):
    lengths = LENGTHS if budget > 1 else (1, 2, BLOCK - 1, BLOCK, BLOCK + 1)
    requests = random_requests(lengths)
    under_test = make_engine(max_num_batched_tokens=budget, prefix_caching=prefix_caching)

    under_test.engine.run(requests)

    samples = under_test.samples()
    assert len(samples) == len(requests)
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_other_families_are_captured_alike(make_engine, load_tiny, random_requests, assert_equal_states, model_type):
    requests = random_requests((5, 70, 1, 33))
    under_test = make_engine(load_tiny(model_type), max_num_batched_tokens=40, block_size=16)

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request, model_type)


@pytest.mark.parametrize("neighbours", [MAX_MODEL_LEN - 1, MAX_MODEL_LEN, 1, 50])
def test_a_prompt_of_max_model_len_and_its_neighbours_are_captured_whole(
    make_engine, random_requests, assert_equal_states, neighbours
):
    requests = random_requests((neighbours, MAX_MODEL_LEN, neighbours))
    under_test = make_engine(max_num_batched_tokens=1000)

    under_test.engine.run(requests)

    assert under_test.engine.scheduler_counters.steps == 1
    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


def test_a_prompt_longer_than_max_model_len_is_refused_alone(make_engine, random_requests, assert_equal_states):
    requests = random_requests((20, MAX_MODEL_LEN + 1, 30))
    under_test = make_engine()

    with pytest.raises(RequestRefused, match=r"at most max_model_len = 192; got 193"):
        under_test.engine.add_request(requests[1])
    under_test.engine.run(requests)

    samples = under_test.samples()
    assert sorted(samples) == [0, 2]
    for row in samples:
        assert_equal_states(samples[row], requests[row])
    (entry,) = under_test.sink.quarantined
    assert (entry.row, entry.reason.value) == (1, "TooLong")
    assert "got 193" in entry.message


def test_a_pool_just_large_enough_serves_one_request_after_another(make_engine, random_requests, assert_equal_states):
    requests = random_requests((MAX_MODEL_LEN, 1, MAX_MODEL_LEN, 100, 64, MAX_MODEL_LEN))
    under_test = make_engine(num_blocks=1 + MAX_MODEL_LEN // BLOCK, max_num_batched_tokens=50)

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


@pytest.mark.parametrize("seed", range(3))
def test_order_and_composition_of_the_batch_change_nothing(make_engine, random_requests, assert_equal_states, seed):
    rng = np.random.default_rng(seed)
    requests = [request for request in random_requests(LENGTHS) for _ in range(2)]
    rng.shuffle(requests)
    requests = [Request(row, request.prompt_token_ids) for row, request in enumerate(requests)]
    under_test = make_engine(
        max_num_batched_tokens=int(rng.integers(20, 400)),
        max_num_seqs=int(rng.integers(1, 9)),
        num_blocks=int(rng.integers(40, 200)),
        block_size=16,
    )

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


@pytest.mark.parametrize("num_blocks", [8, 16, 200], ids=["evicting", "tight", "roomy"])
@pytest.mark.parametrize("budget", [7, 64, 10_000])
def test_a_prefix_hit_gives_the_same_sample_as_a_miss(
    make_engine, shared_prefix_requests, assert_equal_states, budget, num_blocks
):
    requests = shared_prefix_requests
    under_test = make_engine(block_size=8, num_blocks=num_blocks, max_num_batched_tokens=budget)

    for first_row in (0, 100):  # cold, then warm
        rows = [Request(first_row + r.request_id, r.prompt_token_ids) for r in requests]
        under_test.engine.run(rows)
        samples = under_test.samples()
        for request in rows:
            assert_equal_states(samples[request.request_id], request)

    counters = under_test.engine.prefix_counters
    assert counters.hits > 0
    assert counters.queries - counters.hits == under_test.engine.scheduler_counters.computed_tokens


def test_a_group_computes_its_prefix_once(make_engine, shared_prefix_requests):
    under_test = make_engine(block_size=8, num_blocks=200, max_num_batched_tokens=10_000)

    under_test.engine.run(shared_prefix_requests)

    counters = under_test.engine.prefix_counters
    own_tokens = sum(r.num_prompt_tokens - 24 for r in shared_prefix_requests)
    saved_of_the_twin = 8 * ((shared_prefix_requests[7].num_prompt_tokens - 1 - 24) // 8)
    assert counters.waits == len(shared_prefix_requests) - 1
    assert under_test.engine.scheduler_counters.computed_tokens == 24 + own_tokens - saved_of_the_twin


def test_at_least_one_token_is_computed_of_a_prompt_that_is_cached_whole(make_engine, random_requests):
    (request,) = random_requests([16])
    under_test = make_engine(block_size=8)

    under_test.engine.run([request])
    under_test.engine.run([Request(1, request.prompt_token_ids)])

    assert under_test.engine.prefix_counters.hits == 8
    assert under_test.engine.scheduler_counters.computed_tokens == 24


@pytest.mark.parametrize("ids", [[2], [0], [3, 1], [1, 2, 0]])
def test_blocks_above_the_highest_layer_are_neither_loaded_nor_run(
    make_engine, load_tiny, plan_of, random_requests, reference, row_criterion, ids
):
    decoder = load_tiny(num_layers=max(ids))
    requests = random_requests((70, 3, 20))
    under_test = make_engine(decoder, plan_of(decoder, ids, final_norm=False), max_num_batched_tokens=33)

    under_test.engine.run(requests)

    assert len(decoder.weights.blocks) == max(ids)
    samples = under_test.samples()
    for request in requests:
        expected = reference(request.prompt_token_ids)[:, ids]
        row_criterion(samples[request.request_id].hidden_states, expected)


@pytest.mark.parametrize("budget", [7, 10_000])
def test_only_the_last_state_is_kept_on_request(make_engine, random_requests, assert_equal_states, budget):
    requests = random_requests(LENGTHS, positions=PositionsKind.LAST)
    under_test = make_engine(max_num_batched_tokens=budget, block_size=16, num_blocks=200)

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        sample = samples[request.request_id]
        assert sample.end.positions.tolist() == [request.num_prompt_tokens - 1]
        assert_equal_states(sample, request)


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [7, 10_000])
def test_only_masked_states_are_kept_on_request(
    make_engine, random_requests, assert_equal_states, budget, prefix_caching
):
    rng = np.random.default_rng(3)
    requests = [
        Request(
            r.request_id,
            r.prompt_token_ids,
            positions=PositionsKind.LOSS_MASK,
            loss_mask=np.append(rng.integers(0, 2, r.num_prompt_tokens - 1), 1).astype(np.uint8),
        )
        for r in random_requests((1, 20, 150, 64, 9))
        for _ in range(2)
    ]
    requests = [replace(r, request_id=row) for row, r in enumerate(requests)]
    under_test = make_engine(
        max_num_batched_tokens=budget, block_size=16, num_blocks=200, prefix_caching=prefix_caching
    )

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        sample = samples[request.request_id]
        assert sample.end.positions.tolist() == np.flatnonzero(request.loss_mask).tolist()
        assert_equal_states(sample, request)


def test_no_kv_cache_is_made_when_every_prompt_fits_a_step_and_no_prefix_is_reused(
    make_engine, random_requests, assert_equal_states
):
    requests = random_requests(LENGTHS)
    under_test = make_engine(prefix_caching=False, max_num_batched_tokens=MAX_MODEL_LEN + 10)

    under_test.engine.run(requests)

    assert under_test.engine.runner.kv_cache is None
    assert under_test.engine.scheduler_counters.chunks == 0
    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


def test_states_are_stored_in_another_dtype_than_they_are_computed_in(
    tiny_decoder, plan_of, random_requests, reference, row_criterion
):
    from drillcore_server.connector.list_sink import ListSink
    from drillcore_server.engine import Engine, state_shape

    plan, config = plan_of(tiny_decoder), EngineConfig(max_model_len=64, num_blocks=9, block_size=16)
    sink = ListSink(state_shape(tiny_decoder, plan, torch.bfloat16))
    requests = random_requests((30, 50))

    Engine(tiny_decoder, plan, config, sink, store_dtype=torch.bfloat16).run(requests)

    for request in requests:
        sample = sink.by_row()[request.request_id]
        assert sample.hidden_states.dtype is torch.bfloat16
        row_criterion(sample.hidden_states, reference(request.prompt_token_ids), 5e-3)
        norms = sample.hidden_states.double().norm(dim=-1).sum(dim=0)
        assert np.allclose(sample.end.norm_sums, norms, rtol=1e-5)
        assert np.array_equal(sample.end.max_abs, sample.hidden_states.abs().amax(dim=(0, 2)).double())
