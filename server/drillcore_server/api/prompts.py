"""From what a request says to token ids, and whether the model can take them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from drillcore_server.api.errors import BadRequest, ContextLengthExceeded
from drillcore_server.api.extraction import Model
from drillcore_server.api.fields import TokenIds
from drillcore_server.api.protocol import CompletionRequest, GenerationRequest
from drillcore_server.data.tokenizer import Tokenizer

LONG_TEXT: Final = 1 << 15
"""Characters from which on text is worked on in a thread, so that others are answered meanwhile."""

T = TypeVar("T")


async def in_thread_if_long(num_characters: int, work: Callable[[], T]) -> T:
    """What `work` gives: at once, or from a thread."""
    return await asyncio.to_thread(work) if num_characters > LONG_TEXT else work()


async def completion_prompts(asked: CompletionRequest, model: Model) -> list[TokenIds]:
    """The prompts of a completion."""
    texts = [prompt for prompt in asked.prompt if isinstance(prompt, str)]
    if not texts:
        ids: Sequence[TokenIds] = asked.prompt
    else:
        ids = await in_thread_if_long(
            sum(map(len, texts)), lambda: _encode(model.tokenizer, texts, add_special_tokens=asked.add_special_tokens)
        )
    return [fitted(prompt, asked, model, param="prompt") for prompt in ids]


def _encode(tokenizer: Tokenizer, texts: Sequence[str], *, add_special_tokens: bool) -> list[TokenIds]:
    return tokenizer.encode_texts(texts) if add_special_tokens else tokenizer.encode_plain(texts)


def fitted(prompt: TokenIds, asked: GenerationRequest, model: Model, *, param: str) -> TokenIds:
    """The prompt, cut if the request asks for it.

    Raises:
        BadRequest: it has no tokens, one that the model has not, or too many; `param` names the field.
    """
    prompt = cut(prompt, asked, model.max_tokens)
    if not len(prompt):
        raise BadRequest("must have at least one token", param=param)
    highest = int(prompt.max())
    if highest >= model.vocab_size:
        raise BadRequest(f"token ids must be 0 to {model.vocab_size - 1}; got {highest}", param=param)
    if len(prompt) > model.max_tokens:
        raise ContextLengthExceeded(f"must have at most {model.max_tokens} tokens; got {len(prompt)}", param=param)
    return prompt


def cut(prompt: TokenIds, asked: GenerationRequest, longest: int) -> TokenIds:
    """The prompt as far as `truncate_prompt_tokens` keeps it."""
    kept = asked.truncate_prompt_tokens
    if kept is None:
        return prompt
    kept = longest if kept == -1 else kept
    return prompt[:kept] if asked.truncation_side == "right" else prompt[max(len(prompt) - kept, 0) :]


def tokens_to_generate(asked: int | None, prompt: TokenIds, model: Model) -> int:
    """How many; `asked` None: as many as fit.

    Raises:
        BadRequest: more than fit, or any where nothing is generated.
    """
    if not model.generates:
        if asked:
            raise BadRequest("must be 0: this server extracts only", param="max_tokens")
        return 0
    # The last token that is generated is never an input.
    room = model.max_tokens - len(prompt) + 1
    if asked is None:
        return room
    if asked > room:
        raise ContextLengthExceeded(
            f"must be at most {room}: the {len(prompt)} tokens of the prompt and the generated ones but the last are "
            f"at most {model.max_tokens} together; got {asked}",
            param="max_tokens",
        )
    return asked
