"""The three kinds of rows: plain text, conversations, and token ids that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineReason
from drillcore_server.data.chat_template import ChatTemplate, Span
from drillcore_server.data.columns import checked_text, read_input_ids, read_text
from drillcore_server.data.conversation import ASSISTANT, Message, read_messages
from drillcore_server.data.rows import RowFault
from drillcore_server.data.tokenizer import Tokenizer

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRow:
    """The tokens of one row before it is cut to the model's length."""

    token_ids: NDArray[np.int64]
    """[S]."""
    assistant_mask: NDArray[np.uint8] | None = None
    """[S]: 1 for tokens of the assistant's turns; None when nobody asked."""


class RowEncoder(Protocol[Content]):
    """One kind of row, in two steps: each row by itself, then many at once."""

    def read(self, record: Mapping[str, Any]) -> Content:
        """What is to be encoded of a row; raises RowFault when there is no such thing."""
        ...

    def encode(self, contents: Sequence[Content]) -> list[EncodedRow]:
        """The tokens of many rows, in order."""
        ...


@dataclass(frozen=True)
class TextEncoder:
    """Rows of plain text."""

    column: str
    tokenizer: Tokenizer

    def read(self, record: Mapping[str, Any]) -> str:
        """The text; see `read_text`."""
        return read_text(record, self.column)

    def encode(self, contents: Sequence[str]) -> list[EncodedRow]:
        """Tokens with the special tokens that the tokenizer adds to a text."""
        return [EncodedRow(token_ids) for token_ids in self.tokenizer.encode_texts(contents)]


@dataclass(frozen=True)
class TokenIdsEncoder:
    """Rows of token ids, which are used exactly as they are."""

    column: str

    def read(self, record: Mapping[str, Any]) -> NDArray[np.int64]:
        """The ids; see `read_input_ids`."""
        return read_input_ids(record, self.column)

    def encode(self, contents: Sequence[NDArray[np.int64]]) -> list[EncodedRow]:
        """The same ids."""
        return [EncodedRow(token_ids) for token_ids in contents]


@dataclass(frozen=True)
class ConversationEncoder:
    """Rows of messages, rendered by a chat template."""

    column: str
    tokenizer: Tokenizer
    template: ChatTemplate
    wants_mask: bool
    """Whether the assistant's turns are marked."""
    is_prompt: bool
    """Whether the model is to write the next turn: the text ends with the generation prompt, and assistant turns
    at the end of the conversation, which that turn replaces, are left out."""

    def read(self, record: Mapping[str, Any]) -> tuple[str, list[Span]]:
        """The rendered text and the spans of the assistant's turns in it."""
        messages = read_messages(record, self.column)
        if self.is_prompt:
            messages = _without_last_answers(messages, self.column)
        text, spans = self._rendered(messages)
        if not text:
            raise RowFault(QuarantineReason.EMPTY, f"the chat template makes no text of column {self.column!r}")
        return checked_text(text, f"column {self.column!r}"), spans

    def encode(self, contents: Sequence[tuple[str, list[Span]]]) -> list[EncodedRow]:
        """Tokens of the rendered texts and no others: special tokens are the template's business."""
        encoded = self.tokenizer.encode_rendered([text for text, _ in contents])
        return [
            EncodedRow(tokens.token_ids, tokens.mask(spans) if self.wants_mask else None)
            for tokens, (_, spans) in zip(encoded, contents, strict=True)
        ]

    def _rendered(self, messages: Sequence[Message]) -> tuple[str, list[Span]]:
        if not self.wants_mask:
            return self.template.render(messages, add_generation_prompt=self.is_prompt), []
        text, spans = self.template.render_with_spans(messages, add_generation_prompt=self.is_prompt)
        if not spans and not self.is_prompt:
            raise RowFault(
                QuarantineReason.NO_ASSISTANT_TURN, f"column {self.column!r} has no assistant turn after another turn"
            )
        return text, spans


def _without_last_answers(messages: list[Message], column: str) -> list[Message]:
    kept = list(messages)
    while kept and kept[-1]["role"] == ASSISTANT:
        kept.pop()
    if not kept:
        raise RowFault(QuarantineReason.EMPTY, f"column {column!r} has no turn that the model could answer")
    return kept
