"""Whatever can be made from the OpenAPI document, the server answers in the document's words, and never with 500."""

from __future__ import annotations

import json

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

TIMEOUT_S = 60
OPERATIONS = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/chat/completions/render"),
    ("GET", "/v1/hidden_states/{handle}"),
    ("DELETE", "/v1/hidden_states/{handle}"),
    ("GET", "/v1/models"),
]
LIMITS = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": (Phase.generate,), "database": None}


@pytest.fixture(scope="module")
def schema(served):
    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


def assert_foreseen(response: httpx.Response) -> None:
    """A success, or an error object; a wrong body names its field, unless it is no object at all."""
    assert response.status_code < 500, response.text
    if response.status_code < 400:
        return
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    if response.status_code == 400 and "JSON" not in error["message"] and not error["message"].startswith("body"):
        assert error["param"], error


def check(served, schema, method: str, path: str, num_examples: int) -> None:
    operation = schema[path][method]
    modes = [schemathesis.GenerationMode.POSITIVE]
    if method == "POST":  # a path without parameters, or with one of any text, cannot be wrong
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    for mode in modes:
        strategy = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=num_examples, **LIMITS)
        @given(case=strategy)
        def run(case):
            _bound_generation(case)
            response = case.call(base_url=served.url, timeout=TIMEOUT_S)
            assert_foreseen(response)

        run()


def _bound_generation(case) -> None:
    """A chat without a limit generates until the model's length is reached: right, and slow."""
    if isinstance(case.body, dict) and case.body.get("max_tokens") is None:
        case.body["max_tokens"] = 2


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda value: value)
def test_every_operation_answers_as_the_document_says(served, schema, method, path):
    check(served, schema, method, path, num_examples=15)
    served.assert_whole()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda value: value)
def test_every_operation_answers_as_the_document_says_many_times(served, schema, method, path):
    check(served, schema, method, path, num_examples=1500)
    served.assert_whole()


@settings(max_examples=50, **LIMITS)
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["prompt", "n", "x"]), inner),
        max_leaves=8,
    )
)
def test_any_json_at_all_is_answered(served, body):
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/completions", "/v1/chat/completions"):
        content = json.dumps(body).encode()
        response = httpx.post(served.url + path, content=content, headers=headers, timeout=TIMEOUT_S, trust_env=False)
        assert_foreseen(response)


def test_the_document_names_every_field_of_requests_and_every_error(served):
    document = served.get("/openapi.json").json()

    request = document["components"]["schemas"]["CompletionRequest"]
    assert {"prompt", "max_tokens", "kv_transfer_params", "return_token_ids"} <= set(request["properties"])
    assert request["additionalProperties"] is False
    responses = document["paths"]["/v1/completions"]["post"]["responses"]
    assert {"200", "400", "413", "429", "503", "507"} <= set(responses)
    assert "422" in responses
