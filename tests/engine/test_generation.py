"""Greedy generation equals transformers' generate, and every token that was an input has its state."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from drillcore_server.engine import Request
from drillcore_spec.enums import PositionsKind


@pytest.fixture(scope="module")
def generate(tiny_model_folder):
    """`generate(prompt, n)`: n greedy ids by transformers, not stopped by any id."""
    model = AutoModelForCausalLM.from_pretrained(
        tiny_model_folder("llama"), dtype=torch.float32, attn_implementation="eager"
    ).eval()

    def run(prompt, num_tokens: int) -> list[int]:
        ids = torch.from_numpy(prompt)[None]
        mask = torch.ones_like(ids)
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return out[0, len(prompt) :].tolist()

    return run


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [1, 7, 64, 10_000])
def test_generated_ids_and_states_equal_those_of_transformers(
    make_engine, random_requests, generate, assert_equal_states, budget, prefix_caching
):
    requests = random_requests((1, 3, 8, 20, 7), max_tokens=12)
    under_test = make_engine(
        max_tokens=12,
        max_num_batched_tokens=budget,
        block_size=8,
        num_blocks=40,
        prefix_caching=prefix_caching,
    )

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        sample, expected = samples[request.request_id], generate(request.prompt_token_ids, 12)
        end = sample.end
        assert [*end.token_ids[request.num_prompt_tokens :].tolist(), end.last_token] == expected
        assert end.num_prompt_tokens == request.num_prompt_tokens
        assert_equal_states(sample, request)


def test_with_one_token_to_generate_the_sample_is_the_prompt_and_the_token(
    make_engine, random_requests, generate, assert_equal_states
):
    (request,) = random_requests([30], max_tokens=1)
    under_test = make_engine(max_tokens=1)

    under_test.engine.run([request])

    sample = under_test.samples()[0]
    assert sample.end.token_ids.tolist() == request.prompt_token_ids.tolist()
    assert [sample.end.last_token] == generate(request.prompt_token_ids, 1)
    assert_equal_states(sample, request)


def test_generation_ends_at_a_stop_id(make_engine, random_requests, generate, assert_equal_states):
    (request,) = random_requests([9])
    expected = generate(request.prompt_token_ids, 8)
    stop = expected[4]
    count = expected.index(stop) + 1
    stopping = Request(0, request.prompt_token_ids, max_tokens=8, stop_token_ids=frozenset({stop}))
    under_test = make_engine(max_tokens=8, num_blocks=6, block_size=8)

    under_test.engine.run([stopping])

    sample = under_test.samples()[0]
    assert sample.end.last_token == stop
    assert len(sample.end.token_ids) == 9 + count - 1
    assert_equal_states(sample, stopping)


@pytest.mark.parametrize("kind", [PositionsKind.LAST, PositionsKind.LOSS_MASK])
def test_positions_cover_generated_tokens(make_engine, random_requests, assert_equal_states, kind):
    (prompt,) = random_requests([6])
    mask = torch.tensor([0, 1, 0, 0, 1, 1], dtype=torch.uint8).numpy()
    request = Request(0, prompt.prompt_token_ids, positions=kind, loss_mask=mask, max_tokens=5)
    under_test = make_engine(max_tokens=5, max_num_batched_tokens=4)

    under_test.engine.run([request])

    end = under_test.samples()[0].end
    assert end.positions.tolist() == ([9] if kind is PositionsKind.LAST else [1, 4, 5, 6, 7, 8, 9])
    assert end.loss_mask.tolist() == [0, 1, 0, 0, 1, 1, 1, 1, 1, 1]
    assert_equal_states(under_test.samples()[0], request)


def test_requests_with_and_without_generation_share_a_batch(
    make_engine, random_requests, generate, assert_equal_states
):
    plain, generating = random_requests((20, 20)), random_requests((15, 4), seed=1, max_tokens=6)
    requests = [
        Request(row, r.prompt_token_ids, max_tokens=r.max_tokens) for row, r in enumerate([*plain, *generating])
    ]
    under_test = make_engine(max_tokens=6, max_num_batched_tokens=25)

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)
        assert (samples[request.request_id].end.last_token is None) == (request.max_tokens == 0)


@pytest.mark.parametrize("budget", [7, 64])
def test_layers_above_the_last_captured_one_have_the_keys_and_values_of_every_token_that_generation_reads(
    make_engine, plan_of, tiny_decoder, random_requests, generate, budget
):
    plan = plan_of(tiny_decoder, [1], final_norm=False)
    (extracted,) = random_requests([40])
    asked = Request(1, extracted.prompt_token_ids, max_tokens=6)
    under_test = make_engine(plan=plan, max_tokens=6, max_num_batched_tokens=budget, block_size=8)

    under_test.engine.run([extracted])
    under_test.engine.run([asked])

    end = under_test.samples()[1].end
    assert [*end.token_ids[40:].tolist(), end.last_token] == generate(asked.prompt_token_ids, 6)


def test_whoever_takes_the_tokens_can_end_the_generation(make_engine, random_requests, generate, assert_equal_states):
    (request,) = random_requests([9])
    taken: list[int] = []

    def take(token_id: int) -> bool:
        taken.append(token_id)
        return len(taken) == 3

    under_test = make_engine(max_tokens=8)
    asked = Request(0, request.prompt_token_ids, max_tokens=8, on_token=take)

    under_test.engine.run([asked])

    end = under_test.samples()[0].end
    assert taken == generate(request.prompt_token_ids, 8)[:3]
    assert [*end.token_ids[9:].tolist(), end.last_token] == taken
    assert_equal_states(under_test.samples()[0], asked)
