"""A conversation as datasets store it, and as chat templates read it.

Turns are `{"role", "content"}` (OpenAI) or `{"from", "value"}` (ShareGPT) objects. Nothing is guessed: a turn
with an unknown role or without text makes the row unusable, where other tools take it for the assistant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drillcore.records import QuarantineReason
from drillcore_server.data.rows import RowFault, shown

Message = dict[str, Any]
"""`role` and `content`, both text, and what templates know besides: tool calls, reasoning, a name."""

ASSISTANT = "assistant"
ROLE_OF = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": ASSISTANT,
    "gpt": ASSISTANT,
    "tool": "tool",
}
_MAY_BE_EMPTY = frozenset({"system", "developer", "tool"})
_KEPT_KEYS = ("name", "tool_calls", "tool_call_id")


def read_messages(record: Mapping[str, Any], column: str) -> list[Message]:
    """The turns of a row, at least one.

    Raises:
        RowFault: BAD_COLUMN when the column is no list of turns; EMPTY when there are none, or one has no text.
    """
    turns = record.get(column)
    if not isinstance(turns, list):
        raise RowFault(QuarantineReason.BAD_COLUMN, f"column {column!r} must be a list of messages; got {shown(turns)}")
    if not turns:
        raise RowFault(QuarantineReason.EMPTY, f"column {column!r} has no messages")
    return [_message(turn, f"{column}[{index}]") for index, turn in enumerate(turns)]


def _message(turn: object, where: str) -> Message:
    if not isinstance(turn, dict):
        raise RowFault(
            QuarantineReason.BAD_COLUMN, f"{where} must be an object with role and content; got {shown(turn)}"
        )
    role = _role(turn.get("role") if turn.get("from") is None else turn["from"], where)
    content = _content(turn, where)
    kept = {key: turn[key] for key in _KEPT_KEYS if turn.get(key)}
    reasoning = turn.get("reasoning_content") or turn.get("thinking")
    if reasoning:
        # Templates know it by one of these two names.
        kept |= {"reasoning_content": reasoning, "thinking": reasoning}
    if not content.strip() and role not in _MAY_BE_EMPTY and not kept.get("tool_calls"):
        raise RowFault(QuarantineReason.EMPTY, f"{where}, the turn of role {role!r}, has no text")
    return {"role": role, "content": content, **kept}


def _role(name: object, where: str) -> str:
    if not isinstance(name, str) or name not in ROLE_OF:
        known = ", ".join(ROLE_OF)
        raise RowFault(QuarantineReason.BAD_COLUMN, f"{where} must have one of the roles {known}; got {shown(name)}")
    return ROLE_OF[name]


def _content(turn: Mapping[str, Any], where: str) -> str:
    """The text of a turn; text parts are joined by line ends, as vLLM does for templates that take text."""
    content = turn.get("content") if turn.get("value") is None else turn["value"]
    if content is None and turn.get("tool_calls"):
        return ""
    if isinstance(content, list):
        return "\n".join(_part_text(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    if not isinstance(content, str):
        raise RowFault(QuarantineReason.BAD_COLUMN, f"{where} must have text as its content; got {shown(content)}")
    return content


def _part_text(part: object, where: str) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part
    if not isinstance(text, str):
        raise RowFault(QuarantineReason.BAD_COLUMN, f"{where} must be a text part; got {shown(part)}")
    return text
