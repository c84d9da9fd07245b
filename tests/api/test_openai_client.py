"""The `openai` package against the server."""

from __future__ import annotations

import openai
import pytest

IDS = [5, 9, 200, 31, 7]
MESSAGES = [{"role": "user", "content": "How deep?"}]


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="EMPTY", max_retries=0) as client:
        yield client


def streamed_text(events) -> str:
    return "".join(choice.text for event in events for choice in event.choices)


def test_the_one_model_is_listed(client):
    assert [model.id for model in client.models.list().data] == ["tiny"]


def test_a_completion(client, assert_file):
    answer = client.completions.create(
        model="tiny", prompt=IDS, max_tokens=1, extra_body={"return_token_ids": True}, timeout=60
    )

    assert answer.object == "text_completion"
    assert answer.choices[0].prompt_token_ids == IDS
    assert answer.usage.total_tokens == 6
    assert_file(answer.kv_transfer_params["hidden_states_path"], IDS)


def test_a_list_of_prompts(client):
    answer = client.completions.create(model="tiny", prompt=["clay", "chalk"], max_tokens=3)

    assert [choice.index for choice in answer.choices] == [0, 1]


def test_a_streamed_completion_has_the_text_of_the_whole_one(client, assert_file):
    options = {"model": "tiny", "prompt": "core", "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**options)
    events = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))

    assert streamed_text(events) == whole.choices[0].text
    assert events[-1].usage == whole.usage
    last = events[-2].choices[0]
    assert last.finish_reason == whole.choices[0].finish_reason
    ids = [97 + ord(letter) - ord("a") for letter in "core"]
    assert last.kv_transfer_params["num_tokens"] == len(ids)


def test_streamed_token_ids_are_those_of_the_whole_completion(client):
    options = {"model": "tiny", "prompt": IDS, "max_tokens": 9, "seed": 3}
    options["extra_body"] = {"return_token_ids": True, "ignore_eos": True}
    whole = client.completions.create(**options).choices[0]
    choices = [event.choices[0] for event in client.completions.create(**options, stream=True)]

    assert choices[0].prompt_token_ids == IDS
    assert [token_id for choice in choices for token_id in (choice.token_ids or [])] == whole.token_ids


def test_a_stream_of_several_prompts_tells_which_each_part_belongs_to(client, assert_file):
    prompts = [[1, 2, 3], [4, 5], [6]]
    texts, paths = {}, {}
    for event in client.completions.create(model="tiny", prompt=prompts, max_tokens=5, stream=True):
        (choice,) = event.choices
        texts[choice.index] = texts.get(choice.index, "") + choice.text
        if choice.finish_reason:
            paths[choice.index] = choice.kv_transfer_params["hidden_states_path"]

    assert set(texts) == set(paths) == {0, 1, 2}
    for index, prompt in enumerate(prompts):
        assert_file(paths[index], prompt)


def test_a_stop_string_that_comes_in_parts_is_never_streamed(client):
    options = {"model": "tiny", "prompt": "core", "max_tokens": 40, "temperature": 0}
    options["extra_body"] = {"ignore_eos": True}
    text = client.completions.create(**options).choices[0].text
    stop = text[10:14]

    streamed = streamed_text(client.completions.create(**options, stop=[stop], stream=True))

    assert streamed == text[: text.index(stop)]


def test_a_stream_without_generation_is_one_part_with_the_path(client, assert_file):
    events = list(client.completions.create(model="tiny", prompt=IDS, max_tokens=0, stream=True))

    assert events[-1].choices[0].finish_reason == "length"
    assert_file(events[-1].choices[0].kv_transfer_params["hidden_states_path"], IDS)


def test_a_chat(client, served, assert_file):
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=4, extra_body={"return_token_ids": True}
    )

    rendered = served.post("/v1/chat/completions/render", messages=MESSAGES).json()["token_ids"]
    assert answer.prompt_token_ids == answer.choices[0].prompt_token_ids == rendered
    assert answer.choices[0].message.role == "assistant"
    assert_file(answer.kv_transfer_params["hidden_states_path"], rendered)


def test_a_streamed_chat_has_the_text_of_the_whole_one(client):
    options = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**options).choices[0].message.content
    events = list(client.chat.completions.create(**options, stream=True))

    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(event.choices[0].delta.content or "" for event in events) == whole
    assert events[-1].choices[0].kv_transfer_params["num_tokens"] > 0


def test_a_turn_that_is_not_closed_is_continued(client, served):
    messages = [*MESSAGES, {"role": "assistant", "content": "Down to"}]
    closed = served.post("/v1/chat/completions/render", messages=messages, add_generation_prompt=False)
    extra = {"add_generation_prompt": False, "continue_final_message": True, "return_token_ids": True}
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=1, extra_body=extra)

    ids = closed.json()["token_ids"]
    assert ids[: len(answer.prompt_token_ids)] == answer.prompt_token_ids
    assert len(answer.prompt_token_ids) < len(ids)


def test_without_a_limit_a_chat_may_fill_the_models_length(client):
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=0)

    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.total_tokens <= 513


def test_a_rendered_conversation_is_cut_on_the_right_on_request(served):
    options = {"messages": MESSAGES, "add_generation_prompt": True}
    whole = served.post("/v1/chat/completions/render", **options).json()["token_ids"]
    cut = served.post("/v1/chat/completions/render", **options, truncate_prompt_tokens=6, truncation_side="right")

    assert cut.json()["token_ids"] == whole[:6]


def test_log_probabilities_are_refused_by_name(client):
    with pytest.raises(openai.BadRequestError, match="not offered") as refusal:
        client.completions.create(model="tiny", prompt=IDS, logprobs=2)
    assert refusal.value.param == "logprobs"
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True)
    assert refusal.value.param == "logprobs"


def test_another_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as refusal:
        client.completions.create(model="other", prompt=IDS)
    assert (refusal.value.param, refusal.value.code) == ("model", "model_not_found")
