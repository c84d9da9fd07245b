from typing import Any

import pytest

from drillcore.records import QuarantineReason
from drillcore_server.data.conversation import read_messages
from drillcore_server.data.rows import RowFault


def test_role_content_and_from_value_turns_are_the_same_conversation() -> None:
    openai = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    sharegpt = [{"from": "system", "value": ""}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    assert read_messages({"m": openai}, "m") == openai
    assert read_messages({"m": sharegpt}, "m") == openai


def test_text_parts_are_joined_by_line_ends() -> None:
    parts = [{"type": "text", "text": "a"}, "b"]
    assert read_messages({"m": [{"role": "user", "content": parts}]}, "m")[0]["content"] == "a\nb"


def test_what_templates_know_is_kept_and_the_rest_is_not() -> None:
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    turns = [
        {"role": "assistant", "content": None, "tool_calls": calls, "score": 3},
        {"role": "tool", "content": "", "tool_call_id": "1", "name": "f"},
        {"role": "assistant", "content": "b", "thinking": "hm"},
    ]
    assert read_messages({"m": turns}, "m") == [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "", "tool_call_id": "1", "name": "f"},
        {"role": "assistant", "content": "b", "reasoning_content": "hm", "thinking": "hm"},
    ]


@pytest.mark.parametrize(
    ("turns", "reason", "said"),
    [
        (None, QuarantineReason.BAD_COLUMN, "must be a list of messages; got None"),
        ("hello", QuarantineReason.BAD_COLUMN, "must be a list of messages"),
        ([], QuarantineReason.EMPTY, "has no messages"),
        (["hello"], QuarantineReason.BAD_COLUMN, "m[0] must be an object"),
        ([{"role": "user", "content": "a"}, {"content": "b"}], QuarantineReason.BAD_COLUMN, "m[1] must have one of"),
        ([{"role": "bard", "content": "a"}], QuarantineReason.BAD_COLUMN, "got 'bard'"),
        ([{"role": ["user"], "content": "a"}], QuarantineReason.BAD_COLUMN, "got ['user']"),
        ([{"role": "user"}], QuarantineReason.BAD_COLUMN, "must have text as its content; got None"),
        ([{"role": "user", "content": 5}], QuarantineReason.BAD_COLUMN, "got 5"),
        ([{"role": "user", "content": [{"type": "image"}]}], QuarantineReason.BAD_COLUMN, "m[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], QuarantineReason.BAD_COLUMN, "text part"),
        ([{"role": "user", "content": " \n"}], QuarantineReason.EMPTY, "m[0], the turn of role 'user', has no text"),
        ([{"from": "gpt", "value": ""}], QuarantineReason.EMPTY, "m[0], the turn of role 'assistant', has no text"),
    ],
)
def test_anything_else_is_refused_with_its_place(turns: Any, reason: QuarantineReason, said: str) -> None:
    with pytest.raises(RowFault) as caught:
        read_messages({"m": turns}, "m")
    assert caught.value.reason is reason
    assert said in caught.value.message
