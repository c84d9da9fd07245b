"""Limits and what follows from them."""

from __future__ import annotations

import pytest
import torch

from drillcore_server.engine import CapturePlan, EngineConfig, hidden_block_bytes, kv_block_bytes


@pytest.mark.parametrize(
    "limit",
    ["max_model_len", "num_blocks", "max_num_batched_tokens", "max_num_seqs", "block_size", "look_ahead"],
)
def test_a_limit_that_serves_nobody_is_refused(limit):
    with pytest.raises(ValueError, match=f"{limit} must be at least [12]; got 0"):
        EngineConfig(**{"max_model_len": 64, "num_blocks": 10, limit: 0})


@pytest.mark.parametrize(
    ("limits", "needed"),
    [
        ({}, False),
        ({"max_tokens": 1}, False),
        ({"max_tokens": 2}, True),
        ({"prefix_caching": True}, True),
        ({"max_num_batched_tokens": 63}, True),
    ],
)
def test_keys_and_values_are_kept_only_for_later_steps(limits, needed):
    config = {"max_model_len": 64, "num_blocks": 10, "prefix_caching": False, "max_num_batched_tokens": 64}

    assert EngineConfig(**(config | limits)).needs_kv_cache is needed


@pytest.mark.parametrize("layers", [(1,), (0, 1, 2, 3), tuple(range(33))])
def test_a_block_of_the_hidden_cache_has_the_size_that_is_reported(layers):
    plan = CapturePlan(layers, False, 32, 4096)

    assert hidden_block_bytes(plan, 64, torch.bfloat16) == 64 * len(layers) * (4096 * 2 + 8)


def test_the_reported_sizes_are_those_of_the_tensors(make_engine):
    under_test = make_engine(num_blocks=7)
    engine, cache = under_test.engine, under_test.engine.drafter.cache
    spec = engine.runner._decoder.spec

    assert cache.states.nbytes + cache.stats.nbytes == 7 * hidden_block_bytes(engine.drafter.plan, 64, torch.float32)
    kv_bytes = sum(tensor.nbytes for pair in engine.runner.kv_cache for tensor in pair)
    assert kv_bytes == 7 * kv_block_bytes(spec, spec.num_layers, 64, torch.float32)
