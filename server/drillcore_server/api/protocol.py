"""Requests: the fields of OpenAI's API and of vLLM's that this server has.

A field that would change the answer and is not offered is refused unless its value is the neutral one, which clients
send without being asked. A field that nobody knows is refused by name: a misspelled option would be lost silently.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from drillcore_server.api.fields import Count, NotOffered, PromptField, StopField, StrictModel, TokenId

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for completions."""


class KVTransferParams(StrictModel):
    """Which states go into the file, and where it lies."""

    hidden_states_path: str | None = None
    """A path below the storage, relative or absolute; None: the server chooses."""
    include_output_tokens: bool = False
    """Also the states of generated tokens, but the last one, which was never an input."""
    hidden_states_start: Count = 0
    """First token whose states are stored."""
    hidden_states_end: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Token after the last one whose states are stored; None: the last there is."""

    @model_validator(mode="after")
    def _ascends(self) -> KVTransferParams:
        if self.hidden_states_end is not None and self.hidden_states_end <= self.hidden_states_start:
            raise PydanticCustomError("window", "hidden_states_end must be greater than hidden_states_start")
        return self


_WHOLE_PROMPT = KVTransferParams()


class StreamOptions(StrictModel):
    """Options of a stream."""

    include_usage: bool | None = None
    """Send one more event with the token counts."""
    continuous_usage_stats: Annotated[Any, NotOffered(None, False)] = None


class GenerationRequest(StrictModel):
    """What completions and chats have in common."""

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopField = ()
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    kv_transfer_params: KVTransferParams | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    """Keep so many tokens of the prompt; -1: as many as the model can take."""
    truncation_side: Literal["left", "right"] | None = None
    """Where tokens are cut off; None: left, as in vLLM."""
    user: str | None = None
    """Not used."""

    n: Annotated[Any, NotOffered(None, 1)] = None
    frequency_penalty: Annotated[Any, NotOffered(None, 0, 0.0)] = None
    presence_penalty: Annotated[Any, NotOffered(None, 0, 0.0)] = None
    repetition_penalty: Annotated[Any, NotOffered(None, 1, 1.0)] = None
    logit_bias: Annotated[Any, NotOffered(None, {})] = None
    prompt_logprobs: Annotated[Any, NotOffered(None)] = None
    top_k: Annotated[Any, NotOffered(None, 0, -1)] = None
    min_p: Annotated[Any, NotOffered(None, 0, 0.0)] = None
    min_tokens: Annotated[Any, NotOffered(None, 0)] = None
    use_beam_search: Annotated[Any, NotOffered(None, False)] = None
    response_format: Annotated[Any, NotOffered(None, {"type": "text"})] = None
    spaces_between_special_tokens: Annotated[Any, NotOffered(None, True)] = None
    priority: Annotated[Any, NotOffered(None, 0)] = None

    @property
    def wants(self) -> KVTransferParams:
        """What is wanted of the states."""
        return self.kv_transfer_params or _WHOLE_PROMPT


class CompletionRequest(GenerationRequest):
    """`POST /v1/completions`."""

    prompt: PromptField
    max_tokens: Count | None = DEFAULT_MAX_TOKENS
    add_special_tokens: bool = True
    """Whether a text gets the special tokens that the tokenizer adds."""

    logprobs: Annotated[Any, NotOffered(None)] = None
    echo: Annotated[Any, NotOffered(None, False)] = None
    best_of: Annotated[Any, NotOffered(None, 1)] = None
    suffix: Annotated[Any, NotOffered(None)] = None

    @property
    def most_tokens(self) -> int | None:
        """Tokens to generate; None: as many as fit."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens


class ChatRequest(GenerationRequest):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    """Handed to the chat template; calls of tools are not read out of what is generated."""
    add_special_tokens: bool = False
    """Whether the rendered text gets the special tokens that the tokenizer adds; templates write their own."""

    logprobs: Annotated[Any, NotOffered(None, False)] = None
    top_logprobs: Annotated[Any, NotOffered(None, 0)] = None
    tool_choice: Annotated[Any, NotOffered(None, "none", "auto")] = None
    parallel_tool_calls: Annotated[Any, NotOffered(None, True, False)] = None
    store: Annotated[Any, NotOffered(None, False)] = None

    @model_validator(mode="after")
    def _one_ending(self) -> ChatRequest:
        if self.add_generation_prompt and self.continue_final_message:
            raise PydanticCustomError(
                "ending", "continue_final_message needs add_generation_prompt: false; both cannot be true"
            )
        return self

    @property
    def most_tokens(self) -> int | None:
        """Tokens to generate; None: as many as fit."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
