"""Completions: every form of prompt, files that are right, and tokens that are those of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM

IDS = [5, 9, 200, 31, 7]


@pytest.fixture(scope="module")
def generate(tiny_folder):
    """`generate(ids, n)`: n greedy ids by transformers, not stopped by any id."""
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32, attn_implementation="eager").eval()

    def run(ids: list[int], num_tokens: int) -> list[int]:
        prompt = torch.tensor([ids])
        options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        mask = torch.ones_like(prompt)
        return model.generate(prompt, attention_mask=mask, max_new_tokens=num_tokens, **options)[0, len(ids) :].tolist()

    return run


def test_token_ids_come_back_as_they_were_sent_with_their_states(served, assert_file):
    answer = served.post(prompt=IDS, max_tokens=1, return_token_ids=True).json()

    choice = answer["choices"][0]
    params = answer["kv_transfer_params"]
    assert choice["prompt_token_ids"] == IDS
    assert choice["kv_transfer_params"] == params
    assert params["layer_ids"] == [1, 3, 2]
    assert params["num_tokens"] == len(IDS)
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    assert_file(params["hidden_states_path"], IDS)


def test_a_text_gets_the_tokens_of_the_tokenizer(served, assert_file):
    answer = served.post(prompt="core", max_tokens=0, return_token_ids=True).json()

    ids = answer["choices"][0]["prompt_token_ids"]
    assert len(ids) == 4
    assert_file(answer["kv_transfer_params"]["hidden_states_path"], ids)


@pytest.mark.parametrize("prompts", [[[1, 2, 3], [4], [5, 6] * 20], ["clay", "chalk and sand"]])
def test_each_prompt_of_a_list_gets_its_own_file(served, assert_file, prompts):
    answer = served.post(prompt=prompts, max_tokens=2, return_token_ids=True).json()

    assert [choice["index"] for choice in answer["choices"]] == list(range(len(prompts)))
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        ids = choice["prompt_token_ids"]
        assert isinstance(prompt, str) or ids == prompt
        assert_file(choice["kv_transfer_params"]["hidden_states_path"], ids)
    assert answer["kv_transfer_params"] == answer["choices"][0]["kv_transfer_params"]


def test_no_token_is_generated_on_request(served):
    choice = served.post(prompt=IDS, max_tokens=0, return_token_ids=True).json()["choices"][0]

    assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == ("", [], "length")


def test_greedy_tokens_are_those_of_transformers(served, generate):
    answer = served.post(prompt=IDS, max_tokens=12, temperature=0, ignore_eos=True, return_token_ids=True).json()

    assert answer["choices"][0]["token_ids"] == generate(IDS, 12)


def test_token_ids_are_told_only_on_request(served):
    choice = served.post(prompt=IDS, max_tokens=1).json()["choices"][0]

    assert "prompt_token_ids" not in choice
    assert "token_ids" not in choice


def test_states_of_generated_tokens_are_kept_on_request_but_for_the_last(served, assert_file):
    answer = served.post(
        prompt=IDS,
        max_tokens=6,
        temperature=0,
        ignore_eos=True,
        return_token_ids=True,
        kv_transfer_params={"include_output_tokens": True},
    ).json()

    choice = answer["choices"][0]
    path = answer["kv_transfer_params"]["hidden_states_path"]
    assert_file(path, IDS + choice["token_ids"][:-1])
    with safe_open(path, "numpy") as file:
        assert file.metadata()["lastToken"] == str(choice["token_ids"][-1])


@pytest.mark.parametrize("max_tokens", [0, 1, 4])
@pytest.mark.parametrize(("start", "end"), [(2, None), (0, 3), (1, 4), (4, 5)])
def test_a_window_of_positions_is_kept_on_request(served, assert_file, start, end, max_tokens):
    window = {"hidden_states_start": start, "hidden_states_end": end}
    answer = served.post(prompt=IDS, max_tokens=max_tokens, kv_transfer_params=window).json()

    params = answer["kv_transfer_params"]
    assert params["hidden_states_start"] == start
    assert params["num_tokens"] == (end or len(IDS)) - start
    assert_file(params["hidden_states_path"], IDS, start, end)


def test_a_window_may_reach_into_the_generated_tokens(served, assert_file):
    window = {"hidden_states_start": 3, "include_output_tokens": True}
    options = {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    answer = served.post(prompt=IDS, kv_transfer_params=window, **options).json()

    generated = answer["choices"][0]["token_ids"]
    assert_file(answer["kv_transfer_params"]["hidden_states_path"], IDS + generated[:-1], 3)


def test_equal_requests_with_a_seed_draw_the_same(served):
    def drawn(**fields) -> list[int]:
        answer = served.post(prompt=IDS, max_tokens=12, ignore_eos=True, return_token_ids=True, **fields).json()
        return answer["choices"][0]["token_ids"]

    assert drawn(seed=7) == drawn(seed=7)
    assert drawn(seed=7) != drawn(seed=8)
    assert drawn() != drawn()
    assert drawn(seed=-3, top_p=0.001) == drawn(temperature=0)


def test_a_stop_string_ends_the_generation_and_is_no_part_of_the_text(served):
    options = {"prompt": "core", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    text = served.post(**options).json()["choices"][0]["text"]
    stop = text[5:8]
    at = text.index(stop)

    stopped = served.post(**options, stop=["never seen", stop]).json()["choices"][0]
    included = served.post(**options, stop=stop, include_stop_str_in_output=True).json()["choices"][0]

    assert (stopped["text"], stopped["finish_reason"], stopped["stop_reason"]) == (text[:at], "stop", stop)
    assert included["text"] == text[: at + len(stop)]


def test_a_stop_id_ends_the_generation(served, generate):
    expected = generate(IDS, 12)
    stop = expected[3]
    options = {"max_tokens": 12, "temperature": 0, "return_token_ids": True}

    choice = served.post(prompt=IDS, stop_token_ids=[stop], **options).json()["choices"][0]

    assert choice["token_ids"] == expected[: expected.index(stop) + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(("side", "kept"), [("right", IDS[:3]), ("left", IDS[2:]), (None, IDS[2:])])
def test_a_prompt_is_cut_on_request(served, side, kept):
    answer = served.post(
        prompt=IDS, max_tokens=0, truncate_prompt_tokens=3, truncation_side=side, return_token_ids=True
    ).json()

    assert answer["choices"][0]["prompt_token_ids"] == kept


def test_a_prompt_of_exactly_the_models_length_is_served_and_a_longer_one_refused_alone(served, assert_file):
    ids = np.random.default_rng(0).integers(0, 256, 512).tolist()
    whole = served.post(prompt=ids, max_tokens=1)
    longer = served.post(prompt=[*ids, 1], max_tokens=1)

    assert_file(whole.json()["kv_transfer_params"]["hidden_states_path"], ids)
    assert longer.status_code == 400
    assert longer.json()["error"]["code"] == "context_length_exceeded"
    assert longer.json()["error"]["param"] == "prompt"


def test_equal_prompts_that_share_blocks_have_equal_files(served, assert_file):
    ids = np.random.default_rng(1).integers(0, 256, 200).tolist()
    for _ in range(3):
        answer = served.post(prompt=ids, max_tokens=1).json()
        assert_file(answer["kv_transfer_params"]["hidden_states_path"], ids)
    assert served.engine.engine.prefix_counters.hits > 0
