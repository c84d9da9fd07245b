"""The forms of successful answers, for the OpenAPI document. The answers themselves are written by `responses`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class TransferParams(BaseModel):
    """Where the states of one prompt are, and what they are."""

    hidden_states_path: str
    handle: str
    layer_ids: list[int]
    final_norm: bool
    num_tokens: int
    hidden_states_start: int


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Choice(BaseModel):
    """What both kinds of choices have."""

    index: int
    finish_reason: Literal["stop", "length"]
    stop_reason: str | int | None
    logprobs: None
    kv_transfer_params: TransferParams
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionChoice(Choice):
    """One prompt's answer."""

    text: str


class ChatMessage(BaseModel):
    """The assistant's turn."""

    role: Literal["assistant"]
    content: str


class ChatChoice(Choice):
    """The conversation's answer."""

    message: ChatMessage


class Answer(BaseModel):
    """What both kinds of answers have."""

    id: str
    created: int
    model: str
    usage: Usage
    kv_transfer_params: TransferParams
    """The first prompt's."""


class Completion(Answer):
    """Answer of `/v1/completions`."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class ChatCompletion(Answer):
    """Answer of `/v1/chat/completions`."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    prompt_token_ids: list[int] | None = None


class Rendered(BaseModel):
    """Answer of `/v1/chat/completions/render`."""

    request_id: str
    model: str
    token_ids: list[int]


class ModelCard(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "drillcore"
    max_model_len: int
    layer_ids: list[int]
    final_norm: bool


class ModelList(BaseModel):
    """Answer of `/v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Deleted(BaseModel):
    """A file is gone."""

    id: str
    object: Literal["hidden_states"] = "hidden_states"
    deleted: Literal[True] = True


class Health(BaseModel):
    """The server serves."""

    status: Literal["ok"] = "ok"
