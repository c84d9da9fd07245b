"""Whatever is wrong with a request, the answer is an OpenAI error object that names the field."""

from __future__ import annotations

import httpx
import pytest

TIMEOUT_S = 60
IDS = [5, 9, 200]


def error_of(answer: httpx.Response, status: int = 400) -> dict:
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def post_raw(served, body: bytes, **headers: str) -> httpx.Response:
    headers = {"Content-Type": "application/json"} | headers
    return httpx.post(served.url + "/v1/completions", content=body, headers=headers, timeout=TIMEOUT_S, trust_env=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", 7),
        ("prompt", []),
        ("prompt", [[]]),
        ("prompt", ""),
        ("prompt", [1, "a"]),
        ("prompt", ["a", [1]]),
        ("prompt", [1, True]),
        ("prompt", [1.5]),
        ("prompt", [-1]),
        ("prompt", [320]),
        ("prompt", [2**70]),
        ("prompt", [[1], [10**6]]),
        ("max_tokens", -1),
        ("max_tokens", "1"),
        ("max_tokens", 10_000),
        ("n", 2),
        ("best_of", 2),
        ("logprobs", 0),
        ("echo", True),
        ("suffix", "x"),
        ("temperature", -0.1),
        ("temperature", "hot"),
        ("top_p", 1.1),
        ("presence_penalty", 0.5),
        ("logit_bias", {"5": 1}),
        ("stop", [""]),
        ("stop", ["a"] * 17),
        ("stop", 5),
        ("stream", "yes"),
        ("seed", 2**64),
        ("model", 3),
        ("promt", "misspelled"),
        ("kv_transfer_params", []),
        ("kv_transfer_params.do_remote_decode", True),
        ("kv_transfer_params.hidden_states_start", 3),
        ("kv_transfer_params.hidden_states_start", -1),
        ("kv_transfer_params.hidden_states_end", 0),
        ("kv_transfer_params.include_output_tokens", 1),
        ("stream_options.include_usage", "yes"),
        ("truncate_prompt_tokens", -2),
        ("truncation_side", "middle"),
    ],
)
def test_a_wrong_field_is_named(served, field, value):
    outer, _, inner = field.partition(".")
    fields = {"prompt": IDS, "max_tokens": 1, outer: {inner: value} if inner else value}

    error = error_of(served.post(**fields))

    assert error["param"] == field
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", []),
        ("messages", "hello"),
        ("messages", [{"role": "bard", "content": "a"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user", "content": ""}]),
        ("messages.0", "hello"),
        ("tools", {}),
        ("chat_template_kwargs", "x"),
        ("chat_template", "{{ messages }}"),
        ("logprobs", True),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
    ],
)
def test_a_wrong_field_of_a_chat_is_named(served, field, value):
    fields = {"messages": [{"role": "user", "content": "a"}]}
    fields |= {"messages": [value]} if field == "messages.0" else {field: value}

    assert error_of(served.post("/v1/chat/completions", **fields))["param"] == field


def test_two_endings_of_a_chat_are_refused(served):
    fields = {"messages": [{"role": "user", "content": "a"}], "continue_final_message": True}
    assert "continue_final_message" in error_of(served.post("/v1/chat/completions", **fields))["message"]


def test_arguments_of_the_template_that_are_not_its_own_are_refused_in_words(served):
    fields = {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"conversations": 1}}
    assert error_of(served.post("/v1/chat/completions", **fields))["param"] == "messages"


def test_neutral_values_of_fields_that_are_not_offered_pass(served):
    neutral = {"n": 1, "best_of": 1, "logprobs": None, "echo": False, "frequency_penalty": 0, "presence_penalty": 0.0}
    neutral |= {"logit_bias": {}, "suffix": None, "top_k": -1, "user": "somebody", "response_format": {"type": "text"}}
    assert served.post(prompt=IDS, max_tokens=1, **neutral).status_code == 200


def test_every_wrong_field_is_in_the_message_and_nothing_that_was_sent(served):
    error = error_of(served.post(prompt=IDS, max_tokens="secret-1", temperature="secret-2"))
    assert "max_tokens" in error["message"]
    assert "temperature" in error["message"]
    assert "secret" not in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nope",
        b'{"prompt": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b"[1, 2]",
        b'"text"',
        b"[" * 100_000,
        b'{"prompt": ' + b"[" * 100_000,
        b'{"messages": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "prompt',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_no_json_object_is_refused(served, body):
    error_of(post_raw(served, body))


def test_a_body_that_is_too_long_is_refused_before_it_is_read(served):
    answer = post_raw(served, b'{"prompt": "' + b"a" * 10_000_000 + b'"}')
    assert "4194304" in error_of(answer, 413)["message"]


def test_a_length_that_is_not_declared_is_counted(served):
    def parts():
        for _ in range(100):
            yield b" " * 100_000

    headers = {"Content-Type": "application/json"}
    answer = httpx.post(
        served.url + "/v1/completions", content=parts(), headers=headers, timeout=TIMEOUT_S, trust_env=False
    )
    error_of(answer, 413)


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_declared_to_be_json_is_refused(served, media_type):
    error_of(post_raw(served, b'{"prompt": "a"}', **{"Content-Type": media_type}), 415)


def test_unknown_routes_and_methods_are_refused_in_the_same_form(served):
    error_of(served.get("/v1/nothing"), 404)
    error_of(served.get("/v1/completions"), 405)
    error_of(served.post("/v1/models"), 405)


def test_an_error_that_nobody_foresaw_is_told_to_the_log_only(served, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(type(served.services.model), "require", fail)
    error = error_of(served.post(prompt=IDS), 500)

    assert "secret" not in error["message"]
    assert "a secret of the server" in caplog.text


def test_without_a_key_nothing_is_told_and_with_it_everything(serve):
    server = serve(api_key="core-7")
    for headers in (
        {},
        {"Authorization": "Bearer core-8"},
        {"Authorization": "core-7"},
        {"Authorization": "Basic core-7"},
    ):
        answer = server.get("/v1/models", headers=headers)
        assert error_of(answer, 401)["code"] == "invalid_api_key"
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert server.get("/v1/models", headers={"Authorization": "Bearer core-7"}).status_code == 200
    assert error_of(server.post(prompt=IDS), 401)
    assert server.get("/health").status_code == 200
    assert "core-7" not in server.get("/metrics").text


def test_states_that_cannot_be_used_are_told_and_leave_no_file(serve):
    server = serve()
    decoder = server.engine.engine.runner._decoder
    server.in_engine(lambda: decoder.weights.embedding[7].fill_(float("nan")))

    error = error_of(server.post(prompt=[5, 7, 9], max_tokens=1), 422)

    assert "finite" in error["message"]
    assert server.files() == []
    assert server.post(prompt=[5, 9], max_tokens=1).status_code == 200


def test_a_server_that_only_extracts_refuses_to_generate(serve, assert_file):
    server = serve(generates=False, layers=(1, 3, 2))
    error = error_of(server.post(prompt=IDS, max_tokens=1))
    answer = server.post(prompt=IDS, max_tokens=0)

    assert error["param"] == "max_tokens"
    assert_file(answer.json()["kv_transfer_params"]["hidden_states_path"], IDS)
    assert server.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}]).status_code == 200
