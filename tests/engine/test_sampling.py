"""Draws follow the distribution, and depend on seed and row only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.engine import Request, Sampling
from drillcore_server.engine.random_stream import gumbel_noise, row_keys, token_keys
from drillcore_server.engine.sampler import keep_top_p

MAX_TOKENS = 10
LENGTHS = (3, 40, 12, 7, 25, 9)
ALL_ROWS = range(len(LENGTHS))


def requests_with(sampling: Sampling, rows=ALL_ROWS, **fields) -> list[Request]:
    prompts = [np.random.default_rng(row).integers(0, 256, length) for row, length in enumerate(LENGTHS)]
    return [Request(row, prompts[row], max_tokens=MAX_TOKENS, sampling=sampling, **fields) for row in rows]


def key_of(seed: int, row: int) -> np.ndarray:
    return row_keys(np.array([seed], np.uint64), np.array([row], np.uint64))


def generated(make_engine, requests, **limits) -> dict[int, list[int]]:
    under_test = make_engine(max_tokens=MAX_TOKENS, **({"block_size": 8, "num_blocks": 60} | limits))
    under_test.engine.run(requests)
    return {
        row: [*sample.end.token_ids[sample.end.num_prompt_tokens :].tolist(), sample.end.last_token]
        for row, sample in under_test.samples().items()
    }


@pytest.fixture(scope="module")
def sampling() -> Sampling:
    return Sampling(temperature=1.0, top_p=0.9, seed=5)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_num_seqs": 1},
        {"max_num_batched_tokens": 7},
        {"max_num_batched_tokens": 33, "prefix_caching": False},
        {"num_blocks": 12},
    ],
)
def test_tokens_do_not_depend_on_batch_and_chunks(make_engine, sampling, limits):
    expected = generated(make_engine, requests_with(sampling))

    assert generated(make_engine, requests_with(sampling), **limits) == expected


def test_tokens_do_not_depend_on_order_and_on_which_rows_are_left(make_engine, sampling):
    expected = generated(make_engine, requests_with(sampling))

    assert generated(make_engine, requests_with(sampling, rows=(5, 3, 4, 0, 2, 1))) == expected
    assert generated(make_engine, requests_with(sampling, rows=(4, 1))) == {row: expected[row] for row in (4, 1)}


def test_tokens_depend_on_seed_and_row(make_engine):
    prompt = np.arange(8)
    runs = {
        (seed, row): generated(
            make_engine, [Request(row, prompt, max_tokens=MAX_TOKENS, sampling=Sampling(1.0, seed=seed))]
        )[row]
        for seed in (0, 1)
        for row in (0, 1, 2)
    }

    assert len({tuple(tokens) for tokens in runs.values()}) == len(runs)


def test_with_a_stream_of_its_own_a_request_draws_the_same_whatever_its_id_is(make_engine):
    prompt = np.arange(12)
    sampling = Sampling(temperature=1.0, seed=5, stream=0)
    requests = [Request(row, prompt, max_tokens=MAX_TOKENS, sampling=sampling) for row in (3, 17)]

    drawn = generated(make_engine, requests)

    assert drawn[3] == drawn[17]


def test_states_of_sampled_tokens_are_those_of_a_second_prefill(make_engine, sampling, assert_equal_states):
    requests = requests_with(sampling)
    under_test = make_engine(max_tokens=MAX_TOKENS, max_num_batched_tokens=20, block_size=8, num_blocks=60)

    under_test.engine.run(requests)

    samples = under_test.samples()
    for request in requests:
        assert_equal_states(samples[request.request_id], request)


def test_almost_no_temperature_and_no_top_p_are_greedy(make_engine):
    greedy = generated(make_engine, requests_with(Sampling()))

    assert generated(make_engine, requests_with(Sampling(temperature=1e-6))) == greedy
    assert generated(make_engine, requests_with(Sampling(temperature=1.0, top_p=0.0))) == greedy


def test_greedy_and_sampling_requests_share_a_batch(make_engine, sampling):
    greedy, sampled = generated(make_engine, requests_with(Sampling())), generated(make_engine, requests_with(sampling))
    mixed = requests_with(Sampling(), rows=(0, 2, 4)) + requests_with(sampling, rows=(1, 3, 5))

    got = generated(make_engine, mixed)

    assert got == {row: (sampled if row % 2 else greedy)[row] for row in range(6)}
    assert greedy != sampled


def test_draws_follow_the_distribution():
    probabilities = torch.tensor([0.5, 0.25, 0.125, 0.1, 0.025])
    count = 20_000
    keys = token_keys(np.repeat(key_of(3, 7), count), np.arange(count))

    drawn = (probabilities.log() + gumbel_noise(torch.from_numpy(keys), 5)).argmax(dim=-1)

    found = torch.bincount(drawn, minlength=5) / count
    assert torch.allclose(found, probabilities, atol=4 * (0.25 / count) ** 0.5)


def test_noise_is_finite_and_does_not_repeat():
    keys = token_keys(row_keys(np.zeros(20, np.uint64), np.arange(20, dtype=np.uint64)), np.zeros(20, np.int64))

    noise = gumbel_noise(torch.from_numpy(keys), 5000)

    assert noise.isfinite().all()
    assert abs(noise.mean().item() - 0.5772) < 0.02
    assert abs(torch.corrcoef(noise).fill_diagonal_(0).abs().max().item()) < 0.08
    assert noise.unique().numel() > 0.98 * noise.numel()


def test_keys_never_change():
    """Another hash would sample other tokens when a job is resumed by a later version."""
    assert int(key_of(0, 0)[0]) == 12035550249420947055
    assert gumbel_noise(torch.tensor([[1, 2]], dtype=torch.int32), 3).tolist()[0] == pytest.approx(
        [-0.5340987, 1.3728817, -0.8891584]
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=12), st.floats(0, 1))
def test_top_p_keeps_the_fewest_tokens_that_reach_it(logits, top_p):
    scores = torch.tensor([logits], dtype=torch.float32)
    probabilities = scores.double().softmax(dim=-1)[0].numpy()

    keep_top_p(scores, torch.tensor([top_p], dtype=torch.float32))

    kept = scores[0].isfinite().numpy()
    assert kept[probabilities.argmax()]
    assert probabilities[kept].sum() >= top_p - 1e-5
    least = probabilities[kept].min()
    assert probabilities[probabilities > least + 1e-6].sum() <= top_p + 1e-5
    assert not (probabilities[~kept] > least + 1e-6).any()


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"temperature": np.nan}, {"top_p": 1.5}, {"seed": -1}])
def test_a_value_out_of_range_is_an_error(wrong):
    with pytest.raises(ValueError, match="temperature must be 0 or more, top_p 0 to 1"):
        Sampling(**wrong)
