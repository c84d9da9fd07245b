"""States that cannot be right never reach a sample: the row is quarantined, its neighbours are not touched."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from drillcore_server.engine import Request, SampleQuarantined, extract
from drillcore_spec.enums import PositionsKind

BAD_TOKEN = 300


@pytest.fixture
def decoder_with(tiny_decoder):
    """`decoder_with(value)`: the embedding of id 300 is that value; nobody else uses that id."""

    def make(value: float):
        embedding = tiny_decoder.weights.embedding.clone()
        embedding[BAD_TOKEN] = value
        return dataclasses.replace(tiny_decoder, weights=dataclasses.replace(tiny_decoder.weights, embedding=embedding))

    return make


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("budget", [6, 1000])
def test_a_sample_with_a_state_that_is_not_finite_is_quarantined(
    make_engine, decoder_with, random_requests, assert_equal_states, budget, value
):
    requests = random_requests((12, 20, 9))
    ids = requests[1].prompt_token_ids.copy()
    ids[13] = BAD_TOKEN
    requests[1] = Request(1, ids, id="the bad one", file="data/a.jsonl", line=17)
    under_test = make_engine(decoder_with(value), max_num_batched_tokens=budget, block_size=4)

    under_test.engine.run(requests)

    samples = under_test.samples()
    assert sorted(samples) == [0, 2]
    for row in samples:
        assert_equal_states(samples[row], requests[row])
    (entry,) = under_test.sink.quarantined
    assert (entry.row, entry.file, entry.line, entry.id) == (1, "data/a.jsonl", 17, "the bad one")
    assert entry.reason.value == "NonFiniteState"
    assert "layer 0" in entry.message
    assert under_test.engine.counters.quarantined == 1
    assert not under_test.engine.has_unfinished


def test_who_hits_the_prefix_of_a_broken_sample_is_quarantined_too(make_engine, decoder_with, random_requests):
    (request,) = random_requests([20])
    ids = request.prompt_token_ids.copy()
    ids[2] = BAD_TOKEN
    under_test = make_engine(decoder_with(torch.nan), block_size=4)

    under_test.engine.run([Request(0, ids)])
    under_test.engine.run([Request(1, np.append(ids, [5, 6]))])

    assert under_test.engine.prefix_counters.hits > 0
    assert [entry.row for entry in under_test.sink.quarantined] == [0, 1]
    assert under_test.samples() == {}


@pytest.fixture
def with_stats(make_engine):
    """`with_stats(token, column, value)`: the statistics of that state are `value` after each forward pass."""

    def make(token: int, column: int, value: float):
        under_test = make_engine()
        runner, stats = under_test.engine.runner, under_test.engine.drafter.cache.stats
        forward = runner._forward

        def overwrite(inputs):
            normed = forward(inputs)
            stats.view(-1, *stats.shape[2:])[inputs.slot_mapping[token], column] = value
            return normed

        runner._forward = overwrite
        return under_test

    return make


def test_zeros_are_a_fault_in_every_layer_but_the_embedding(with_stats, random_requests):
    (request,) = random_requests([6])

    for column, kept in ((0, True), (1, False), (4, False)):
        under_test = with_stats(3, column, 0.0)
        under_test.engine.run([request])
        assert bool(under_test.samples()) == kept
        reasons = [entry.reason.value for entry in under_test.sink.quarantined]
        assert reasons == ([] if kept else ["ZeroState"])


def test_a_pad_token_may_have_an_embedding_of_zeros(make_engine, decoder_with, random_requests):
    (request,) = random_requests([6])
    ids = request.prompt_token_ids.copy()
    ids[1] = BAD_TOKEN
    under_test = make_engine(decoder_with(0.0))

    under_test.engine.run([Request(0, ids)])

    assert under_test.samples()[0].hidden_states[1, 0].abs().max() == 0


def test_only_states_that_are_kept_are_judged(with_stats, random_requests):
    (request,) = random_requests([4])
    for mask, kept in (([1, 1, 1, 0], True), ([0, 0, 0, 1], False)):
        under_test = with_stats(3, 2, torch.nan)
        mask = np.array(mask, dtype=np.uint8)
        masked = Request(0, request.prompt_token_ids, positions=PositionsKind.LOSS_MASK, loss_mask=mask)

        under_test.engine.run([masked])

        assert bool(under_test.samples()) == kept


def test_the_sums_of_norms_and_largest_values_are_those_of_the_states(make_engine, random_requests):
    requests = random_requests((50, 3))
    under_test = make_engine(max_num_batched_tokens=7, block_size=4, num_blocks=100)

    under_test.engine.run(requests)

    for sample in under_test.samples().values():
        states = sample.hidden_states.double()
        assert sample.end.norm_sums.dtype == np.float64
        assert np.allclose(sample.end.norm_sums, states.norm(dim=-1).sum(dim=0), rtol=1e-6)
        assert np.array_equal(sample.end.max_abs, states.abs().amax(dim=(0, 2)))


def test_the_offline_call_raises_for_a_broken_prompt(decoder_with, plan_of):
    decoder = decoder_with(torch.nan)

    with pytest.raises(SampleQuarantined, match="prompt 1: states must be finite; layer 0 is not"):
        extract(decoder, plan_of(decoder), [[1, 2], [3, BAD_TOKEN]])
